"""Judge a history of the crash lab: find every anomaly, then subtract what the delivery allows, as Jepsen does.

What counts as an anomaly depends on the sink.

**append**, **routed**: one row per record; of a route it is in one of two tables. A record without a row is *lost*. A
record with several rows is *duplicated*.

**upsert**: one row per key, with its newest update. Newer means a higher offset. Offsets can only be compared within a
partition, so a history with a key in two partitions can't be judged. An update that no version shows is no anomaly if
the table has a newer update of its key, because nobody can tell whether the older one was written.

* *lost*: the last version lacks a key's newest update, and no version had this update or a newer one. Or the last
  version has no row of the key.
* *stale*: an earlier version had the update, and the last version has an older update of the key.
* *duplicated*: the key has several rows.

**Versions**: every version is judged, not only the last. A version that claims offsets must hold exactly the records
in ``[since, claims)``. A record of the range without a row is missing. A row outside of the range is unexpected. A
version that claims nothing must not lack what an earlier version had. An update that was missing or older for a
while, but is right or superseded in the last version, has *regressed*: a reader saw a wrong row, but nothing needs
repair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from connector.lab.check.history import History, Row, Sent, Version
from connector.lab.check.verdict import Anomaly, Kind, Report, Verdict, conclude
from sinks.offsets import TopicPartition
from sinks.plurals import plural

__all__ = ["ALLOWED", "EXPECTED", "Anomaly", "Kind", "Report", "Verdict", "check", "find", "judge", "must_show"]

ALLOWED: Mapping[tuple[str, str], frozenset[Kind]] = {
    ("auto_commit", "append"): frozenset({Kind.LOST}),
    ("auto_commit", "upsert"): frozenset({Kind.LOST}),
    ("manual_commit", "append"): frozenset({Kind.DUPLICATED}),
    # A repeated batch starts with older updates. The batches after it repair that.
    ("manual_commit", "upsert"): frozenset({Kind.REGRESSED}),
}
"""The anomalies that a delivery may show. All other deliveries promise to count every record exactly once."""

_LOSES: Mapping[str, frozenset[Kind]] = {
    point: frozenset({Kind.LOST}) for point in ("after_auto_commit", "after_offset_commit", "before_write", "mid_write")
}
_REPEATS: Mapping[str, frozenset[Kind]] = {
    # in_recovery is a second crash. The first one was at after_write.
    point: frozenset({Kind.DUPLICATED})
    for point in ("after_write", "in_recovery")
}

EXPECTED: Mapping[tuple[str, str], Mapping[str, frozenset[Kind]]] = {
    # The order is: poll, the client commits, write. So after_offset_commit equals after_auto_commit here.
    ("auto_commit", "append"): _LOSES,
    ("auto_commit", "upsert"): _LOSES,
    # The order is: poll, write, commit. An upsert isn't here, because its anomalies depend on the batch boundaries.
    ("manual_commit", "append"): _REPEATS,
}
"""The anomalies that must appear in theory, per delivery, sink and crash point. If the lab doesn't show them, its other
cells prove nothing. (``idempotent`` into an append is refused.)

