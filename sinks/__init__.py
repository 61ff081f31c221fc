"""Where epochs go: the contract of a sink, and the sinks."""

LAKELOCK = True
"""Tells this package from another one called ``sinks``."""
