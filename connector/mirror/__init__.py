"""Mirrored topics: which offset of the new cluster holds the record that a table reads next."""
