"""``lakelock ui``: a page that shows pipelines and can't change them. Needs the extra ``ui``."""
