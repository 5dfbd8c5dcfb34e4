"""The ``simulated`` engine: an SGLang-protocol server in its own process, over a step-time model.

Run it with ``python -m pytest_moeperf.engines.simulated --port P --moe-runner-backend NAME``.
The parts, from the pure to the impure:

- `profile`: what a simulated backend is (a TOML file); `noise`: how its speed varies; `tokens`: what it answers;
- `engine`: continuous batching, step by step, in virtual time; `prefix_cache`: which prompt tokens are already known;
- `clock`: plays those steps against the real clock and knows how late it was; `counters`: what it counted;
- `protocol`: bodies of SGLang's and OpenAI's routes; `generation` and `app`: the routes;
- `faults`: everything that can go wrong on purpose; `streams`, `server`: sockets; `tracing`: kernel traces;
- `arguments`, `startup`, `__main__`: the command line, the log, the process; `launch`: the command to start one.
"""
