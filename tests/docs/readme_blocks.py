"""Prints the README's Nth fenced bash block under "Quick start", so that what people copy is what CI runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def quick_start_blocks(text: str) -> list[str]:
    section = text.split("## Quick start", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```bash\n(.*?)```", section, flags=re.DOTALL)


if __name__ == "__main__":
    sys.stdout.write(quick_start_blocks(README.read_text(encoding="utf-8"))[int(sys.argv[1])])
