"""Benchmarks of Lakelock against its peers: see README.md beside this file."""
