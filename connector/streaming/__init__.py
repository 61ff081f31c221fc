"""Epochs inside a Structured Streaming job."""
