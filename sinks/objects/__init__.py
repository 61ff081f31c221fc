"""Rows as objects in S3, Parquet or JSON lines, exactly once: no table format, no server but S3."""

from sinks.objects.sink import S3Objects

__all__ = ["S3Objects"]
