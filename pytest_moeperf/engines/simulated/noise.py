"""How a simulated server's speed varies: the same nested sources of variance that real ones have, from seeds.

A step lasts ``model * exp(session + launch + run + step)``. The session part is drawn from the session's key alone, so
that every backend measured in one session shares it, as backends on one host do; the launch part from session, launch
and profile; the run part from those and the run's index; the step part is a stationary AR(1) sequence within a run.
"""

from __future__ import annotations

import hashlib
import math
import random

from pytest_moeperf.engines.simulated.profile import NoiseLevels


def seeded(*parts: str | int) -> random.Random:
    """A generator that depends on every part, and on nothing else (not on PYTHONHASHSEED)."""
    text = "\x1f".join(str(part) for part in parts)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))


class Noise:
    """The multiplicative noise of one launch. `start_run` begins the next run; `next_factor` is one step's factor."""

    def __init__(self, levels: NoiseLevels, *, seed: int, session_key: str, launch_key: str, profile_name: str) -> None:
        self._levels = levels
        self._launch_parts = (seed, session_key, launch_key, profile_name)
        self.session = seeded("session", seed, session_key).gauss(0.0, levels.session_sd)
        self.launch = seeded("launch", *self._launch_parts).gauss(0.0, levels.launch_sd)
        self.run = 0.0
        self.run_index = 0
        self._steps = random.Random(0)
        self._step = 0.0
        self._innovation_sd = levels.step_sd * math.sqrt(1.0 - levels.step_ar1**2)

    def start_run(self) -> None:
        """Draw the run part anew, and start a stationary sequence of step parts."""
        self.run_index += 1
        draws = seeded("run", *self._launch_parts, self.run_index)
        self.run = draws.gauss(0.0, self._levels.run_sd)
        self._steps = draws
        self._step = draws.gauss(0.0, self._levels.step_sd)

    def next_factor(self) -> float:
        """exp(session + launch + run + step) for the next step; above 1 is slower."""
        factor = math.exp(self.session + self.launch + self.run + self._step)
        self._step = self._levels.step_ar1 * self._step + self._steps.gauss(0.0, self._innovation_sd)
        return factor
