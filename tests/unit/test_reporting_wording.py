"""The words of every verdict, at 80 columns, as a person reads them."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from reporting_samples import COMMAND, above_limit, equivalent, no_baseline, samples, unverified_win

from pytest_moeperf.model.run import Evidence
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.reporting.figures import Change
from pytest_moeperf.reporting.terminal import failure_text
from pytest_moeperf.reporting.text import fill
from pytest_moeperf.reporting.wording import ran_text
from pytest_moeperf.verdicts import bound_result

EXPECTED = {
    "equivalent": """\
EQUIVALENT  throughput at c=1: 10.1 against 10.4 tok/s, -2.8 % [-4.0 %, -1.6 %],
  1 launch against the stored runs. The whole interval lies inside the margins
  (loss 5 %, gain 3 %).
""",
    "no_change_seen": """\
NO_CHANGE_SEEN  throughput at c=2: 19.2 against 19.3 tok/s, -0.3 % [-6.2 %,
  +6.0 %] at 98 %, 1 launch against the stored runs. Inside the noise of one
  launch; that is no proof of no change.
  A regression of 9.1 % or more would have been seen with 95 %.
""",
    "non_inferior": """\
NON_INFERIOR  throughput at c=2: 19.2 against 19.3 tok/s, -0.3 % [-3.0 %,
  +4.1 %], 6 pairs of fresh launches. Shown not worse than the margin (5 %); no
  win is claimed or shown.
""",
    "verified_win": """\
VERIFIED_WIN  throughput at c=64: 249 against 219 tok/s, +13.9 % [+12.1 %,
  +15.8 %], 4 pairs of fresh launches in a new order. Held up in fresh launches,
  with equal work and output.
  Next:
    pytest -m perf --backend=flashinfer_cutedsl --update-baselines \\
      --perf-reason="autotuned tiles" -k 'test_decode[flashinfer_cutedsl-64]'
""",
    "regression": """\
REGRESSION  throughput at c=1024: 797 against 1603 tok/s, -50 % [-51 %, -49 %],
  4 pairs of fresh launches.
  Proven worse than the baseline: no value of the interval is harmless. The
    margin is 5 %.
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner"). Same workload; conditions differ in
    --moe-runner-backend only.
  Also REGRESSION: TPOT at c=1024: 1175 against 584 ms, +101 % (slower) [+90 %,
    +110 %], 4 pairs of fresh launches.
""",
    "above_limit": """\
REGRESSION  p99 TTFT at c=64: 612 ms.
  Above the limit that the test sets (at most 500 ms).
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner"). Same workload; conditions differ in
    --moe-runner-backend only.
""",
    "unverified_win": """\
UNVERIFIED_WIN  throughput at c=64: 249 against 219 tok/s, +13.9 % [+12.1 %,
  +15.8 %], 4 pairs of fresh launches.
  Better than the baseline by more than the win margin (3 %), and nobody has
    shown why: it fails until it is verified.
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner"). Same workload; conditions differ in
    --moe-runner-backend only.
  Odd: the neighbours c=2 and c=256 did not move the same way.
  Next (4 pairs, about 52 min):
    pytest -m perf --backend=flashinfer_cutedsl --perf-verify-wins \\
      -k 'test_decode[flashinfer_cutedsl-64]'
""",
    "inconclusive": """\
INCONCLUSIVE  throughput at c=2: 19.2 against 19.3 tok/s, -2.1 % [-7.1 %,
  +3.2 %], 8 pairs of fresh launches.
  All launches that were allowed are used, and neither a loss beyond 5 % nor its
    absence is shown. About 14 pairs in all would decide.
  Caution: Two launches are bimodal.
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner"). Same workload; conditions differ in
    --moe-runner-backend only.
""",
    "invalid": """\
INVALID  c=256: no_failed_requests failed in 1 of 3 runs.
  A number that cannot be trusted is neither a pass nor a regression.
  Check no_failed_requests: 3 of 1024 requests failed (http 503), 0 are allowed.
    (1 of 3 runs)
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner").
""",
    "contradicted": """\
INVALID  c=64: asked for flashinfer_cutedsl, but triton ran.
  A number that cannot be trusted is neither a pass nor a regression.
  Ran: triton, not flashinfer_cutedsl (contradicted, server log line 32:
    "Falling back to triton (api_key='***')").
  Next: The server's log may say why it fell back; put that right, or ask for
    what it can run:
    pytest -m perf --backend=flashinfer_cutedsl \\
      -k 'test_decode[flashinfer_cutedsl-64]'
""",
    "incomparable": """\
