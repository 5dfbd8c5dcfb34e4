"""All sources of settings into one frozen value: default < file < environment < command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import GateSettings, ServerSettings, Settings
from pytest_moeperf.options.declared import OPTIONS, Option
from pytest_moeperf.options.values import as_arguments, as_duration, as_environment, as_text

_SERVER_KEYS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "python": ("python", as_text),
    "args": ("args", as_arguments),
    "env": ("env", as_environment),
    "start_timeout": ("start_timeout_s", as_duration),
}


@dataclass(frozen=True, kw_only=True)
class Given:
    """Where values come from, most general first."""

    file: Path | None
    table: Mapping[str, Any]
    environ: Mapping[str, str]
    namespace: Mapping[str, Any]
    """Parsed command line: option dest -> value, None where not given."""


def resolve(given: Given, *, root: Path, active: bool) -> Settings:
    """All sources into one frozen value.

    :raises UsageProblem: names the source, the value and what is allowed.
    """
    table = dict(given.table)
    where = f"{given.file} [tool.moeperf]" if given.file else "[tool.moeperf]"
    reference_table = table.pop("reference") if isinstance(table.get("reference"), dict) else None
    if reference_table is not None and "backend" in reference_table:
        reference_table = dict(reference_table)
        table["reference"] = reference_table.pop("backend")
    if isinstance(attach := table.get("attach"), dict):
        table |= {f"attach.{key}": value for key, value in table.pop("attach").items()}
        if "url" in attach:
            table["attach"] = table.pop("attach.url")
    server_table = _subtable(table, "server", where)
    backend_tables = _subtable(table, "backends", where) if isinstance(table.get("backends"), dict) else {}
    _refuse_unknown(table, {option.key for option in OPTIONS if option.key} | {"server"}, where)
    values: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    for option in OPTIONS:
        values[option.target], provenance[option.target] = _value(option, given, table, where)
    _attach_where_said_last(values, provenance)
    server = _server(server_table, ServerSettings(), f"{where[:-1]}.server]")
    backend_servers = {
        name: _own(_server(entry, server, f"{where[:-1]}.backends.{name}]"), server)
        for name, entry in backend_tables.items()
    }
    reference_servers = {}
    if reference_table:
        reference_where = f"{where[:-1]}.reference]"
        _server(reference_table, server, reference_where)  # refused also where no backend is named yet
        for name in values["backends"]:
            base = backend_servers.get(values["reference"] or name, server)
            reference_servers[name] = _own(_server(reference_table, base, reference_where), server)
    gate_names = {field.name for field in fields(GateSettings)}
    gate = GateSettings(**{name: values.pop(f"gate.{name}") for name in gate_names if f"gate.{name}" in values})
    settings = Settings(
        active=active,
        server=server,
        backend_servers=backend_servers,
        reference_servers=reference_servers,
        gate=gate,
        root=str(root),
        config_file=str(given.file or ""),
        provenance=provenance,
        **values,
    )
    refuse_contradictions(settings)
    return settings


def _value(option: Option, given: Given, table: Mapping[str, Any], where: str) -> tuple[Any, str]:
    from_flag = given.namespace.get(option.dest)
    if from_flag is not None:
        return (tuple(dict.fromkeys(from_flag)) if option.repeatable else from_flag), "command line"
    if given.environ.get(option.env):  # empty is how a CI job spells "not set"
        return _parsed(option, given.environ[option.env], option.env), f"environment {option.env}"
    if option.key and option.key in table:
        return _parsed(option, table[option.key], f"{where} {option.key}"), f"file {given.file}"
    return default_of(option), "default"


def _attach_where_said_last(values: dict[str, Any], provenance: dict[str, str]) -> None:
    """A server that is attached on the command line beats an engine in the file, and the other way round."""
    attach, engine = provenance["attach_url"], provenance["engine"]
    if values["attach_url"] and values["engine"] != "attached" and _rank(attach) > _rank(engine):
        values["engine"], provenance["engine"] = "attached", attach
    elif values["attach_url"] and values["engine"] != "attached" and _rank(engine) > _rank(attach):
        values["attach_url"] = ""
    if values["engine"] == "attached" and not values["backends"]:
        values["backends"], provenance["backends"] = ("attached",), provenance["engine"]
        # Of servers that the file would launch: nothing of this one's is kept under that name.
        if _rank(provenance["reference"]) < _rank(attach):
            values["reference"] = ""


def _rank(source: str) -> int:
    return ("default", "file", "environment", "command").index(source.partition(" ")[0])


def default_of(option: Option) -> Any:
    """As the field of ``Settings`` or ``GateSettings`` declares it."""
    group, _, name = option.target.rpartition(".")
    return getattr(GateSettings() if group else Settings(), name)


def _parsed(option: Option, value: object, where: str) -> Any:
    try:
        return option.parse(value)
    except ValueError as error:
        raise UsageProblem(where=where, problem=str(error), next_step="mend the value; nothing was started") from None


def _subtable(table: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    value = table.pop(name, {})
    if not isinstance(value, dict):
        raise UsageProblem(
            where=f"{where} {name}", problem=f"{value!r} is not a table", allowed=f"[tool.moeperf.{name}]"
        )
    return value


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageProblem(where=where, problem=f"unknown key {key!r}", allowed=", ".join(sorted(known)))


def _server(table: object, base: ServerSettings, where: str) -> ServerSettings:
    if not isinstance(table, dict):
        raise UsageProblem(where=where, problem=f"{table!r} is not a table", allowed=", ".join(_SERVER_KEYS))
    _refuse_unknown(table, set(_SERVER_KEYS), where)
    values: dict[str, Any] = {}
    for key, (field, parse) in _SERVER_KEYS.items():
        own = getattr(base, field)
        if key in table:
            try:
                given = parse(table[key])
            except ValueError as error:
                raise UsageProblem(where=f"{where} {key}", problem=str(error)) from None
            own = own + given if key == "args" else own | given if key == "env" else given
        values[field] = own
    return ServerSettings(**values)


def _own(merged: ServerSettings, shared: ServerSettings) -> ServerSettings:
    """What a table adds to the one of every backend is its own."""
    return replace(merged, own_args=merged.args[len(shared.args) :])


def _refuse_impossible_nodes(settings: Settings) -> None:
    nnodes, further = settings.nnodes, settings.nnodes - 1
    if settings.engine == "sglang" and settings.tensor_parallel % nnodes:
        raise UsageProblem(
            where="[tool.moeperf] nnodes",
            problem=f"tensor_parallel = {settings.tensor_parallel} can't be split over {nnodes} nodes",
            allowed="a tensor_parallel that is a multiple of nnodes: it counts the GPUs of all nodes",
        )
    needs_hosts = settings.launcher == "ssh" and nnodes > 1
    if (needs_hosts or settings.hosts) and len(settings.hosts) != further:
        raise UsageProblem(
            where="[tool.moeperf] hosts",
            problem=f"{len(settings.hosts)} hosts for {nnodes} nodes",
            allowed=f"{further}, one for each further node: node 0 is this machine",
        )


def _refuse_an_assumed_engine(settings: Settings) -> None:
    """A model, an interpreter or several GPUs are some real server's: the simulated one is not assumed for them."""
    pointers = {
        "model": settings.model,
        "tensor_parallel": settings.tensor_parallel if settings.tensor_parallel > 1 else "",
        "nnodes": settings.nnodes if settings.nnodes > 1 else "",
        "[server] python": settings.server.python,
    }
    said = [f"{name} = {value!r}" for name, value in pointers.items() if value]
    if settings.active and settings.engine_is_assumed and said:
        raise UsageProblem(
            where="[tool.moeperf] engine",
            problem=f"{', '.join(said)} is set, but no engine: the simulated one would be measured",
            allowed='engine = "sglang", or engine = "simulated" if that is what is meant',
            next_step=f"add that line to {settings.config_file or 'a moeperf.toml beside the tests'}",
        )


