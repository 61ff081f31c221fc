"""Verdicts on the history of a trial. Pure."""
