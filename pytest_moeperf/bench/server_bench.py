"""Launches the servers of one candidate backend and of what it is held against."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pytest_moeperf.baselines.store import BaselineStore
from pytest_moeperf.bench.agreement import Answers, compare_answers
from pytest_moeperf.bench.kernels import executed_kernels
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.live import LiveServer, MeasuringRules
from pytest_moeperf.bench.nodes import over_nodes
from pytest_moeperf.bench.place import Place, attached_place, place_of
from pytest_moeperf.bench.sanity import greedy_answers
from pytest_moeperf.bench.vitals import Vitals
from pytest_moeperf.bench.warmup import WARM_UP_RUNS
from pytest_moeperf.engines.attached import attach
from pytest_moeperf.engines.attached_log import read_stated_log
from pytest_moeperf.engines.catalog import engine_named
from pytest_moeperf.engines.control import Control
from pytest_moeperf.evidence import unread_version
from pytest_moeperf.fingerprint import build_fingerprint, differences, known_differences
from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bench import Launched
from pytest_moeperf.model.nodes import Node
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Check, Launch, Run
from pytest_moeperf.model.server import LaunchPlan, NodeCommand, ServerProgress
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers.handle import Server
from pytest_moeperf.servers.lease import lease
from pytest_moeperf.servers.registry import list_servers

ASSUMED_LAUNCH_S = {"simulated": 2.0, "sglang": 180.0, "attached": 0.0}
"""Before anything was launched here: a 60 to 180 s start was measured for a small MoE on an H200."""
ASSUMED_RUN_S = 10.0


class ServerBench:
    """``model.bench.Bench`` over real processes.

    The first launch of the candidate is kept between calls (a shared lease), so that cells planned later and the
    user's own requests are served by it; a fresh launch ends it first, since both may not fit the devices.
    """

    def __init__(
        self,
        *,
        candidate: ServerSpec,
        reference: ServerSpec | None,
        reference_backend: str,
        session: str,
        keep_server_s: float,
        store: BaselineStore,
        rules: MeasuringRules,
        listener: Listener,
        node_command: Callable[[ServerSpec, Node], NodeCommand],
        turn: int | None = None,
    ) -> None:
        self._specs: dict[str, ServerSpec] = {CANDIDATE: candidate}
        if reference is not None:
            self._specs[REFERENCE] = reference
        self._engine = engine_named(candidate.engine)
        self._reference_backend = reference_backend
        self._session = session
        self._keep_server_s = keep_server_s
        self._store = store
        self._rules = rules
        self._listener = listener
        self._node_command = node_command
        self._turn = turn
        self._count = 0
        self._held = ExitStack()
        self._live: LiveServer | None = None
        self._reference_answers: Answers | None = None
        self._places: dict[str, Place] = {}
        self._launches_took_s: list[float] = []

    @property
    def can_launch_reference(self) -> bool:
        return REFERENCE in self._specs

    @property
    def can_relaunch(self) -> bool:
        return self._engine.name != "attached"

    def place(self, arm: str = CANDIDATE) -> Place:
        """Of a launched server its machine; an attached one is asked.

        :raises ServerError: it does not answer.
        """
        if arm not in self._places:
            spec = self._specs[arm]
            attached = spec.engine == "attached"
            self._places[arm] = _attached_place(spec) if attached else place_of(spec, turn=self._turn)
        return self._places[arm]

    def running(self, arm: str) -> str:
        """See ``model.bench.Bench``."""
        spec = self._specs[arm]
        if spec.engine == "attached":
            return f"the server at {spec.attach_url}"
        digest = self.place(arm).read_code().digest(spec.digest)
        found = (
            server.pid
            for server in list_servers()
            if server.spec_digest == digest and not server.exclusive and server.state in ("ready", "warm")
        )
        pid = next(found, None)
        return f"warm server, pid {pid}" if pid is not None else ""

    @contextmanager
    def launch(self, arm: str, *, fresh: bool) -> Iterator[Launched]:
        """See ``model.bench.Bench``."""
        if arm == CANDIDATE and not fresh:
            yield self.live()
            return
        self.close()
        with ExitStack() as stack:
            live = self._start(arm, stack, fresh=True)
            yield replace(live, launch_checks=(self._sanity(arm, live),)) if self.can_launch_reference else live

    def _sanity(self, arm: str, live: LiveServer) -> Check:
        """A launch's greedy output against that of the last reference launch."""
        answers = greedy_answers(
            url=live.url,
            protocol=live.protocol,
            api_key=live.api_key,
            model=live.served_model,
            forget=live.flush_cache,
        )
        if arm == REFERENCE:
            before, self._reference_answers = self._reference_answers or answers, answers
            return compare_answers(before, answers)
        return compare_answers(self._reference_answers, answers)

    def live(self) -> LiveServer:
        """The candidate's shared server, started if it isn't up.

        :raises ServerError: it does not come up.
        """
        if self._live is None or self._live.vitals.trouble or self._live.same_process() is False:
            self.close()
            self._live = self._start(CANDIDATE, self._held, fresh=False)
        return self._live

    def close(self) -> None:
        """Give the shared server back."""
        self._live = None
        self._held.close()

    def command_text(self, arm: str) -> str:
        """As it would be launched, for a plan."""
        spec = self._specs[arm]
        if spec.engine == "attached":
            return f"attached: {spec.attach_url}"
        plan = self._plan(spec, self.place(arm), "plan")
        commands = [plan.command, *(node.command for node in plan.followers)]
        return "\n             ".join(shlex.join(command) for command in commands)

    def _plan(self, spec: ServerSpec, place: Place, launch: str) -> LaunchPlan:
        plan = self._engine.launch_plan(spec, devices=place.devices, session=self._session, launch=launch)
        uuids = [gpu.uuid for gpu in place.gpus]
        if place.chosen:
            plan = replace(plan, env={**plan.env, "CUDA_VISIBLE_DEVICES": ",".join(uuids)})
        return over_nodes(plan, spec, gpus=uuids, launcher=partial(self._node_command, spec))

    def _start(self, arm: str, stack: ExitStack, *, fresh: bool) -> LiveServer:
        live = self._answering(arm, stack, fresh=fresh)
        live.begin()
        self._listener.on_ready(self._specs[arm], live.launch, live.url, live.api_key)
        return live

    def _answering(self, arm: str, stack: ExitStack, *, fresh: bool) -> LiveServer:
        spec = self._specs[arm]
        if spec.engine == "attached":
            # It may be another one than was asked before.
            self._places.pop(arm, None)
        place = self.place(arm)
        self._count += 1
        name = f"{self._session}-{os.getpid()}-{self._count}"
        launch = Launch(
            id=name,
            session=self._session,
            arm=arm,
            engine=spec.engine,
            backend=spec.backend,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if spec.engine == "attached":
            return self._attach(spec, launch, place)
        plan = self._plan(spec, place, name)
        code = place.read_code()
        plan = replace(plan, spec_digest=code.digest(plan.spec_digest))
        server = stack.enter_context(
            lease(
                plan,
                label=self._rules.label,
                session=self._session,
                fresh=fresh,
                keep_s=0.0 if fresh else self._keep_server_s,
                on_progress=lambda progress: self._listener.on_start(spec, progress),
                on_wait=self._listener.on_wait,
                wait_timeout_s=self._rules.wait_timeout_s,
            )
        )
        if server.started_here:
            self._launches_took_s.append(server.start_s)
        launch = replace(
            launch,
            id=server.launch_id,
            command=plan.command,
            start_s=server.start_s if server.started_here else None,
            log_path=server.log_path,
            reused=not server.started_here,
        )
        return LiveServer(
            launch=launch,
            place=place,
            rules=self._rules,
            listener=self._listener,
            kernels=self._kernels(server, spec),
            code=code,
            url=server.url,
            api_key=server.api_key,
            protocol=self._engine.protocol,
            served_model=spec.model,
            read_log=server.log_text,
            vitals=Vitals(server, name=server.name),
            same_process=server.same_process,
            server_pid=server.pid,
        )

    def _kernels(self, server: Server, spec: ServerSpec) -> tuple[str, ...] | None:
        if not self._rules.profile_kernels:
            return None
        control = Control(url=server.url, api_key=server.api_key)
        timeout_s = self._rules.request_timeout_s
        return executed_kernels(control, protocol=self._engine.protocol, model=spec.model, timeout_s=timeout_s)

    def _attach(self, spec: ServerSpec, launch: Launch, place: Place) -> LiveServer:
        served = place.served
        assert served is not None  # noqa: S101  # an attached place has it
        hardware = spec.stated.hardware or 'hardware unknown, so equal to nothing: [attach] hardware = "..." states it'
        said = "" if served.engine == "simulated" else f"; {hardware}"
        if unread := unread_version(served.engine or "", served.version):
            said += f"; {unread}"
        self._listener.on_start(
            spec, ServerProgress(elapsed_s=0.0, phase=f"attached to {served.text}{said}", detail="")
        )
        return LiveServer(
            launch=replace(launch, reused=True),
            place=place,
            rules=self._rules,
            listener=self._listener,
            url=spec.attach_url,
            api_key=_api_key(),
            protocol=served.protocol,
            served_model=served.served[0] if served.served else served.model or "",
            read_log=partial(read_stated_log, spec.stated.log),
            vitals=Vitals(None, name=spec.attach_url),
            same_process=lambda: None,
            server_pid=None,
        )

    def baseline_for(self, run: Run) -> BaselineMatch:
        """Of the reference's backend where one is named, else of the run's own."""
        return self._match(replace(run.cell, backend=self._reference_backend or run.cell.backend), run)

    def own_baseline_for(self, run: Run) -> BaselineMatch:
        """What an update of this run's own baseline would replace."""
        return self._match(run.cell, run)

    def foreseen(self, cell: Cell) -> BaselineMatch:
        """What the store has to hold this cell against, compared by what is known before a launch: the workload, and
        the machine where it is not a simulated one."""
        here = build_fingerprint(
            workload=cell.workload.as_fields(),
            server_info=None,
            env={},
            software={},
            hardware={} if self._engine.name == "simulated" else self.place().facts.hardware,
            environment={},
        )
        return self._store.match(
            engine=self._engine.name,
            model=self.place().model_name,
            cell=replace(cell, backend=self._reference_backend or cell.backend),
            fingerprint=here,
            compare=known_differences,
        )

    def _match(self, cell: Cell, run: Run) -> BaselineMatch:
        return self._store.match(
            engine=self._engine.name,
            model=self.place().model_name,
            cell=cell,
            fingerprint=run.fingerprint,
            compare=differences,
        )

    def expected_launch_s(self, arm: str) -> float:
        """As long as stored launches of this backend took, else what was launched here, else an assumption."""
        spec = self._specs.get(arm, self._specs[CANDIDATE])
        times = [
            run.start_s
            for entry in self._store.all()
            if entry.baseline.engine == spec.engine and entry.baseline.cell.backend == spec.backend
            for run in entry.baseline.runs
            if run.start_s is not None
        ]
        times = times or self._launches_took_s
        return _median(times) if times else ASSUMED_LAUNCH_S[spec.engine]

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        return self._expected_run_s(cell) * (runs + WARM_UP_RUNS)

    def _expected_run_s(self, cell: Cell) -> float:
        """As long as stored runs of this shape took; without their times, what their throughput makes of the work."""
        entries = self._store.find(engine=self._engine.name, model=self.place().model_name, cell=cell)
        runs = [run for entry in entries for run in entry.baseline.runs]
        times = [run.run_s for run in runs if run.run_s is not None]
        if times:
            return _median(times)
        rates = [run.values["throughput"] for run in runs if run.values.get("throughput")]
        workload = cell.workload
        return workload.num_prompts * workload.output_len / _median(rates) if rates else ASSUMED_RUN_S


def _attached_place(spec: ServerSpec) -> Place:
    return attached_place(spec, attach(spec, api_key=_api_key()))


def _api_key() -> ApiKey | None:
    value = os.environ.get("MOEPERF_API_KEY")
    return None if value is None else ApiKey(value)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
