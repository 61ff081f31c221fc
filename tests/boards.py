"""A board with one of everything that the page can show, without Spark: names are as nasty as they can be."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from connector.fleet.files import Fault
from connector.operations.dead_letters import LetterGroup
from connector.operations.history import PastEpoch
from connector.operations.status import Status
from connector.protocol.decided import Row, State
from connector.protocol.recover import TopicsHeld
from connector.ui.board import Board
from connector.watch.poll import Look
from sinks.contract import Epoch, Position, Prepared
from sinks.offsets import OffsetRange, Offsets, TopicPartition

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
NASTY = "<script>document.title='owned'</script>\"' onmouseover=alert(1) \U0001f6a2"


def offsets(next_: int) -> Offsets:
    return Offsets({TopicPartition("flights", number): next_ + number for number in range(3)})


def past(number: int, **changes: object) -> PastEpoch:
    fields = {
        "number": number,
        "at": NOW - timedelta(minutes=20 - number),
        "owner": "0f3c2b1a-0000-0000-0000-000000000000",
        "offsets": offsets(number * 100),
        "ranges": (OffsetRange("flights", 0, number * 100 - 100, number * 100 + number * 7 % 40),),
        "rows": number * 90,
        "since_last": 60.0,
        "commits": {"lake/flights": f"version {number}"},
    }
    return PastEpoch(**{**fields, **changes})  # type: ignore[arg-type]


def status(name: str, *, behind: int = 0, in_doubt: bool = False) -> Status:
    position = Position(9, offsets(900), owner="run", committed_at=NOW - timedelta(minutes=11), version=9)
    held = TopicsHeld(offsets(0), offsets(900 + behind), {"flights": "id"}, NOW)
    epoch = Epoch(name, 10, "run-b", (), offsets(950), {}, None, position)
    sinks = ["lake/flights", NASTY]
    doubted = Row(State.DECIDED, epoch, "run-b", {sink: Prepared(12, "", {}) for sink in sinks})
    return Status(name, "transactional", sinks, position, offsets(900), held, in_doubt=doubted if in_doubt else None)


def board() -> Board:
    """Pipelines: one behind, with dead letters; one in doubt; one that can't be read; one not looked at yet."""
    made = Board([Path(f"{name}.yaml") for name in ("flights", "both", NASTY, "new")])
    lost = (OffsetRange("flights", 0, 300, 320),)
    epochs = [past(number) for number in range(9, 0, -1)]
    epochs[5] = past(4, lost=lost, notes=(NASTY,))
    epochs[6] = past(3, state="taken back", notes=("taken back by the RESTORE of version 4",))
    letters = [
        LetterGroup("schema", NASTY, None, 41, 2, 9, "flights", 1, 17, NOW),
        LetterGroup("late", "came after its window was closed", "lake/flights", 3, 4, 4, "flights", 0, 3, NOW),
    ]
    made.saw(Look("flights.yaml", "flights", NOW, status("flights", behind=120), epochs, letters))
    made.saw(Look("both.yaml", "both", NOW, status("both", in_doubt=True), [past(9, state="done")]))
    made.saw(Look(f"{NASTY}.yaml", NASTY, NOW, faults=[Fault(NASTY, "Mend it.", 2)]))
    return made
