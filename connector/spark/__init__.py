"""The Spark session: its settings, its jars, and the differences between Spark's versions."""
