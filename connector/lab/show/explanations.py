"""The texts of the lab's page about a crash: its moment, the delivery's steps, and what must follow in theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

POINTS: Mapping[str, str] = {
    "after_poll": "The process has read the records of a batch and done nothing else.",
    "after_auto_commit": "The client has committed the batch's offsets. The rows are not written yet.",
    "before_write": "The process is about to write the batch's first file.",
    "mid_write": "The data files are written. The table's commit, which makes them visible, is not.",
    "between_tables": "One table of a route has the batch. The other one may not have it yet.",
    "after_write": "The rows are in the table. The steps after the write have not begun.",
    "after_offset_commit": "Rows and offsets are both stored.",
    "in_recovery": "The process is killed after the write, restarted, and killed again while it catches up.",
}
"""The crash points, in the order in which a batch reaches them."""

STEPS: Mapping[str, str] = {
    "after_poll": "planned",
    "after_auto_commit": "offsets_committed",
    "before_write": "writing",
    "between_tables": "sink_committed",
    "after_write": "committed",
    "after_offset_commit": "offsets_committed",
    # The step of the first crash. The second crash comes when the next run knows its starting offsets.
    "in_recovery": "committed",
}
"""The step that a run announces at each crash point. No step is announced in the middle of a write."""

ORDER: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = {
    "auto_commit": (
        ("poll", ("after_poll",)),
        ("the client commits the offsets", ("after_auto_commit", "before_write")),
        ("write", ("mid_write", "after_write")),
    ),
    "manual_commit": (
        ("poll", ("after_poll", "before_write")),
        ("write", ("mid_write", "after_write")),
        ("commit the offsets", ("after_offset_commit",)),
    ),
    "idempotent": (
        ("poll", ("after_poll", "before_write")),
        ("write the updates newer than the stored offset", ("mid_write", "after_write")),
        ("commit the offsets", ("after_offset_commit",)),
    ),
    "transactional": (
        ("read", ("after_poll", "before_write")),
        ("write rows and offsets in one commit", ("mid_write", "between_tables", "after_write")),
        ("publish the offsets, for lag tools only", ("after_offset_commit",)),
    ),
}
"""The steps of one batch per delivery. Each step has the crash points during or after it."""

_SAME_AGAIN = (
    "No row of the batch was written, and its offsets were not committed. The next run polls the same records again."
)
_NO_READER_SEES = (
    "Files of the batch were written, but no reader sees them without a commit. The offsets were not committed, so the "
    "next run repeats the batch."
)
_BOTH_STORED = "Rows and offsets were both stored. The next run continues after the batch."
_LOST = (
    "The client had committed the offsets of a batch that was not written. The next run starts after the batch. "
    "No run reads its records again, so they are lost."
)
_POLLED_AGAIN = "The batch was in the table, but its offsets were not committed yet. The next run polls the batch again"
_TWO_CRASHES = "Both crashes came between the write and the offset commit. Each new run polls the batch again"
_OLDER_FOR_A_WHILE = (
    " and writes the same updates to the same keys. If the batches have other boundaries this time, readers see "
    "older values until the run has caught up. Then the table is right."
)
_IGNORED = ". Every repeated update has an offset that isn't above the stored one, so the sink ignores it."
_ASKS_THE_TABLE = "The next run asks the table where it stands"

_MANUAL: Mapping[str, str] = {
    "after_poll": _SAME_AGAIN,
    "before_write": _SAME_AGAIN,
    "mid_write": _NO_READER_SEES,
    "after_offset_commit": _BOTH_STORED,
}

_WHAT_FOLLOWS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("auto_commit", ""): {
        "after_poll": "The client had not committed the batch's offsets yet, so the next run polls the batch again.",
        "after_auto_commit": _LOST,
        "after_offset_commit": _LOST,
        "before_write": _LOST,
        "mid_write": (
            "Files of the batch were written, but no reader sees them without a commit. The offsets had been committed "
            "before, so the next run starts after the batch, which is lost."
        ),
        "after_write": _BOTH_STORED,
        "in_recovery": "Both crashes came after a write, when rows and offsets were stored, so no record was at risk.",
    },
    ("manual_commit", "append"): {
        **_MANUAL,
        "after_write": _POLLED_AGAIN + " and appends it a second time.",
        "in_recovery": _TWO_CRASHES + " and appends it.",
    },
    ("manual_commit", "upsert"): {
        **_MANUAL,
        "after_write": _POLLED_AGAIN + _OLDER_FOR_A_WHILE,
        "in_recovery": _TWO_CRASHES + _OLDER_FOR_A_WHILE,
    },
    ("idempotent", ""): {
        **_MANUAL,
        "after_write": _POLLED_AGAIN + _IGNORED,
        "in_recovery": _TWO_CRASHES + _IGNORED,
    },
    ("transactional", ""): {
        "after_poll": f"Nothing was written. {_ASKS_THE_TABLE}, and reads the same records again.",
        "before_write": f"Nothing was written. {_ASKS_THE_TABLE}, and reads the same records again.",
        "mid_write": (
            "Files of the batch were written, but without a commit the table has neither its rows nor its offsets. "
            f"{_ASKS_THE_TABLE}, and repeats the batch."
        ),
        "after_write": f"Rows and offsets are in one commit. {_ASKS_THE_TABLE}, and continues after the batch.",
        "after_offset_commit": (
            "The offsets in the consumer group are for lag tools only, and no run starts from them. "
            f"{_ASKS_THE_TABLE}, and continues after the batch."
        ),
        "in_recovery": (
            "Rows and offsets are in one commit, so neither crash can separate them. Each run asks the table where it "
            "stands, and continues from there."
        ),
    },
}

_ROLLED_FORWARD = (
    "The coordinator log has the batch's offsets and its tables. The next run reads these records again, and brings "
    "the rows to the tables that lack them."
)
_WHAT_OF_A_ROUTE: Mapping[str, str] = {
    "after_poll": "Nothing was decided or written. The next run reads the same records again.",
    "before_write": "Nothing was decided or written. The next run reads the same records again.",
    "mid_write": _ROLLED_FORWARD,
    "between_tables": _ROLLED_FORWARD,
    "after_write": "Both tables have the batch, each in a commit of its own. The next run asks them, and finishes it.",
    "after_offset_commit": "Both tables have the batch, and the log says so. The next run continues after the batch.",
    "in_recovery": "Each run asks the log and the tables where they stand, so neither crash loses or repeats anything.",
}

_HIDDEN_LOSS = " An upsert table shows a loss only if no newer update of the same key follows."


def what_follows(delivery: str, sink: str, crash_point: str) -> str:
    """What must follow from this crash in theory, in a few sentences. Empty for an unknown combination."""
    if sink == "routed":
        return _WHAT_OF_A_ROUTE.get(crash_point, "")
    by_point = _WHAT_FOLLOWS.get((delivery, sink)) or _WHAT_FOLLOWS.get((delivery, "")) or {}
    text = by_point.get(crash_point, "")
    return text + _HIDDEN_LOSS if text.endswith("lost.") and sink == "upsert" else text
