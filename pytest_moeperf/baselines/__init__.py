"""Baselines: where they lie, how one is found, and when it may move."""

from __future__ import annotations

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.baselines.levels import SeriesPoint, cumulative_drift, history_series
from pytest_moeperf.baselines.memory import MemoryStore
from pytest_moeperf.baselines.recording import STORED_BOUNDS, stored_runs
from pytest_moeperf.baselines.rules import Refusal
from pytest_moeperf.baselines.store import BaselineStore, Compare, Entry
from pytest_moeperf.baselines.updates import Update, propose_update

__all__ = [
    "STORED_BOUNDS",
    "BaselineStore",
    "Compare",
    "Entry",
    "FileStore",
    "MemoryStore",
    "Refusal",
    "SeriesPoint",
    "Update",
    "cumulative_drift",
    "history_series",
    "propose_update",
    "stored_runs",
]