INCOMPARABLE  c=10: the baseline differs in 2 fields that must be equal.
  A change between different conditions says nothing about the backend, so none
    is stated.
  number of prompts in a run: 20 in the baseline, 40 here.
  kernel: 6.8.0 in the baseline, 6.14.11 here.
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner").
""",
    "no_baseline": """\
NO_BASELINE  c=2: measured 19.4 tok/s, and nothing is stored to hold it against.
  Without a baseline nothing is shown, so the test does not pass.
  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using
    flashinfer_cutedsl MoE runner").
""",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_whole_text(name: str) -> None:
    assert failure_text(samples()[name], pytest_command=COMMAND) + "\n" == EXPECTED[name]


def test_every_verdict_has_a_sample() -> None:
    assert {outcome.verdict for outcome in samples().values()} == set(Verdict)


@pytest.mark.parametrize("name", EXPECTED)
def test_no_line_is_wider_than_80_columns(name: str) -> None:
    assert max(map(len, failure_text(samples()[name], pytest_command=COMMAND).splitlines())) <= 80


def test_a_command_that_fits_stays_on_one_line_with_its_cost() -> None:
    short = replace(unverified_win(), node_id="tests/test_moe.py::test_decode[triton-1]")
    assert failure_text(short, pytest_command="pytest", width=120).splitlines()[-1] == (
        "  Next: pytest --perf-verify-wins -k 'test_decode[triton-1]'    (4 pairs, about 52 min)"
    )


def test_a_broken_command_is_still_one_command_for_a_shell() -> None:
    # An apostrophe can't be said with -k, so the whole node id selects the test.
    node = "tests/perf/a rather long folder/test_moe.py::test_decode[flashinfer_cutedsl-it's-64]"
    text = failure_text(replace(unverified_win(), node_id=node), pytest_command="pytest -m perf", width=60)
    command = text[text.index("    pytest -m") :]
    assert shlex.split(command.replace("\\\n", " ")) == ["pytest", "-m", "perf", "--perf-verify-wins", node]


def test_a_recorded_first_baseline_needs_no_next_step() -> None:
    recorded = replace(no_baseline(), recorded="baselines/sglang/c2-in512-out128.json")
    assert failure_text(recorded, pytest_command=COMMAND).splitlines() == [
        "NO_BASELINE  c=2: measured 19.4 tok/s, and recorded as the first baseline:",
        "  baselines/sglang/c2-in512-out128.json.",
        '  Ran: flashinfer_cutedsl (confirmed, server log line 32: "Using',
        '    flashinfer_cutedsl MoE runner").',
    ]


def test_a_refused_update_is_said_even_if_the_test_passes() -> None:
    refused = replace(equivalent(), refused="the drift from the anchor would be -12 %, more than 10 %.")
    assert failure_text(refused).splitlines()[-1] == (
        "  Not recorded: the drift from the anchor would be -12 %, more than 10 %."
    )


def test_unknown_evidence_says_where_was_looked() -> None:
    evidence = Evidence(requested="triton", looked_for=("server log", "kernel profile"))
    assert ran_text(evidence) == (
        "Ran: unknown whether triton (nothing shows which backend executed; looked at server log, kernel profile)."
    )


def test_no_evidence_at_all() -> None:
    assert ran_text(Evidence()) == "Ran: unknown; no evidence was collected."


def test_a_floor_of_throughput() -> None:
    base = above_limit()
    judged = base.decision.results[0]
    bound = replace(judged.bound, metric="throughput", percentile="mean", at_most_ms=None, at_least=700.0)
    broken = replace(base, decision=replace(base.decision, results=(replace(judged, bound=bound),)))
    assert failure_text(broken).splitlines()[:2] == [
        "REGRESSION  throughput at c=64: 612 tok/s.",
        "  Below the limit that the test sets (at least 700 tok/s).",
    ]


def test_a_reason_is_said_once() -> None:
    outcome: Outcome = samples()["no_change_seen"]
    assert failure_text(outcome).count("would have been seen") == 1


@pytest.mark.parametrize("end", [float("inf"), 40.0])
def test_an_interval_without_an_end_that_means_anything(end: float) -> None:
    outcome = equivalent()
    judged = outcome.decision.results[0]
    assert judged.interval is not None
    endless = replace(judged, interval=replace(judged.interval, lower=-end, upper=end))
    text = failure_text(replace(outcome, decision=replace(outcome.decision, results=(endless,))))
    assert "-2.8 % [-100 %, +inf %]" in text


def stated() -> Outcome:
    """An EQUIVALENT whose result has a reason as ``verdicts.bound_result`` makes it."""
    outcome = equivalent()
    judged = outcome.decision.results[0]
    made = bound_result(
        judged.bound,
        judged.verdict,
        measured=judged.measured,
        baseline=judged.baseline,
        interval=judged.interval,
        detail="one launch of three was bimodal",
    )
    return replace(outcome, decision=replace(outcome.decision, results=(made,)))


def test_the_gates_own_meaning_replaces_ours_and_its_figures_are_not_repeated() -> None:
    outcome = stated()
    reasons = (
        "throughput at c=1 512/128: 10.1 against 10.4 tok/s, -2.8 % [-4.0 %, -1.6 %], 1 launch against stored runs.",
        "The whole interval lies inside -5 % and +3 %.",
        "The baseline is provisional.",
        f"{outcome.decision.results[0].reason}.",
    )
    decision = replace(outcome.decision, reasons=reasons)
    assert failure_text(replace(outcome, decision=decision)).splitlines() == [
        "EQUIVALENT  throughput at c=1: 10.1 against 10.4 tok/s, -2.8 % [-4.0 %, -1.6 %],",
        "  1 launch against the stored runs. The whole interval lies inside -5 % and",
        "  +3 %.",
        "  The baseline is provisional.",
    ]


def test_without_reasons_the_results_own_detail_is_told() -> None:
    assert failure_text(stated()).splitlines()[3:] == ["  One launch of three was bimodal"]


def test_fields_that_the_gate_names_are_not_listed_again() -> None:
    outcome = samples()["incomparable"]
    reasons = ("Nothing is compared.", "number of prompts in a run: 20 in the baseline, 40 here.")
    text = failure_text(replace(outcome, decision=replace(outcome.decision, reasons=reasons)))
    assert text.count("number of prompts in a run") == 1
    assert text.count("6.8.0 in the baseline, 6.14.11 here.") == 1


@pytest.mark.parametrize(
    ("command", "step", "expected"),
    [
        (
            "pytest -m perf --perf-report=old examples",
            "{pytest} --perf-report=DIR",
            "pytest -m perf examples --perf-report=DIR",
        ),
        ("pytest --perf-report old examples", "{pytest} --perf-report=DIR", "pytest examples --perf-report=DIR"),
        (
            "pytest --update-baselines examples",
            "{pytest} --update-baselines",
            "pytest examples --update-baselines",
        ),
        (
            "pytest -m 'perf and smoke' examples",
            "{pytest} --perf-continue",
            "pytest -m 'perf and smoke' examples --perf-continue",
        ),
        (
            "pytest --update-baselines --perf-reason 'a faster kernel' --perf-launches=3 -q examples",
            "{measure} --perf-verify-wins",
            "pytest -q examples --perf-verify-wins",
        ),
    ],
)
def test_what_a_step_gives_anew_is_not_given_twice(command: str, step: str, expected: str) -> None:
    assert fill(step, node_id="t.py::test_a", pytest_command=command) == expected


def test_no_change_is_said_to_be_certain() -> None:
    assert Change(estimate=-0.1, lower=-0.2, upper=-0.05, level=0.9995, n=2).level_text == "99.95 %"


ACCEPT = "moeperf accept triton/c64-in512-out128 --reason='why'"
STEPS = (
    "If this loss is accepted, with the reason: {accept}",
    "{diff}    (what else differs from the baseline)",
    'Verifying takes a reference: its installation, written into moeperf.toml, then: {measure} -k {node}\n[reference]\npython = "/opt/a/bin/python"',
)


def advised(**session: str) -> str:
    outcome = replace(unverified_win(), node_id="t.py::test_a", session=session)
    decision = replace(outcome.decision, next_steps=STEPS)
    text = failure_text(replace(outcome, decision=decision), pytest_command="pytest -m perf --update-baselines")
    return text[text.index("  Next") :]


def test_commands_over_the_report_and_lines_for_a_file() -> None:
    assert advised(accept=ACCEPT, diff="moeperf diff b.json .moeperf/last") == (
        "  Next: If this loss is accepted, with the reason:\n"
        f"    {ACCEPT}\n"
        "  Or: moeperf diff b.json .moeperf/last    (what else differs from the baseline)\n"
        "  Or: Verifying takes a reference: its installation, written into moeperf.toml,\n"
        "    then:\n"
        "    [reference]\n"
        '    python = "/opt/a/bin/python"\n'
        "    pytest -m perf -k test_a"
    )


def test_where_no_report_is_left_no_command_over_it_is_advised() -> None:
    assert advised().startswith("  Next: Verifying takes a reference")


def test_a_server_that_died_is_not_buried_under_the_rules_of_evidence() -> None:
    outcome = samples()["invalid"]
    unknown = Evidence(requested="triton", looked_for=("server log: not there", "a line of the layer"))
    assert "Ran:" not in failure_text(replace(outcome, evidence=unknown))
