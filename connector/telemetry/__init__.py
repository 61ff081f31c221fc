"""What a run tells of itself: progress, JSON lines, metrics, traces, lineage, a report."""
