"""Which backend really ran: rules (data), the traces of a server, and what they prove."""

from pytest_moeperf.evidence.collect import UNREAD, collect, side_effects, unread_version
from pytest_moeperf.evidence.profile import kernel_names, trace_files

__all__ = ["UNREAD", "collect", "kernel_names", "side_effects", "trace_files", "unread_version"]
