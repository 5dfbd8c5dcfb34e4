"""Frozen values that cross from one room to another. Standard library only; nothing here does anything."""

SCHEMA_VERSION = 1
"""Of everything that is written to a file. A reader refuses a newer one and says so."""
