"""A server that is up, and one load run on it with everything that vouches for the run."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pytest_moeperf.asking import Answer
from pytest_moeperf.bench.late_delivery import mean_ms, server_tpot_ms, without_late_delivery
from pytest_moeperf.bench.limits import ceiling_check, ceiling_for
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.place import Code, Place
from pytest_moeperf.bench.simulation import simulation_check
from pytest_moeperf.bench.vitals import ServerSilent, SilenceWatch, Vitals, run_timeout_s
from pytest_moeperf.bench.warmup import measure_until_steady
from pytest_moeperf.bench.watching import Watching
from pytest_moeperf.bench.witness import Witness
from pytest_moeperf.engines.attached import identify
from pytest_moeperf.engines.attached_log import of_another_server
from pytest_moeperf.engines.control import DEFAULT_TIMEOUT_S, Control
from pytest_moeperf.engines.identity import Answers, read_identity
from pytest_moeperf.engines.sglang import BACKEND_FLAG
from pytest_moeperf.engines.sglang_flags import option_of
from pytest_moeperf.errors import LoadError
from pytest_moeperf.evidence import collect
from pytest_moeperf.fingerprint import build_fingerprint, vocabulary_field
from pytest_moeperf.load.driver import LoadProgress, drive
from pytest_moeperf.load.events import SGLANG
from pytest_moeperf.load.prompts import make_prompts, reusable_tokens
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.records import ClientReport, LoadResult
from pytest_moeperf.model.run import Check, Evidence, Fingerprint, Launch, Metrics, Plain, Run
from pytest_moeperf.model.server_info import page_size
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers.host_locks import WITHOUT_BUDGET_S
from pytest_moeperf.servers.measuring import measuring_lock
from pytest_moeperf.telemetry import checks as gpu_checks
from pytest_moeperf.telemetry import parse_prometheus, server_counters
from pytest_moeperf.validity import (
    cache_flushed,
    client_checks,
    counted_between,
    ranks_balanced,
    running_limits,
    server_checks,
    server_ran_as_asked,
    server_readable,
)
from pytest_moeperf.validity.cache import Reuse
from pytest_moeperf.validity.claimed import claimed_tokens_check
from pytest_moeperf.validity.replicas import one_level

FLUSH_TIMEOUT_S = 60.0
LOOK_TIMEOUT_S = 2.0
"""Of one look during a run: its end waits for it."""
SETTLE_S = 2.0
"""For /metrics to hold every request of a run."""


@dataclass(frozen=True, kw_only=True)
class MeasuringRules:
    """What the bench needs to know of the invocation."""

    slo_ms: Mapping[str, Sequence[tuple[str, float]]]
    """Of each cell key, for goodput."""
    min_window_s: float
    strict_evidence: bool
    profile_kernels: bool
    """Profile a few steps of each launch, as evidence of what executed."""
    request_timeout_s: float
    """Longest silence of a server with requests in flight, and longest time of one request."""
    label: str
    """Who measures, for others who wait for the device."""
    wait_until: float | None
    """When the budget is over, on the monotonic clock: nobody waits longer for others. None: there is none."""
    software: Mapping[str, Plain]
    """A site's own facts."""

    @property
    def wait_timeout_s(self) -> float:
        """Longest wait for others who have the devices."""
        return WITHOUT_BUDGET_S if self.wait_until is None else max(0.0, self.wait_until - time.monotonic())


