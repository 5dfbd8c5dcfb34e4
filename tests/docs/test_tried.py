"""The table of what was tried is true: as many cases as it says, all of which must hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| .* \| (\d+) \| (\d+) \| `(tests/\S+\.py)` \|$", re.MULTILINE)


def test_the_table_counts_what_is_there() -> None:
    told = {file: (int(tried), int(held)) for tried, held, file in ROW.findall((ROOT / "CONTRIBUTING.md").read_text())}
    assert told
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only", "-p", "no:cacheprovider", *told]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = dict(re.findall(r"^(tests/\S+\.py): (\d+)$", listed, re.MULTILINE))
    # A case that does not hold fails where it is tried.
    assert told == {file: (int(number), int(number)) for file, number in there.items()}