An upsert shows a loss only if the lost batch has some key's newest update. So the lab's records need keys whose last
update is in each part of the topic.
"""

Place = tuple[TopicPartition, int]


def must_show(delivery: str, sink: str, crash_point: str) -> frozenset[Kind]:
    """The kinds of anomaly that this crash must cause: the control of the experiment."""
    return EXPECTED.get((delivery, sink), {}).get(crash_point, frozenset())


def judge(history: History, allows: Collection[Kind] | None = None, expects: Collection[Kind] = frozenset()) -> Report:
    """Like `check`, but returns the verdict unknown if the checker itself fails. Raises nothing."""
    try:
        return check(history, allows, expects)
    except Exception as error:
        return Report(Verdict.UNKNOWN, (), frozenset(), (f"The checker failed: {type(error).__name__}: {error}.",))


def check(history: History, allows: Collection[Kind] | None = None, expects: Collection[Kind] = frozenset()) -> Report:
    """Find every anomaly of the history and give a verdict.

    ``allows``: the kinds that the delivery may show, by default those of `ALLOWED`. ``expects``: the kinds that it must
    show, see `must_show`. If one is missing, the verdict is broken. Raises ValueError for a history that contradicts
    itself.
    """
    if allows is None:
        allows = ALLOWED.get((history.delivery, history.sink), frozenset())
    return conclude(history, find(history), frozenset(allows), frozenset(expects))


def find(history: History) -> tuple[Anomaly, ...]:
    """Every anomaly, worst first. Raises ValueError for a history that contradicts itself."""
    numbers = [version.number for version in history.versions]
    if numbers != sorted(set(numbers)):
        raise ValueError("the versions are not in the order of their numbers")
    truth = _Truth.of(history)
    findings = _Findings(numbers)
    for index, version in enumerate(history.versions):
        # Only the last version must hold everything, and only if the last process read the topic to its end.
        complete = history.drained and index == len(numbers) - 1
        rows = [row for row in version.rows if _as_sent(row, version, truth, findings)]
        (_upsert if history.sink == "upsert" else _append)(rows, version, complete, truth, findings)
    return findings.anomalies()


@dataclass(frozen=True)
class _Truth:
    """The records that were sent, and which of them a version must hold."""

    history: History
    by_place: Mapping[Place, Sent]

    @classmethod
    def of(cls, history: History) -> _Truth:
        by_place = {(sent.at, sent.offset): sent for sent in history.sent}
        if len(by_place) < len(history.sent):
            raise ValueError("two records were sent with the same topic, partition and offset")
        if history.sink == "upsert":
            home: dict[str, TopicPartition] = {}
            for sent in history.sent:
                if home.setdefault(sent.key, sent.at) != sent.at:
                    raise ValueError(f"key {sent.key!r} is in two partitions, whose offsets can't be compared")
        return cls(history, by_place)

    def since(self, at: TopicPartition) -> int:
        return self.history.since.get(at, 0)

    def due(self, version: Version, complete: bool) -> Iterable[Sent]:
        """The records that the version must hold, whatever earlier versions had."""
        for sent in self.history.sent:
            if sent.offset >= self.since(sent.at) and (complete or self.claimed(version, sent.at, sent.offset)):
                yield sent

    def claimed(self, version: Version, at: TopicPartition, offset: int) -> bool:
        return version.claims is not None and offset < version.claims.get(at, self.since(at))


@dataclass
class _Finding:
    """One anomaly over all versions that show it. ``kind`` None: the record is absent. If the last version lacks it,
    the record is lost or stale, and otherwise it has regressed."""

    record: Sent | Row
    kind: Kind | None
    first: int
    last: int
    note: str
    extra: int = 0
    stood: int | None = None
    older: bool = False
    """Whether the table has an older update instead."""


@dataclass
class _Findings:
    numbers: Sequence[int]
    stood: dict[Place, int] = field(default_factory=dict)
    """The last version that has the record."""
    best: dict[str, Sent | Row] = field(default_factory=dict)
    """The newest update per key that any version has (upsert)."""
    owed: dict[Place, Sent | Row] = field(default_factory=dict)
    """The records that a version had or claimed. Each later version must have them (upsert: or a newer update)."""
    found: dict[tuple[object, ...], _Finding] = field(default_factory=dict)

    def add(self, kind: Kind | None, record: Sent | Row, version: Version, note: str, extra: int = 0) -> None:
        identity = (kind, record.at, record.offset, *((record, note) if kind is Kind.UNEXPECTED else ()))
        known = self.found.setdefault(identity, _Finding(record, kind, version.number, version.number, note, extra))
        known.last, known.extra, known.note = version.number, max(known.extra, extra), note

    def absent(self, record: Sent | Row, version: Version, instead: Row | None) -> None:
        stood = self.stood.get((record.at, record.offset))
        note = "no row" if instead is None else f"the table has offset {instead.offset} instead"
        self.add(None, record, version, note)
        finding = self.found[(None, record.at, record.offset)]
        finding.stood, finding.older = stood, instead is not None

    def anomalies(self) -> tuple[Anomaly, ...]:
        return tuple(sorted((self._anomaly(finding) for finding in self.found.values()), key=Anomaly.order))

    def _anomaly(self, finding: _Finding) -> Anomaly:
        kind = finding.kind
        lasts = finding.last == self.numbers[-1]
        if kind is None:
            went_back = finding.stood is not None and finding.older
            kind = Kind.REGRESSED if not lasts else Kind.STALE if went_back else Kind.LOST
        record = finding.record
        return Anomaly(
            kind,
            record.topic,
            record.partition,
            record.offset,
            record.key,
            version=finding.first,
            until=None if lasts else min(number for number in self.numbers if number > finding.last),
            stood=finding.stood,
            extra=finding.extra,
            note=finding.note,
        )


def _as_sent(row: Row, version: Version, truth: _Truth, findings: _Findings) -> bool:
    """Whether the row represents a record that was sent. Adds a finding for each unexpected trait of the row."""
    unexpected: Callable[[str], None] = lambda note: findings.add(Kind.UNEXPECTED, row, version, note)  # noqa: E731
    sent = truth.by_place.get((row.at, row.offset))
    if sent is None:
        unexpected("never sent")
        return False
    if (sent.key, sent.value) != (row.key, row.value):
        unexpected(f"sent as key {sent.key!r}, value {sent.value}, here with key {row.key!r}, value {row.value}")
    elif row.offset < truth.since(row.at):
        unexpected("from before the pipeline began")
    elif version.claims is not None and not truth.claimed(version, row.at, row.offset):
        unexpected("beyond the offsets that the version claims")
    # In an upsert, a row under another key represents no update of that key.
    return truth.history.sink != "upsert" or sent.key == row.key


def _append(rows: Sequence[Row], version: Version, complete: bool, truth: _Truth, findings: _Findings) -> None:
    copies = Counter((row.at, row.offset) for row in rows)
    owed = findings.owed
    owed.update({(sent.at, sent.offset): sent for sent in truth.due(version, complete)})
    for place, record in owed.items():
        if place not in copies:
            findings.absent(record, version, instead=None)
    for place, number in copies.items():
        record = truth.by_place[place]
        findings.stood[place] = version.number
        owed[place] = record
        if number > 1:
            findings.add(Kind.DUPLICATED, record, version, plural(number, "row"), extra=number - 1)


def _upsert(rows: Sequence[Row], version: Version, complete: bool, truth: _Truth, findings: _Findings) -> None:
    by_key: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    due: dict[str, Sent] = {}
    for sent in truth.due(version, complete):
        if sent.key not in due or due[sent.key].offset < sent.offset:
            due[sent.key] = sent
    findings.owed.update({(sent.at, sent.offset): sent for sent in due.values()})
    stands = {key: max(of_key, key=lambda row: row.offset) for key, of_key in by_key.items()}
    for record in findings.owed.values():
        best = findings.best.get(record.key)
        # After a newer update of the key, only the newer one is owed.
        if best is None or best.offset <= record.offset:
            standing = stands.get(record.key)
            if standing is None or standing.offset < record.offset:
                findings.absent(record, version, instead=standing)
    for key, row in stands.items():
        findings.stood[(row.at, row.offset)] = version.number
        if key not in findings.best or findings.best[key].offset < row.offset:
            findings.best[key] = row
            findings.owed[(row.at, row.offset)] = row
        if len(by_key[key]) > 1:
            findings.add(
                Kind.DUPLICATED, row, version, plural(len(by_key[key]), "row") + " of the key", len(by_key[key]) - 1
            )
