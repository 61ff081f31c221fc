"""Kafka as the source of a pipeline: its topics, their records, the consumer group."""
