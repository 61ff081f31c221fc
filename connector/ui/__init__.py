"""``lakelock ui``: a read-only page of pipelines. Needs the extra ``ui``."""
