"""``moeperf rehearse``: would the gate catch it, and at what cost?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_moeperf.cli.commands import DONE, NO, Commands, add_baselines_option, add_json_option
from pytest_moeperf.cli.configuration import settings_here, store_folder
from pytest_moeperf.cli.output import print_json, print_lines, width
from pytest_moeperf.cli.values import changes, duration, share, whole_number
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.bounds import METRICS
from pytest_moeperf.model.settings import GateSettings

if TYPE_CHECKING:
    from pytest_moeperf.cli.rehearsal import Rehearsal

CHANGES = (0.0, -0.03, -0.05, -0.1, 0.1)
CAUGHT, FALSE_ALARMS = 0.98, 0.005
TRIALS = 400


def add(commands: Commands) -> None:
    parser = commands.add(
        "rehearse",
        run=run,
        summary="would the gate catch a change, and at what cost?",
        description="Replay the noise of a cell's stored runs, or a stated one, with an injected change through the "
        "very same gate, many times: how often it is caught, how often nothing is called something, and what it costs. "
        "Nothing is launched. Exit code 1: a target is missed by more than the rehearsal's own error.",
        example="moeperf rehearse triton/c10-in512-out128 --change=-5%\n"
        "moeperf rehearse --session-sd=2.5% --launch-sd=1% --budget=30min",
    )
    parser.add_argument(
        "cell",
        metavar="CELL|PATH",
        nargs="?",
        help="a stored cell, whose noise is replayed; without it: state the noise",
    )
    parser.add_argument(
        "--change",
        metavar="CHANGES",
        type=changes,
        action="extend",
        help="of the rate, < 0 is slower; repeatable or a comma list; default: 0%%,-3%%,-5%%,-10%%,+10%%",
    )
    noise = parser.add_argument_group("noise, instead of the stored runs'")
    noise.add_argument("--session-sd", metavar="SD", type=share, help="between sessions, such as 0.5%%")
    noise.add_argument("--launch-sd", metavar="SD", type=share, help="between launches of a session")
    noise.add_argument("--run-sd", metavar="SD", type=share, help="between runs of a launch")
    noise.add_argument("--sessions", metavar="N", type=whole_number(0), help="stored sessions; 0: no baseline")
    noise.add_argument("--launches", metavar="N", type=whole_number(1), help="stored launches in each session")
    noise.add_argument("--launch-time", metavar="TIME", type=duration, help="that one launch takes, such as 3min")
    noise.add_argument("--run-time", metavar="TIME", type=duration, help="that one run takes")
    gate = parser.add_argument_group("gate, instead of the configuration's")
    gate.add_argument("--metric", choices=METRICS, default=METRICS[0], help="the bound's metric; default: throughput")
    gate.add_argument("--regression", metavar="MARGIN", type=share, help="margin of a loss, such as 5%%")
    gate.add_argument("--win", metavar="MARGIN", type=share, help="margin of a gain")
    gate.add_argument("--budget", metavar="TIME", type=duration, help="of one campaign, such as 30min")
    gate.add_argument("--mode", choices=("screen", "confirm"))
    gate.add_argument("--no-reference", action="store_true", help="no reference arm can be launched")
    rehearsal = parser.add_argument_group("rehearsal")
    rehearsal.add_argument("--trials", metavar="N", type=whole_number(1), default=TRIALS, help="campaigns a change")
    rehearsal.add_argument("--seed", metavar="N", type=whole_number(0), default=0)
    rehearsal.add_argument(
        "--caught", metavar="SHARE", type=share, default=CAUGHT, help="target for losses at and beyond the margin"
    )
    rehearsal.add_argument(
        "--false-alarms", metavar="SHARE", type=share, default=FALSE_ALARMS, help="target where nothing changed"
    )
    add_baselines_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.cli.rehearsal import find_missed, rehearsal_lines, rehearse_all

    if args.cell is None and (args.session_sd is None or args.launch_sd is None):
        raise UsageProblem(
            where="CELL",
            problem="there is no noise to replay",
            allowed="a stored CELL, or --session-sd and --launch-sd",
        )
    settings = settings_here()
    rehearsal = rehearse_all(args, gate=gate_of(args, settings.gate), folder=store_folder(settings, args.baselines))
    if args.json:
        print_json(_as_plain(rehearsal))
    else:
        print_lines(rehearsal_lines(rehearsal, width=width()))
    return NO if find_missed(rehearsal) else DONE


def gate_of(args: argparse.Namespace, configured: GateSettings) -> GateSettings:
    """The configured rules with what the command line says otherwise.

    :raises UsageProblem: for a margin that is not above what counts as proven.
    """
    given = {"regression": args.regression, "win": args.win, "budget_s": args.budget, "mode": args.mode}
    gate = replace(configured, **{name: value for name, value in given.items() if value is not None})
    if gate.regression <= gate.proven:
        raise UsageProblem(
            where="--regression",
            problem=f"{gate.regression:.3%} is not above the margin {gate.proven:.3%} at which a change is proven",
            allowed="more than [tool.moeperf] proven",
        )
    return gate


def _as_plain(rehearsal: Rehearsal) -> object:
    from pytest_moeperf.cli.rehearsal import find_missed
    from pytest_moeperf.model.codec import to_plain

    return {**to_plain(rehearsal), "missed": find_missed(rehearsal)}