def refuse_contradictions(settings: Settings) -> None:
    """:raises UsageProblem: two of the settings can't both be meant."""
    attached = settings.engine == "attached"
    if settings.attach_url and not attached:
        raise UsageProblem(
            where=f"--perf-attach and --perf-engine ({settings.provenance['attach_url']})",
            problem=f"a running server is attached, but the engine is {settings.engine!r}",
            allowed="one of the two: an attached server says itself what engine it is",
        )
    if attached and not settings.attach_url:
        raise UsageProblem(
            where="--perf-engine",
            problem="'attached' needs to know the server",
            next_step="add --perf-attach=http://HOST:PORT",
        )
    _refuse_an_assumed_engine(settings)
    _refuse_impossible_nodes(settings)
    if not settings.active:
        for act, flag in ((settings.update_baselines, "--update-baselines"), (settings.plan_only, "--perf-plan")):
            if act:
                raise UsageProblem(
                    where=flag,
                    problem="performance tests are not selected, so it would do nothing",
                    next_step="add -m perf or --backend=NAME",
                )
    if settings.gate.proven >= settings.gate.regression:
        raise UsageProblem(
            where="[tool.moeperf] proven",
            problem=f"d0 = {settings.gate.proven:.3g} is not below regression = {settings.gate.regression:.3g}",
            allowed="proven < regression: a change between the two may be called either way",
        )
    if settings.reason and not (settings.update_baselines or settings.gate.verify_wins):
        raise UsageProblem(
            where="--perf-reason",
            problem="there is nothing to explain",
            next_step="use it with --update-baselines or --perf-verify-wins",
        )
