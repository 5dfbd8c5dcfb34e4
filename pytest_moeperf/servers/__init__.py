"""Launching servers, sharing them, and never losing one.

Start with :func:`pytest_moeperf.servers.lease.lease`. Nothing is imported here: the guardian lives in this package and
has to stay tiny.
"""