@dataclass(frozen=True, kw_only=True)
class LiveServer:
    """One launch, ready."""

    launch: Launch
    place: Place
    url: str
    api_key: ApiKey | None
    protocol: str
    served_model: str
    read_log: Callable[[], str]
    vitals: Vitals
    same_process: Callable[[], bool | None]
    """None where it can't be known (attached)."""
    server_pid: int | None
    rules: MeasuringRules
    listener: Listener
    kernels: tuple[str, ...] | None = None
    """Of a profile of this launch; None: none was taken."""
    code: Code = Code()
    """What this launch started from."""
    launch_checks: tuple[Check, ...] = ()
    """Of the launch as a whole; they count for each of its runs."""
    _one_token_ms: dict[str, float | None] = field(default_factory=dict)
    """Of each cell that had to be asked: how long answers of one token take."""
    witness: Witness = field(default_factory=Witness)

    def measure(self, cell: Cell, *, runs: int) -> Sequence[Run]:
        """See ``model.bench.Launched``."""

        def run_once(index: int) -> Run:
            run = self._run_once(cell, index)
            self.listener.on_run(run)
            return run

        with measuring_lock(
            self.place.devices,
            label=self.rules.label,
            on_wait=self.listener.on_wait,
            wait_timeout_s=self.rules.wait_timeout_s,
        ):
            return measure_until_steady(run_once, runs=runs)

    @property
    def control(self) -> Control:
        return Control(url=self.url, api_key=self.api_key)

    def flush_cache(self) -> Answer:
        """Ask the server to forget every prefix that it has seen."""
        return self.control.post(f"/flush_cache?timeout={FLUSH_TIMEOUT_S:.0f}", timeout_s=FLUSH_TIMEOUT_S + 5)

    def _counters(self) -> tuple[dict[str, Any], str | None, Answer]:
        metrics_text, info = self._metrics_text(), self.control.server_info()
        return dict(server_counters(metrics_text, models=self._names(info))), metrics_text, info

    def _settled_counters(
        self, before: Mapping[str, Any], result: LoadResult
    ) -> tuple[dict[str, Any], str | None, Answer]:
        """Read again while they have not all requests yet: /metrics can lag behind the last stream."""
        give_up_s = time.monotonic() + SETTLE_S
        while True:
            counters = self._counters()
            counted = counted_between(before, counters[0], "requests")
            if counted is None or counted >= len(result.records) or time.monotonic() > give_up_s:
                return counters
            time.sleep(SETTLE_S / 10)

    def _metrics_text(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> str | None:
        answer = self.control.get_text("/metrics", timeout_s=timeout_s)
        return answer.text if answer.good else None

    def _names(self, info: Answer) -> set[str]:
        """Of the served model, as /metrics may label it."""
        said = info.data or {}
        return {self.served_model, str(said.get("served_model_name")), str(said.get("model_path"))}

    def begin(self) -> None:
        """The server is ready: what it says now is what it has to say after every run."""
        counters, metrics_text, info = self._counters()
        self.witness.begin(self._marks(info, metrics_text), counters)

    def _marks(self, info: Answer, metrics_text: str | None) -> Mapping[str, Plain]:
        if not self._speaks_sglang:
            return identify(self.control).marks
        return read_identity(Answers(server_info=info.data, metrics=metrics_text or "")).marks

    def _same_server(
        self,
        info: Answer,
        metrics_text: str | None,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        result: LoadResult,
    ) -> tuple[Check, ...]:
        watched = self.same_process() is not None
        found = self.witness.checks(self._marks(info, metrics_text), before, after, process_known=watched)
        # Behind an address of one's own there is one server.
        return found if watched else (*found, one_level(result.records))

    @property
    def _speaks_sglang(self) -> bool:
        """So it has SGLang's control endpoints."""
        return self.protocol == SGLANG

    def _run_once(self, cell: Cell, index: int) -> Run:
        run_id = f"{self.launch.id}/{cell.workload.key}/{index}"
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.vitals.trouble:
            return self._run(cell, index, run_id=run_id, result=_nothing(started_at), checks=(self._process_check(),))
        flushed = self.flush_cache()
        prompts = make_prompts(cell.workload, run_key=run_id, vocabulary=self.place.vocabulary)
        before, text_before, answer = self._counters()
        limits = running_limits(answer.data, direct=self.launch.engine != "attached")
        watching = Watching(
            gpus=[gpu.uuid for gpu in self.place.gpus],
            workload=cell.workload,
            limits=limits,
            read_metrics=partial(self._metrics_text, timeout_s=LOOK_TIMEOUT_S),
            models=self._names(answer),
        )
        own_pids = self._own_pids()
        with watching:
            result = self._drive(cell, index, prompts)
        telemetry = watching.telemetry()
        if result is None:
            return self._run(cell, index, run_id=run_id, result=_nothing(started_at), checks=(self._process_check(),))
        after, metrics_text, answer = self._settled_counters(before, result)
        # Other engines have an endpoint of that name too.
        info: dict[str, Any] | None = answer.data if self._speaks_sglang else None
        if self.vitals.look(doing=_doing(cell)):
            # What else failed is its consequence.
            return self._run(cell, index, run_id=run_id, result=result, checks=(self._process_check(),), info=info)
        metrics = without_late_delivery(
            self._metrics(cell, result),
            cell.workload,
            server_ms=server_tpot_ms(
                *(None if text is None else parse_prometheus(text) for text in (text_before, metrics_text)),
                requests=len(result.records),
                output_len=cell.workload.output_len,
            ),
            first_token_ms=lambda short: self._first_token_ms(replace(cell, workload=short)),
        )
        evidence = self._evidence(info, metrics_text)
        ceiling = ceiling_for(self.place, info, cell.workload)
        counters = server_checks(before, after, result, cell.workload)
        counted = any(check.name == "server_generated_tokens_agree" and check.status != "unknown" for check in counters)
        checks = (
            *client_checks(
                result,
                metrics,
                cell.workload,
                reuse=_reuse(prompts, info),
                repeats_answers=(info or {}).get("incremental_streaming_output") is False,
                min_window_s=self.rules.min_window_s,
            ),
            server_readable(answer, needed=self._speaks_sglang),
            cache_flushed(flushed, answer, result, cell.workload, needed=self._speaks_sglang),
            server_ran_as_asked(result.records, cell.workload, limits, watching.queue),
            *([balanced] if (balanced := ranks_balanced(watching.queue)) else ()),
            *counters,
            claimed_tokens_check(result.records, counted=counted, info=info),
            *self._same_server(answer, metrics_text, before, after, result),
            self._process_check(),
            *self.launch_checks,
            *self._stated_log_check(info),
            *evidence_checks(evidence, strict=self.rules.strict_evidence),
            *(gpu_checks(telemetry, own_pids | self._own_pids()) if self.place.gpus else ()),
            *simulation_check(info, metrics.duration_s),
            ceiling_check(metrics.out_tps_steady or metrics.out_tps, ceiling),
        )
        return replace(
            self._run(
                cell,
                index,
                run_id=run_id,
                result=result,
                checks=checks,
                metrics=metrics,
                info=info,
                evidence=evidence,
            ),
            telemetry=telemetry,
            ceiling_tok_s=ceiling.tok_s,
        )

    def _drive(self, cell: Cell, index: int, prompts: Sequence[array[int]]) -> LoadResult | None:
        """None: the server died or went silent, which is noted.

        :raises LoadError: the load could not be driven, and not because the server died.
        """
        watch = SilenceWatch(limit_s=self.rules.request_timeout_s)

        def on_progress(progress: LoadProgress) -> None:
            watch(progress)
            self.listener.on_progress(cell, index, progress)

        try:
            return drive(
                url=self.url,
                workload=cell.workload,
                prompts=prompts,
                protocol=self.protocol,
                api_key=self.api_key,
                model=self.served_model,
                timeout_s=run_timeout_s(cell.workload, request_timeout_s=self.rules.request_timeout_s),
                on_progress=on_progress,
            )
        except ServerSilent as silence:
            self.vitals.note_silence(silence, doing=_doing(cell))
        except LoadError:
            if not self.vitals.look(doing=_doing(cell)):
                raise
        return None

    def _first_token_ms(self, cell: Cell) -> float | None:
        if cell.key not in self._one_token_ms:
            run_key = f"{self.launch.id}/{cell.workload.key}"
            prompts = make_prompts(cell.workload, run_key=run_key, vocabulary=self.place.vocabulary)
            self._one_token_ms[cell.key] = mean_ms(self._drive(cell, 0, prompts))
        return self._one_token_ms[cell.key]

    def _metrics(self, cell: Cell, result: LoadResult) -> Metrics:
        return compute_metrics(result, cell.workload, slo=self.rules.slo_ms.get(cell.key, ()))

    def _run(
        self,
        cell: Cell,
        index: int,
        *,
        run_id: str,
        result: LoadResult,
        checks: tuple[Check, ...],
        metrics: Metrics | None = None,
        info: dict[str, Any] | None = None,
        evidence: Evidence | None = None,
    ) -> Run:
        return Run(
            id=run_id,
            cell=cell,
            launch=self.launch,
            index=index,
            started_at=result.started_at,
            metrics=metrics or self._metrics(cell, result),
            client=result.client,
            checks=checks,
            evidence=evidence or self._evidence(info, None),
            fingerprint=self._fingerprint(cell.workload, info),
        )

    def _own_pids(self) -> set[int]:
        """Every process of the server's tree."""
        import psutil

        if self.server_pid is None or not self.place.gpus:
            return set()
        try:
            root = psutil.Process(self.server_pid)
            return {root.pid, *(child.pid for child in root.children(recursive=True))}
        except psutil.NoSuchProcess:
            return set()

    def _process_check(self) -> Check:
        if self.vitals.trouble:
            return Check(name="same_server", status="fail", message=self.vitals.trouble)
        same = self.same_process()
        if same is None:
            return Check(name="same_server", status="unknown", message="an attached server's process can't be seen")
        if same:
            return Check(name="same_server", status="pass")
        return Check(name="same_server", status="fail", message="the server's process ended or changed during the run")

    def _stated_log_check(self, info: dict[str, Any] | None) -> tuple[Check, ...]:
        path = self.place.spec.stated.log
        return of_another_server(path, self.read_log(), info) if path else ()

    def _evidence(self, info: dict[str, Any] | None, metrics_text: str | None) -> Evidence:
        spec = self.place.spec
        return collect(
            engine=spec.engine,
            engine_version=str(info.get("version")) if info else None,
            requested=option_of(spec.args, BACKEND_FLAG) or self._named_backend,
            # Where an attached server runs, only it can say.
            device="" if spec.engine == "attached" else self.place.device,
            log_text=self.read_log(),
            server_info=info,
            metrics_text=metrics_text,
            kernels=self.kernels,
            draft_has_experts=self.place.draft_has_experts,
        )

    @property
    def _named_backend(self) -> str:
        """An attached server's name for want of one asks for nothing."""
        backend = self.launch.backend
        return "" if self.place.served is not None and backend == self.launch.engine else backend

    def _fingerprint(self, workload: Workload, info: dict[str, Any] | None) -> Fingerprint:
        spec, place = self.place.spec, self.place
        return build_fingerprint(
            workload=workload.as_fields() | vocabulary_field(self.place.vocabulary),
            server_info=info,
            env=place.env,
            software={
                "engine_version": info.get("version") if info else None,
                **place.software,
                **self.code.source,
                **self.rules.software,
            },
            hardware=place.facts.hardware,
            # Power, cooling and the host's memory are shared by what is measured side by side.
            environment=place.facts.environment | ({"device_sets": place.device_sets} if place.device_sets > 1 else {}),
            backend_flags=spec.own_args,
            model=place.model,
            args=None if spec.engine == "attached" else spec.args,
            # The simulated engine says itself what its profile holds.
            files=self.code.files if spec.engine != "simulated" else None,
            arguments=place.arguments,
        )


def _reuse(prompts: Sequence[array[int]], info: Mapping[str, Any] | None) -> Reuse:
    known = page_size(info or {})
    return Reuse(most_tokens=reusable_tokens(prompts, page_size=known or 1), page_size=known)


def _doing(cell: Cell) -> str:
    return f"while measuring {cell.workload.label}"


def _nothing(started_at: str) -> LoadResult:
    """Of a run whose records went with its server."""
    now_ns = time.monotonic_ns()
    return LoadResult(
        records=(), client=ClientReport(clock="user", workers=0), start_ns=now_ns, end_ns=now_ns, started_at=started_at
    )


def evidence_checks(evidence: Evidence, *, strict: bool) -> tuple[Check, ...]:
    """``contradicted`` is INVALID; ``unknown`` only if the user wants it so."""
    if evidence.status == "contradicted":
        lines = "; ".join(f"{item.source}: {item.text}" for item in evidence.items if item.says == "contradicted")
        ran = f"{evidence.runner} ran" if evidence.runner else "another runner ran"
        message = f"{evidence.requested} was asked for, {ran} ({lines})"
        return (Check(name="backend_evidence", status="fail", message=message),)
    if evidence.status == "unknown":
        looked = "; ".join(evidence.looked_for) or "nothing"
        message = f"nothing shows which runner executed; looked for: {looked}"
        return (Check(name="backend_evidence", status="fail" if strict else "unknown", message=message),)
    return (Check(name="backend_evidence", status="pass"),)
