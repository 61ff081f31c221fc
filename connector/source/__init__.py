"""Kafka as the source of a pipeline: topics, records and the consumer group."""
