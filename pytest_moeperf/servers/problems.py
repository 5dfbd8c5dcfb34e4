"""What can go wrong with a server, told apart for those who have to act on it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_moeperf.errors import ServerError


@dataclass(eq=False, repr=False)
class ServerExited(ServerError):
    """Its process ended by itself."""

    exit_code: int | None = None
    """As the shell's, or minus the signal's number; None where nobody saw it."""
    port_taken: bool = False
    """Its log says that the port was in use: another port may do."""


@dataclass(eq=False, repr=False)
class ServerNotReady(ServerError):
    """It lives, and did not answer as it should within its time."""


@dataclass(eq=False, repr=False)
class DevicesBusy(ServerError):
    """A server of another spec has the wanted devices."""

    launch_id: str = ""


@dataclass(eq=False, repr=False)
class RuntimeFolderError(ServerError):
    """The folder for records, logs and locks can't be trusted or made."""
