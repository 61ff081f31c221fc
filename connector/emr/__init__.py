"""Runs on Amazon EMR: start one, wait for it, and learn the run's own exit code.

``jobs`` knows EMR Serverless and steps of a cluster; ``driver_log`` reads what the run printed. The commands are in
``connector.cli.emr``, and ``connector.cli.emr_driver`` is what spark-submit starts there.
"""
