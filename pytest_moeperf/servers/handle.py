"""A leased server, as its user sees it."""

from __future__ import annotations

from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers import proctree
from pytest_moeperf.servers.link import GuardianLink
from pytest_moeperf.servers.logfile import TAIL_LINES, ServerLog
from pytest_moeperf.servers.proof import process_of
from pytest_moeperf.servers.readiness import Health, ask_health, exited_error
from pytest_moeperf.servers.wire import LineClosedError


class Server:
    """One ready server. Valid as long as its lease."""

    def __init__(self, link: GuardianLink, *, api_key: ApiKey | None, started_here: bool) -> None:
        self._link = link
        self._log = ServerLog(link.record.log_path)
        self.api_key = api_key
        """Of the server that runs, which may be another than that of the plan: the first lease chose it."""
        self.started_here = started_here
        """Whether this lease launched it; False where it was shared."""

    def __repr__(self) -> str:
        return f"<Server {self.name} at {self.url}, pid {self.pid}, launch {self.launch_id}>"

    @property
    def record(self) -> ServerRecord:
        """All that is known of it."""
        return self._link.record

    @property
    def name(self) -> str:
        """For people."""
        return self.record.name

    @property
    def launch_id(self) -> str:
        """One launch, one id, however many share it."""
        return self.record.launch_id

    @property
    def url(self) -> str:
        """``http://127.0.0.1:31234``, no slash at the end."""
        return self.record.url

    @property
    def host(self) -> str:
        """Its address."""
        return self.record.host

    @property
    def port(self) -> int:
        """Its port."""
        return self.record.port

    @property
    def pid(self) -> int:
        """Its root process."""
        return self.record.pid

    @property
    def log_path(self) -> str:
        """The raw log, 0600. What the methods below return has the api key blanked."""
        return self.record.log_path

    @property
    def start_s(self) -> float:
        """Seconds from launch to ready."""
        return self.record.start_s or 0.0

    def is_alive(self) -> bool:
        """Whether its root process lives."""
        return proctree.is_alive(process_of(self.record))

    def same_process(self) -> bool:
        """Whether pid and start time are still those of the launch: nobody restarted it behind the same port."""
        return self.is_alive()

    def exit_status(self) -> int | None:
        """None while it lives, or where nobody saw it end; minus the signal's number where a signal ended it."""
        try:
            return self._link.exit_code()
        except LineClosedError:
            return None

    def log_tail(self, lines: int = TAIL_LINES) -> tuple[str, ...]:
        """Its last lines."""
        return self._log.tail(lines)

    def log_text(self) -> str:
        """The whole log."""
        return self._log.text()

    def ask_health(self, *, timeout_s: float = 2.0) -> Health:
        """One health question. Not while measuring: it is work for the server."""
        return ask_health(self.host, self.port, self.record.health_path, api_key=self.api_key, timeout_s=timeout_s)

    def check(self, *, doing: str) -> None:
        """Raise if it is dead.

        :param doing: what was going on, for the message: ``while measuring c=64 512/128``.
        :raises ServerExited: with exit code, log tail and hint.
        """
        if not self.is_alive():
            raise exited_error(self.name, self.exit_status(), self._log, when=doing)
