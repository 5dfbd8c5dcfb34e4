"""A server that is already up, somebody else's. Nothing is launched, nothing is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_moeperf.asking import Answer
from pytest_moeperf.engines.attached_log import refuse_unreadable_log
from pytest_moeperf.engines.control import Control
from pytest_moeperf.engines.identity import OPENAI, Answers, Identity, read_identity
from pytest_moeperf.engines.unreachable import no_server, unreachable
from pytest_moeperf.errors import ServerError
from pytest_moeperf.model.server import LaunchPlan
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.outgoing.key import ApiKey

READINGS = 4
"""Of the identity, one after the other on connections of their own: behind a round robin they differ."""


class AttachedEngine:
    """``--perf-attach=URL``."""

    name = "attached"
    protocol = OPENAI

    def check(self, spec: ServerSpec) -> None:
        refuse_unreadable_log(spec.stated.log)

    def version(self, spec: ServerSpec) -> str | None:
        del spec
        return None

    def notes(self, spec: ServerSpec) -> tuple[str, ...]:
        del spec
        return ()

    def launch_plan(self, spec: ServerSpec, *, devices: Sequence[str], session: str, launch: str) -> LaunchPlan:
        raise NotImplementedError(f"{spec.attach_url} is attached, never launched")


def identify(control: Control) -> Identity:
    """What the server says of itself now; nothing is known of one that does not answer."""
    info, models = control.server_info(), control.get_json("/v1/models")
    return _identity(control, info, models)


def attach(spec: ServerSpec, *, api_key: ApiKey | None = None) -> Identity:
    """Who answers at ``spec.attach_url``, with what the user states where the server is silent.

    :raises ServerError: nobody does, it is no inference server, several servers share the address, or another model
        than the configured one is served.
    """
    url = spec.attach_url
    control = Control(url=url, api_key=api_key)
    info, models = control.server_info(), control.get_json("/v1/models")
    if not info.good and not models.good:
        raise unreachable(url, info if models.absent else models, has_key=api_key is not None)
    served = _identity(control, info, models)
    if served.model is None and not served.served:
        raise no_server(url)
    _refuse_several(url, served, [identify(control) for _ in range(READINGS - 1)])
    return _of_model(spec, served)


def _identity(control: Control, info: Answer, models: Answer) -> Identity:
    metrics = control.get_text("/metrics")
    answers = Answers(
        server_info=info.data if info.good else None,
        models=models.data if models.good else None,
        metrics=metrics.text if metrics.good else "",
    )
    first = read_identity(answers)
    if first.protocol != OPENAI:
        return first
    version = control.get_json("/version")
    asked = {"model": first.served[0] if first.served else "", "prompt": "1", "max_tokens": 1, "temperature": 0}
    completion = control.post("/v1/completions", asked).as_object()
    return read_identity(
        replace(
            answers,
            version=version.data if version.good else None,
            completion=completion.data if completion.good else None,
        )
    )


def _refuse_several(url: str, first: Identity, others: Sequence[Identity]) -> None:
    for other in others:
        # What one reading lacks (an answer that came too late) tells nothing.
        pairs = {name: (value, other.marks[name]) for name, value in first.marks.items()}
        differing = [name for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]]
        if differing:
            raise ServerError(
                what=f"several servers answer at {url}: {first.text}, and {other.text} (differing in "
                f"{', '.join(differing)})",
                hint="figures of several servers are those of none: attach to the address of one of them",
            )


def _of_model(spec: ServerSpec, served: Identity) -> Identity:
    """The name that a request must give comes first in ``served``."""
    stated = spec.stated
    wanted = stated.model or spec.model
    names = list(served.served)
    chosen = next((name for name in names if _same_model(name, wanted)), None) if wanted else None
    if len(names) > 1 and chosen is None:
        raise ServerError(
            what=f"{spec.attach_url} serves {len(names)} models: {', '.join(names)}",
            hint=f'name the one to measure in moeperf.toml: [attach] model = "{names[0]}"',
        )
    model = chosen if len(names) > 1 else served.model
    if spec.model and not stated.model and not any(_same_model(name, spec.model) for name in (model, *names) if name):
        raise ServerError(
            what=f"{spec.attach_url} serves {model or names[0]}, and the configuration's model is {spec.model}",
            hint="attach to a server of that model, or say in moeperf.toml that it is what this one serves: "
            f'[attach] model = "{spec.model}"',
        )
    return replace(
        served,
        served=(chosen, *(name for name in names if name != chosen)) if chosen else served.served,
        model=stated.model or model,
        engine=served.engine or stated.engine or None,
        version=served.version or stated.version or None,
    )


def _same_model(name: str, wanted: str) -> bool:
    """A hub name may lie in a folder of its last part."""
    return name.rstrip("/") == wanted.rstrip("/") or _last(name) == _last(wanted)


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
