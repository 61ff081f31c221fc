"""A board with one of everything that the page can show, without Spark: names are as nasty as they can be."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from connector.fleet.files import Fault
from connector.operations.history import PastEpoch
from connector.operations.letter_groups import LetterGroup
from connector.operations.lineage import Goal, Lineage
from connector.operations.newest_rows import SomeRows
from connector.operations.status import Status
from connector.protocol.decided import Row, State
from connector.protocol.recover import TopicsHeld
from connector.ui.board import Board
from connector.ui.page import address
from connector.watch.poll import Look
from connector.watch.reports import Report
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


FILES = [f"{name}.yaml" for name in ("flights", "both", NASTY, "new")]
PAGES = [f"/p/{address(file)}" for file in FILES]
"""Where the page of each is."""


def board() -> Board:
    """Pipelines: one behind, with dead letters; one in doubt; one that can't be read; one not looked at yet."""
    made = Board([Path(file) for file in FILES])
    lost = (OffsetRange("flights", 0, 300, 320),)
    epochs = [past(number) for number in range(9, 0, -1)]
    epochs[5] = past(4, lost=lost, notes=(NASTY,))
    epochs[6] = past(3, state="taken back", notes=("taken back by the RESTORE of version 4",))
    letters = [
        LetterGroup("schema", NASTY, None, 41, 2, 9, "flights", 1, 17, NOW),
        LetterGroup("late", "came after its window was closed", "lake/flights", 3, 4, 4, "flights", 0, 3, NOW),
    ]
    report = Report("flights", "failed", NOW - timedelta(minutes=9), 30, "run", "BadRecord", NASTY, f"Mend {NASTY}.")
    lineage = Lineage("flights", "b:9092", ["flights", NASTY], [NASTY], [Goal("delta_append", NASTY)], NASTY)
    rows = [SomeRows(NASTY, ["k", NASTY], [["a", NASTY]], newest=True), SomeRows("lake/dead", letters=True)]
    text = f"name: flights\ntransform: {NASTY}\n"
    seen = status("flights", behind=120)
    for minutes, behind in ((3, 2_400), (2, None), (1, 900)):
        at = NOW - timedelta(minutes=minutes)
        earlier = status("flights", behind=behind) if behind is not None else None
        made.saw(Look("flights.yaml", "flights", at, earlier, faults=[] if earlier else [Fault("away")]))
    made.saw(Look("flights.yaml", "flights", NOW, seen, epochs, letters, (), lineage, text, report, rows))
    both = [past(number, state="done", phases={"prepare": number, "commit": 2.5}) for number in (9, 8)]
    made.saw(Look("both.yaml", "both", NOW, status("both", in_doubt=True), both))
    made.saw(Look(f"{NASTY}.yaml", NASTY, NOW, faults=[Fault(NASTY, "Mend it.", 2)]))
    return made


FILE = """name: flights
source:
  topics:
  - flights
  kafka:
    bootstrap.servers: kafka:9092
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: lake
    sasl.password: ${env:KAFKA_PASSWORD}
value:
  format: json
  schema: carrier STRING, flight INT, delay INT, updated TIMESTAMP
on_bad_record: dead_letter
dead_letters:
  path: lake/flights_dead
sinks:
- type: delta_upsert
  path: lake/latest_flights
  key: flight
trigger:
  interval: 1 minute
"""


def picture() -> Board:
    """As a pipeline may look on a day of little wind: the pictures in docs show it."""
    made = Board([Path("flights.yaml")])
    for look in range(119):
        at = NOW - timedelta(seconds=15 * (119 - look))
        made.saw(Look("flights.yaml", "flights", at, status("flights", behind=80 + (look * 37 % 400) + 4 * look)))
    epochs = []
    for number in range(20, 0, -1):
        offsets_read = 900 + number * 331 % 700
        epochs.append(
            past(
                number, at=NOW - timedelta(seconds=40 + 60 * (20 - number)), rows=offsets_read - 20,
                ranges=(OffsetRange("flights", 0, number * 2000, number * 2000 + offsets_read),),
                since_last=60.0 if number > 1 else None, commits={"lake/latest_flights": f"version {number + 2}"},
                phases={"read": 2.1 + number % 4, "match": 1.2 + number % 3 / 2, "write": 3.4 + number % 5},
            )
        )  # fmt: skip
    epochs[8] = replace(epochs[8], notes=("the table was restored before it, in version 13",))
    epochs[9] = replace(epochs[9], state="taken back", notes=("taken back by the RESTORE of version 13",))
    stands = status("flights", behind=596)
    assert stands.position is not None
    position = replace(
        stands.position, epoch=20, owner=epochs[0].owner, committed_at=NOW - timedelta(seconds=40),
        read_to=NOW - timedelta(seconds=52),
    )  # fmt: skip
    waits = {at: NOW - timedelta(seconds=13) for at in stands.held.ends}
    detail = "its value: field delay: not an INT"
    made.saw(
        Look(
            "flights.yaml", "flights", NOW,
            replace(stands, sinks=["lake/latest_flights"], position=position, next_times=waits), epochs,
            [LetterGroup("value", detail, None, 4, 7, 18, "flights", 1, 217, NOW - timedelta(minutes=3))], (),
            Lineage(
                "flights", "kafka:9092", ["flights"], ["decoded as json"],
                [Goal("delta_upsert", "/data/lake/latest_flights")], "/data/lake/flights_dead",
            ),
            FILE,
            Report(
                "flights", "failed", NOW - timedelta(minutes=31), 40, "run", "BrokerUnreachable",
                "No broker of kafka:9092 answered within 10 seconds.",
                "Is the broker up, and can this machine reach it? The next run goes on where the table stands.",
            ),
        )
    )  # fmt: skip
    return made
