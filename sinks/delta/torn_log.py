"""What a run that was killed while it made a table leaves: a log without a commit. Delta takes it for a table then."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"\.{1,2}\d{20}\.json\.[0-9a-f-]+\.tmp(\.crc)?")
"""A commit that wasn't given its name, as Delta writes it to a file system; with its checksum."""


def cleared(table: Path) -> bool:
    """Remove the log if nothing was ever committed to it. Returns whether it is gone.

    A run that makes the table at the same moment may lose its commit to this, and sees that: then the table is there by
    this run, or its statement fails.
    """
    log = table / "_delta_log"
    try:
        inside = list(log.iterdir())
        if any(not (_COMMIT.fullmatch(each.name) or each.is_dir()) for each in inside):
            return False
        for each in inside:
            if each.is_dir():
                each.rmdir()  # only an empty one
            else:
                each.unlink()
        log.rmdir()
    except OSError:
        return False
    return True
