"""What the lab's page explains about a crash: the moment, the order of a delivery's steps, and what theory expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

POINTS: Mapping[str, str] = {
    "after_poll": "The records of a batch are read. Nothing else has happened.",
    "after_auto_commit": "The client has committed the batch's offsets. Its rows are not written.",
    "before_write": "Right before the first file of the batch is written.",
    "mid_write": "Data files are there. The table's commit, which makes them visible, is not.",
    "after_write": "The table has the rows. Nothing after that has happened.",
    "after_offset_commit": "Rows and offsets are both stored.",
    "in_recovery": "Killed after the write, started again, and killed again while it catches up.",
}
"""The crash points, in the order in which a batch reaches them."""

STEPS: Mapping[str, str] = {
    "after_poll": "planned",
    "after_auto_commit": "offsets_committed",
    "before_write": "writing",
    "after_write": "committed",
    "after_offset_commit": "offsets_committed",
    # Of the first crash. The second one comes when the next run knows where to go on.
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
        ("write what is newer than the stored offset", ("mid_write", "after_write")),
        ("commit the offsets", ("after_offset_commit",)),
    ),
    "transactional": (
        ("read", ("after_poll", "before_write")),
        ("write rows and offsets, one commit", ("mid_write", "after_write")),
        ("publish the offsets, for lag tools only", ("after_offset_commit",)),
    ),
}
"""Per delivery, the steps of one batch, each with the crash points during or after the step."""

_SAME_AGAIN = (
    "Nothing of the batch was written, and its offsets were not committed: the next run polls the same records again."
)
_NO_READER_SEES = (
    "Files of the batch were there, but without a commit no reader sees them. The offsets had not moved, so the next "
    "run does the batch again."
)
_BOTH_STORED = "Rows and offsets were both stored: the next run goes on behind them."
_LOST = (
    "The client had committed the offsets of a batch that was not written. The next run starts behind it, and nobody "
    "reads those records again: they are lost."
)
_POLLED_AGAIN = "The batch was in the table, but its offsets were not committed yet: the next run polls it again"
_TWO_CRASHES = "Two crashes, each between the write and the offsets' commit: the batch is polled again each time"
_OLDER_FOR_A_WHILE = (
    " and writes the same updates to the same keys. If the batches have other boundaries this time, readers see "
    "older values until the run has caught up; then the table is right."
)
_IGNORED = ". Every repeated update has an offset <= the stored one, so the sink ignores it."
_ASKS_THE_TABLE = "The next run asks the table where it stands"

_MANUAL: Mapping[str, str] = {
    "after_poll": _SAME_AGAIN,
    "before_write": _SAME_AGAIN,
    "mid_write": _NO_READER_SEES,
    "after_offset_commit": _BOTH_STORED,
}

_WHAT_FOLLOWS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("auto_commit", ""): {
        "after_poll": "The client had not committed the batch's offsets yet, so the next run polls them again.",
        "after_auto_commit": _LOST,
        "after_offset_commit": _LOST,
        "before_write": _LOST,
        "mid_write": (
            "Files of the batch were there, but without a commit no reader sees them, and its offsets had been "
            "committed before: the next run starts behind the batch, which is lost."
        ),
        "after_write": _BOTH_STORED,
        "in_recovery": "Both crashes came after a write, when rows and offsets were stored: there was nothing to lose.",
    },
    ("manual_commit", "append"): {
        **_MANUAL,
        "after_write": _POLLED_AGAIN + " and appends it a second time.",
        "in_recovery": _TWO_CRASHES + ", and appended each time.",
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
            "Files of the batch were there, but without a commit the table has neither its rows nor its offsets. "
            f"{_ASKS_THE_TABLE}, and does the batch again."
        ),
        "after_write": f"Rows and offsets stand in one commit. {_ASKS_THE_TABLE}, and goes on behind the batch.",
        "after_offset_commit": (
            "The offsets in the consumer group are for lag tools only; no run reads them back. The next run asks the "
            "table where it stands, and goes on behind the batch."
        ),
        "in_recovery": (
            "Rows and offsets stand in one commit, whatever happens around it: each run asks the table where it "
            "stands, and goes on from there."
        ),
    },
}

_HIDDEN_LOSS = " An upsert table shows a loss only where no newer update of the same key came later."


def what_follows(delivery: str, sink: str, crash_point: str) -> str:
    """What theory says about this crash, in one or two sentences; empty for an unknown combination."""
    by_point = _WHAT_FOLLOWS.get((delivery, sink)) or _WHAT_FOLLOWS.get((delivery, "")) or {}
    text = by_point.get(crash_point, "")
    return text + _HIDDEN_LOSS if text.endswith("lost.") and sink == "upsert" else text
