"""Statistics of the decision: pure functions over log-ratio effects. The launch is the unit, never the request.

All effects are natural logs, positive when better (:meth:`pytest_moeperf.model.bounds.Bound.effect`), so an
effect difference of 0.05 is a gain of 5.1 %. Modules are imported one by one where they are used: numpy and
scipy never load at pytest's start.
"""
