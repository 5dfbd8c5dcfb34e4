"""What the machine is and how it is set up: an audit for people, facts for fingerprints."""

from pytest_moeperf.environment.audit import SETTINGS, audit, diff_environments, read_environment
from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.software import read_model, read_software

__all__ = ["SETTINGS", "Probe", "audit", "diff_environments", "read_environment", "read_model", "read_software"]
