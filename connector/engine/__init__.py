"""Carries out one epoch of a pipeline, from the offset ranges to the commit.

Start with `epoch.py` and `coordinator.py`.
"""
