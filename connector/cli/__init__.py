"""The command ``lakelock``."""

from connector.cli.app import main

__all__ = ["main"]
