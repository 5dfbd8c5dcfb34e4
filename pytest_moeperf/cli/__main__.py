"""``python -m pytest_moeperf.cli`` is ``moeperf``, for an interpreter whose scripts are not on the path."""

from __future__ import annotations

import sys

from pytest_moeperf.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
