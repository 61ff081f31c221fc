"""Several pipelines in one process: one Spark session, a few epochs at once, and otherwise each pipeline for itself."""
