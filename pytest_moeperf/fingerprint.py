"""What must be equal for two runs to be comparable, and how two fingerprints differ. Pure; the tables it applies are in
``model/comparability.py``."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pytest_moeperf.model import comparability as tables
from pytest_moeperf.model.derived import GIVEN, given_names, same_effect
from pytest_moeperf.model.run import FINGERPRINT_GROUPS, Fingerprint, Plain
from pytest_moeperf.model.server_info import ROLES, workers
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.vocabulary import UNREAD, Vocabulary
from pytest_moeperf.outgoing.secrets import is_secret_name, known_secrets, scrub_secrets
from pytest_moeperf.outgoing.variables import VARIABLE_DIGEST, digest_of_variable, variable_text

UNKNOWN = "unknown"
NOT_SET = "not set"
CLOSED_LOOP = "none (closed loop)"
VARIED = "varied"
"""Server field that names the arguments which the backend's own table sets."""

SOURCE = ("engine_commit", "engine_changes", "engine_files")
"""Software fields of an engine that was built from source."""

VOCABULARY = "vocabulary"
"""Workload field: the ids that prompts are made of. Where it is missing, they are those of ``UNREAD``, as in all
baselines from before models' own vocabularies were read."""

LONGEST_VALUE = 120
_BLOCKING_GROUPS = frozenset({"workload", "server", "hardware"})
_ENV = "env."
_MODEL = "model."
_FILE = "file."


