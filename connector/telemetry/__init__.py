"""What a run reports: progress, JSON lines, metrics, traces, lineage, and a report at its end."""
