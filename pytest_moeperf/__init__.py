"""Serving benchmarks as pytest tests: see README.md."""

__version__ = "0.1.0"