def build_fingerprint(
    *,
    workload: Mapping[str, Any],
    server_info: Mapping[str, Any] | None,
    env: Mapping[str, str],
    software: Mapping[str, Any],
    hardware: Mapping[str, Any],
    environment: Mapping[str, Any],
    backend_flags: Sequence[str] = (),
    model: Mapping[str, Any] | None = None,
    args: Sequence[str] | None = None,
    files: Mapping[str, Plain] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Fingerprint:
    """The fingerprint of a run, without secrets. What could not be read is left out, but for what a comparison needs
    (``UNKNOWN_IS_KEPT``): that is None, and equal to nothing.

    Args:
        workload: ``Workload.as_fields()``.
        server_info: the server's own /server_info, resolved arguments at its top level; None: it has none.
        env: the server's environment; only variables that can matter are recorded.
        software: versions by name; ``engine`` and ``engine_version`` among them.
        hardware: of the machine that serves. A simulated server names the one that it imagines, which counts instead.
        environment: settings of that machine (governor, kernel, ...), all of them noted.
        backend_flags: the arguments of the backend's own table, ``--flag=value`` or ``--flag``, ``value``.
        model: ``name`` and ``config_digest`` of the model, where known.
        args: all arguments of the launch command; None: somebody else launched it, and its server may say how.
        files: digests of the files that arguments and variables name, by ``file.ARGUMENT``.
        arguments: what else is known of how the server was started, where it has no server_info.
    """
    secrets = known_secrets(env)
    info = server_info or {}
    server = _server_fields(info, backend_flags) if server_info is not None else {}
    server |= arguments or {}
    for name, value in (model or {}).items():
        server[_MODEL + name] = value
    for name, value in env.items():
        if _is_recorded_env(name):
            server[_ENV + name] = variable_text(name, value, harmless=tables.HARMLESS_ENV, known=secrets)
    server.update(files or {})
    args = _launch_command(info) if args is None else args
    if server and args is not None:
        server[GIVEN] = given_names(argument_names(args))
    versions = dict(software)
    if versions.get("engine_version") is None and isinstance(info.get("version"), str):
        versions["engine_version"] = info["version"]
    simulated = info.get("simulated")
    if isinstance(simulated, Mapping):
        # Its step times come from a profile of an imagined machine: the real one is worth a note.
        environment = {**environment, **hardware}
        hardware = {"simulated": simulated.get("hardware")}
        versions["simulated_profile"] = simulated.get("profile_digest")
    groups: dict[str, Mapping[str, Any]] = {
        "workload": {
            key: CLOSED_LOOP if key == "request_rate" and value is None else value for key, value in workload.items()
        },
        "server": server,
        "software": versions,
        "hardware": hardware,
        "environment": environment,
    }
    return Fingerprint(**{group: _plain_fields(group, fields, secrets) for group, fields in groups.items()})


def differences(
    baseline: Fingerprint, here: Fingerprint, *, blocking: Sequence[str] = (), noted: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """Every field that is not shown to be equal: blocking ones first, then by name.

    None in a field is unknown and equal to nothing, itself included: a blocking field then blocks. So does a blocking
    field that only one side has, unless it is a server argument and the engine versions differ: a newer version has
    other arguments. A group that one side does not have at all is one difference.

    Args:
        blocking, noted: shell patterns of ``group.field`` that override the tables; ``noted`` wins.
    """
    context = _Context(baseline, here, blocking, noted)
    found = [difference for group in FINGERPRINT_GROUPS for difference in _group_differences(group, context)]
    return tuple(sorted(found, key=lambda difference: (not difference.blocking, difference.field)))


def known_differences(baseline: Fingerprint, here: Fingerprint) -> tuple[Difference, ...]:
    """As ``differences``, where ``here`` is not complete yet: groups that it lacks are left out."""
    known = {group: getattr(baseline, group) if getattr(here, group) else {} for group in FINGERPRINT_GROUPS}
    found = differences(Fingerprint(**known), here)
    # Whether other prompts are other work is only known with the server's arguments.
    return found if here.server else tuple(item for item in found if item.field != f"workload.{VOCABULARY}")


def describe(found: Iterable[Difference]) -> list[str]:
    """One line for each, which needs no knowledge of the fields' names: ``number of prompts in a run: 40 in the
    baseline, 10 here``. What one side does not know (an imported table knows little) stands in one line together."""
    known: list[str] = []
    unknown: dict[str, list[str]] = {"unknown in the baseline": [], "unknown here": [], "unknown in both": []}
    for difference in found:
        baseline, here = difference.baseline, difference.here
        name = label(difference.field) if here != UNKNOWN else how_to_say(difference.field)
        if UNKNOWN not in (baseline, here):
            known.append(f"{name}: {baseline} in the baseline, {here} here")
        elif baseline == here:
            unknown["unknown in both"].append(name)
        elif baseline == UNKNOWN:
            unknown["unknown in the baseline"].append(f"{name} ({here} here)")
        else:
            unknown["unknown here"].append(f"{name} ({baseline} in the baseline)")
    lines = [f"{where}, so not shown to be equal: {', '.join(names)}" for where, names in unknown.items() if names]
    return [*known, *lines]


def unknown_fields(fingerprint: Fingerprint) -> tuple[str, ...]:
    """Fields without which nothing is comparable with this fingerprint, itself included."""
    return tuple(each.field for each in differences(fingerprint, fingerprint) if each.blocking)


def how_to_say(field: str) -> str:
    """Of a field that is unknown: its name, and the line of the configuration that states it, where there is one."""
    line = tables.STATED_BY.get(field)
    return label(field) + (f" ({line} states it)" if line else "")


def label(field: str) -> str:
    """A field's name for people: a label, a flag, an environment variable, or its own words."""
    if field in tables.LABELS:
        return tables.LABELS[field]
    group, _, name = field.partition(".")
    if group == "server":
        if name.startswith(_ENV):
            return f"the server's environment variable {name.removeprefix(_ENV)}"
        if name.startswith(_FILE):
            return f"the content of {label(f'server.{name.removeprefix(_FILE)}')}"
        argument, _, part = name.partition(".")
        return "--" + argument.replace("_", "-") + (f" ({part})" if part else "")
    return name.replace("_", " ") if group != "software" else f"{name} version"


def argument_names(flags: Sequence[str]) -> tuple[str, ...]:
    """``("--fp4-gemm-backend=x", "--tp", "8")`` -> ``("fp4_gemm_backend", "tp")``."""
    names = (flag.split("=", 1)[0].lstrip("-").replace("-", "_") for flag in flags if flag.startswith("--"))
    return tuple(sorted(set(names)))


def _launch_command(info: Mapping[str, Any]) -> list[str] | None:
    """As a server that somebody else launched says it; None: it doesn't."""
    command = info.get("launch_command")
    if isinstance(command, str):
        return command.split()
    return [str(argument) for argument in command] if isinstance(command, (list, tuple)) else None


def vocabulary_field(vocabulary: Vocabulary) -> dict[str, str]:
    """For the workload's fields: nothing for the ids of a model that was not read."""
    return {} if vocabulary == UNREAD else {VOCABULARY: vocabulary.name}


def _server_fields(info: Mapping[str, Any], backend_flags: Sequence[str]) -> dict[str, Any]:
    """Resolved arguments, nested ones as dotted names. JSON's null is a known value here: the argument is not set."""
    fields: dict[str, Any] = {}
    roles = workers(info)
    _arguments({name: value for name, value in info.items() if name not in roles}, fields)
    for role, listed in roles.items():
        fields[f"{role}.workers"] = len(listed)
        first: dict[str, Any] = {}
        for number, worker in enumerate(listed, start=1):
            own: dict[str, Any] = {}
            _arguments(worker, own)
            first = first or own
            # Said once: workers of one role rarely differ.
            same = {name for name in own if number > 1 and own[name] == first.get(name, own)}
            where = role if number == 1 else f"{role}.{number}"
            fields |= {f"{where}.{name}": value for name, value in own.items() if name not in same}
    states = info.get("internal_states")
    if isinstance(states, list) and states and isinstance(states[0], Mapping):
        effective = states[0].get("effective_max_running_requests_per_dp")
        if effective is not None:
            fields["effective_max_running_requests"] = effective
    if draft := info.get("speculative_draft_model_path"):
        fields["model.draft"] = str(draft).rstrip("/").rpartition("/")[2] if str(draft).startswith("/") else draft
    if varied := argument_names(backend_flags):
        fields[VARIED] = " ".join(varied)
    return fields


def _arguments(info: Mapping[str, Any], fields: dict[str, Any]) -> None:
    for name, value in info.items():
        if not _matches(name, tables.IGNORED_SERVER_ARGS) and not is_secret_name(name):
            _flatten(name, value, fields)


def _flatten(name: str, value: Any, fields: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, fields)
    else:
        fields[name] = NOT_SET if value is None else value


def _plain_fields(group: str, fields: Mapping[str, Any], secrets: Sequence[str]) -> dict[str, Plain]:
    # Scrubbed before anything is cut: half a secret is one.
    clean = scrub_secrets(dict(fields), known=secrets)
    return {
        str(name): _plain(value)
        for name, value in sorted(clean.items())
        if value is not None or _matches(f"{group}.{name}", tables.UNKNOWN_IS_KEPT)
    }


def _plain(value: Any) -> Plain:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(text) <= LONGEST_VALUE:
        return text
    # Long lists (the batch sizes of CUDA graphs) are compared whole and shown short.
    size = f"{len(value)} values" if isinstance(value, (list, tuple)) else f"{len(text)} characters"
    return f"{text[:40]}... ({size}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"


def _is_recorded_env(name: str) -> bool:
    return (
        name.startswith(tables.SERVER_ENV_PREFIXES)
        and not is_secret_name(name)
        and not _matches(name, tables.IGNORED_ENV)
    )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _argument(field: str) -> str:
    """``cuda_graph_config.decode`` -> ``cuda_graph_config``; a router's ``decode.2.tp_size`` -> ``tp_size``."""
    role, _, rest = field.partition(".")
    own = rest.lstrip("0123456789").removeprefix(".") if role in ROLES else field
    return own.partition(".")[0]


class _Context:
    """Both fingerprints and what the comparison of one field has to know of the others."""

    def __init__(self, baseline: Fingerprint, here: Fingerprint, blocking: Sequence[str], noted: Sequence[str]) -> None:
        self.baseline, self.here = baseline, here
        self.blocking, self.noted = tuple(blocking), tuple(noted)
        self.varied = frozenset(f"{baseline.server.get(VARIED) or ''} {here.server.get(VARIED) or ''}".split())
        versions = (baseline.software.get("engine_version"), here.software.get("engine_version"))
        # A source build keeps its version while its arguments change.
        self.other_engine_version = (None not in versions and versions[0] != versions[1]) or any(
            baseline.software.get(name) != here.software.get(name) for name in SOURCE
        )

    def is_blocking(self, field: str, *, one_sided: bool) -> bool:
        if _matches(field, self.noted):
            return False
        if _matches(field, self.blocking):
            return True
        group, _, name = field.partition(".")
        if group == "server":
            return self._server_blocks(name, one_sided=one_sided)
        if group == "workload":
            noted = _matches(name, tables.NOTED_WORKLOAD)
            return not (noted or (name == VOCABULARY and self._random_weights()))
        if group == "hardware":
            return _matches(name, tables.BLOCKING_HARDWARE) and not (name == "driver" and self._same_driver_major())
        return group == "software" and _matches(name, tables.BLOCKING_SOFTWARE)

    def _server_blocks(self, name: str, *, one_sided: bool) -> bool:
        if name.startswith(_ENV):
            return not _matches(name.removeprefix(_ENV), tables.NOTED_ENV)
        if name.startswith(_FILE):
            return self._file_blocks(name.removeprefix(_FILE), one_sided=one_sided)
        if name == f"{_MODEL}draft" and self._same(f"{_FILE}speculative_draft_model_path"):
            return False
        if name.startswith(_MODEL):
            return self._model_blocks(name.removeprefix(_MODEL), one_sided=one_sided)
        if name == "arguments" and self.baseline.server.get(name) is None and self.here.server.get(name) is None:
            return False  # told, like all that is unknown on both sides and has no way to be read
        return self._argument_blocks(name, one_sided=one_sided)

    def _model_blocks(self, name: str, *, one_sided: bool) -> bool:
        digests = [side.server.get(f"{_MODEL}config_digest") for side in (self.baseline, self.here)]
        names = {side.server.get(f"{_MODEL}name") for side in (self.baseline, self.here)}
        if name == "name":
            return None in digests
        # Older baselines hold less of a model: what they hold of it is equal then, and the rest is told.
        held = len(names) == 1 or (None not in digests and digests[0] == digests[1])
        return not (one_sided and held)

    def _argument_blocks(self, name: str, *, one_sided: bool) -> bool:
        argument = _argument(name)
        # Of derived values what they lead to is compared.
        same = None if one_sided else same_effect(name, self.baseline, self.here)
        if same is not None:
            return not same
        if _matches(argument, (*tables.THING_UNDER_TEST, *tables.NOTED_SERVER_ARGS)):
            return False
        if one_sided and self.other_engine_version:
            return False
        if _matches(argument, tables.WORK_ARGS):
            cause = tables.IMPLIED_BY.get(argument)
            return cause is None or self.baseline.server.get(cause) == self.here.server.get(cause)
        # The rest: defaults that a new version changes are part of the version, a backend's own arguments part of it.
        return argument not in self.varied and not self.other_engine_version

    def _file_blocks(self, name: str, *, one_sided: bool) -> bool:
        if name == "model_path" and one_sided:
            # Not recorded by older versions: the model is then known by its config.json.
            return not self._same(f"{_MODEL}config_digest")
        variable = name.removeprefix(_ENV)
        noted = _matches(
            variable, (*tables.NOTED_FILES, *(tables.NOTED_ENV if variable != name else tables.THING_UNDER_TEST))
        )
        return not noted and name not in self.varied

    def _same(self, name: str) -> bool:
        return name in self.baseline.server and _equal(self.baseline.server[name], self.here.server.get(name))

    def _random_weights(self) -> bool:
        """No token means anything to dummy weights: which ones a prompt has is no other work."""
        return all(side.server.get("load_format") == "dummy" for side in (self.baseline, self.here))

    def _same_driver_major(self) -> bool:
        majors = {str(side.hardware.get("driver")).partition(".")[0] for side in (self.baseline, self.here)}
        return len(majors) == 1 and None not in (self.baseline.hardware.get("driver"), self.here.hardware.get("driver"))


def _group_differences(group: str, context: _Context) -> list[Difference]:
    baseline: dict[str, Plain] = getattr(context.baseline, group)
    here: dict[str, Plain] = getattr(context.here, group)
    if VOCABULARY in (*baseline, *here) and baseline and here:
        known: dict[str, Plain] = {VOCABULARY: UNREAD.name}
        baseline, here = known | baseline, known | here
    if not baseline and not here:
        return []
    if not baseline or not here:
        shown = [f"recorded ({len(side)} fields)" if side else UNKNOWN for side in (baseline, here)]
        is_blocking = group in _BLOCKING_GROUPS and not _matches(group, context.noted)
        return [Difference(field=group, baseline=shown[0], here=shown[1], blocking=is_blocking)]
    found = []
    for name in sorted((baseline.keys() | here.keys()) - {VARIED, GIVEN}):
        field = f"{group}.{name}"
        if (
            name in baseline
            and name in here
            and (_equal(baseline[name], here[name]) or _same_variable(field, baseline[name], here[name]))
        ):
            continue
        one_sided = name not in baseline or name not in here
        found.append(
            Difference(
                field=field,
                baseline=_shown(field, baseline, name, one_sided and context.other_engine_version),
                here=_shown(field, here, name, one_sided and context.other_engine_version),
                blocking=context.is_blocking(field, one_sided=one_sided),
            )
        )
    return found


def _same_variable(field: str, first: Plain, second: Plain) -> bool:
    """Older baselines hold the values of variables whose digest is compared today."""
    name = field.removeprefix(f"server.{_ENV}")
    if name == field or not isinstance(first, str) or not isinstance(second, str):
        return False
    digest, value = (first, second) if first.startswith(VARIABLE_DIGEST) else (second, first)
    return digest.startswith(VARIABLE_DIGEST) and digest == digest_of_variable(name, value)


def _equal(first: Plain, second: Plain) -> bool:
    if first is None or second is None:
        return False
    if isinstance(first, bool) or isinstance(second, bool) or isinstance(first, str) or isinstance(second, str):
        return first == second and isinstance(first, bool) == isinstance(second, bool)
    return math.isclose(first, second, rel_tol=1e-9)


def _shown(field: str, side: Mapping[str, Plain], name: str, other_version: bool) -> str:
    if name in side:
        value = side[name]
        return UNKNOWN if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if field.startswith((f"server.{_ENV}", f"server.{_FILE}")):
        return NOT_SET
    if field.startswith("server.") and other_version and not name.startswith(_MODEL):
        return "no such argument in that version"
    return UNKNOWN
