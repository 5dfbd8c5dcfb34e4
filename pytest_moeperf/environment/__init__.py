"""What the machine is and how it is set up: an audit for people, facts for fingerprints."""

from pytest_moeperf.environment.audit import SETTINGS, audit, diff_environments, read_environment
from pytest_moeperf.environment.models import read_model
from pytest_moeperf.environment.named_files import read_named_files
from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.software import read_software
from pytest_moeperf.environment.source_build import read_source_build

__all__ = [
    "SETTINGS",
    "Probe",
    "audit",
    "diff_environments",
    "read_environment",
    "read_model",
    "read_named_files",
    "read_software",
    "read_source_build",
]
