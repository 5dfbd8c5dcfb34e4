"""``moeperf`` on the command line, over the same functions as the pytest plugin. One file a command.

Exit codes of every command: 0 done, 1 the answer is no (not accepted, below the target), 2 it could not be done.
"""

from __future__ import annotations

from pytest_moeperf.cli.program import main

__all__ = ["main"]
