"""Decides which epoch comes next and what recovery does. Pure: no Spark, no Kafka, no files."""
