"""The guardian's own program, run by path under ``python -S -P``: no site-packages, no start-up hooks, so it starts in
tens of milliseconds whatever else is installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from pytest_moeperf.servers.guardian import main

main()
