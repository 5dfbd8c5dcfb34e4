"""``MOEPERF_*`` variables that set nothing: a mistyped one must not look as if it had done something."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_moeperf.options.declared import ENV_PREFIX, OPTIONS

NO_OPTIONS = ("MOEPERF_API_KEY", "MOEPERF_GUARDIAN", "MOEPERF_LAUNCH_ID", "MOEPERF_LOCK_DIR", "MOEPERF_RUNTIME_DIR")
"""The plugin's other variables."""


def told_unknown(names: Iterable[str]) -> list[str]:
    """A line for each variable with our prefix that nothing here reads, with the name that may have been meant."""
    known = {option.env for option in OPTIONS} | {*NO_OPTIONS}
    unknown = sorted(name for name in names if name.startswith(ENV_PREFIX) and name not in known)
    if not unknown:
        return []
    from difflib import get_close_matches

    endings = [name.removeprefix(ENV_PREFIX) for name in known]
    lines = []
    for name in unknown:
        near = get_close_matches(name.removeprefix(ENV_PREFIX), endings, n=1, cutoff=0.8)
        meant = f" (is {ENV_PREFIX}{near[0]} meant?)" if near else ""
        lines.append(f"{name} is set, but there is no such option{meant}")
    return lines
