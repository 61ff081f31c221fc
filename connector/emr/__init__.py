"""Runs on Amazon EMR: started from here, waited for, and ended with the run's own exit code.

``jobs`` knows EMR Serverless and steps of a cluster, ``driver_log`` what the run said, ``commands`` is
``lakelock emr``; ``run`` is what spark-submit starts there.
"""
