"""Commits epochs inside a Structured Streaming job."""
