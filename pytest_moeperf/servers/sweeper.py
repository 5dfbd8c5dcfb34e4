"""The guardian's own parent: when the guardian is killed, it ends what that one guarded.

It is a subreaper, so whatever a killed guardian leaves becomes its child, also a process in a session of its own with
an environment of its own. It does nothing else and talks to nobody. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from pytest_moeperf.servers import cgroups, proctree
from pytest_moeperf.servers.launch_folder import iso_now, remove_all_but_logs

_KILL_S = 30.0


def sweep_after(guardian_pid: int, folder: Path, inherited: Iterable[int]) -> None:
    """Returns once the guardian and all that it left are gone.

    :param folder: of the launch; says no more that it lives when this returns.
    :param inherited: open files that are the guardian's alone.
    """
    # A signal to the guardian's group must not take both.
    os.setsid()
    for descriptor in inherited:
        os.close(descriptor)
    while os.waitpid(-1, 0)[0] != guardian_pid:
        pass
    find = partial(proctree.descendants, os.getpid())
    if left := find():
        _tell(f"the guardian was killed; ending the {len(left)} processes that it left")
        left = proctree.end_all(find, term_s=0.0, kill_s=_KILL_S, reap=_reap, tell=_tell)
    if not left:
        cgroups.remove(cgroups.of(folder.name))
        remove_all_but_logs(folder)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _tell(text: str) -> None:
    try:
        sys.stderr.write(f"{iso_now()} {text}\n")
        sys.stderr.flush()
    except OSError:
        return
