"""What a table claims to hold, by the metadata of its commits, and what of it Kafka can still show. Pure.

Everything here is written a second time on purpose: the auditor shares no code with the pipeline, so that one mistake
can't be in both.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from connector.audit.missed import missed_before
from sinks.errors import UnsupportedFormat
from sinks.plurals import first_of, plural, some_of

FORMAT = 3
_UNPACKED_BYTES = 256 << 20
_SHOWN = 5


class At(NamedTuple):
    """One topic-partition."""

    topic: str
    partition: int


Next = Mapping[At, int]
"""Next offset per topic-partition: 5 means that the claim has 0 to 4."""


class Range(NamedTuple):
    """Offsets ``[start, end)`` of one topic-partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def at(self) -> At:
        """The topic-partition of the range."""
        return At(self.topic, self.partition)


class Segment(NamedTuple):
    """Versions ``after < version <= upto`` of the table's history. They follow the RESTORE at ``after`` (-1: none)."""

    after: int
    upto: int


def lineage(version: int, restored: Mapping[int, int]) -> list[Segment]:
    """The versions that led to ``version``, newest first.

    ``restored``: version of a RESTORE -> the version that it went back to. Raises ValueError if that isn't an earlier
    one.
    """
    segments = []
    while True:
        last = max((at for at in restored if at <= version), default=-1)
        segments.append(Segment(last, version))
        if last < 0:
            return segments
        if restored[last] >= last:
            raise ValueError(f"version {last} can't have restored version {restored[last]}")
        version = restored[last]


@dataclass(frozen=True)
class Metadata:
    """What a commit of the pipeline says of itself."""

    version: int
    epoch: int
    offsets: Next
    since: Next | None
    topics: Mapping[str, str]
    lost: tuple[Range, ...]
    delivery: str
    table: str = ""
    """Delta's id of the table that it was made for. Empty where it isn't known."""
    folded: tuple[str, int] | None = None
    """Of a change log: Delta's id of its table, and an epoch that this had by then."""
    missed: tuple[Range, ...] = ()
    """As in ``Claim``."""
    gone: Mapping[str, str | None] = field(default_factory=dict)
    """Topics that Kafka no longer had, and the time up to which they were surely read. None: to their end."""
    read_to: str = ""
    """The time up to which everything was read. Empty: nobody says."""
    read_to_of: Mapping[str, str | None] = field(default_factory=dict)
    """Topics with a time of their own. None: nobody says."""
    group: str = ""
    """The consumer group that has the offsets of a weaker delivery. Empty where it isn't known."""

    def all_read_to(self, topic: str) -> str:
        """The time up to which this topic was read. Empty: nobody says."""
        return min(self.read_to, self.read_to_of.get(topic, self.read_to) or "")

    @property
    def ids(self) -> dict[str, str | None]:
        """Topic -> the id that its offsets belong to, None where it isn't known."""
        return {at.topic: self.topics.get(at.topic) for at in self.offsets}


def metadata(text: str, *, version: int, pipeline: str) -> Metadata | None:
    """Read ``commitInfo.userMetadata``; None if it can't be understood. Raises UnsupportedFormat for a later format."""
    try:
        fields = json.loads(text)
        if fields["lakelock"] > FORMAT:
            raise UnsupportedFormat(
                f"Version {version} of the table was committed by pipeline {pipeline!r} in format "
                f"{fields['lakelock']}; this version of lakelock reads up to format {FORMAT}.",
                hint="Verify with the version of lakelock that wrote the table, or a later one.",
            )
        if "packed" in fields:
            unpacked = zlib.decompressobj().decompress(base64.b85decode(fields["packed"]), _UNPACKED_BYTES)
            fields |= json.loads(unpacked)
        return Metadata(
            version,
            int(fields["epoch"]),
            _flat(fields["offsets"]),
            _flat(fields["since"]) if fields.get("since") else None,
            dict(fields.get("topics") or {}),
            tuple(Range(*lost) for lost in fields.get("lost") or ()),
            str(fields.get("delivery", "transactional")),
            str(fields.get("table") or ""),
            (str(fields["folded"][0]), int(fields["folded"][1])) if fields.get("folded") else None,
            tuple(Range(*missed) for missed in fields.get("missed") or ()),
            dict(fields.get("gone") or {}),
            str(fields.get("read_to") or ""),
            dict(fields.get("read_to_of") or {}),
            str(fields.get("group") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, IndexError, zlib.error):
        return None


def _flat(nested: Mapping[str, Mapping[str, int] | list[int]]) -> dict[At, int]:
    """From ``{"topic": {"0": 123}}``, or from the packed form ``{"topic": [123]}``."""
    return {
        At(topic, int(partition)): int(offset)
        for topic, partitions in nested.items()
        for partition, offset in (enumerate(partitions) if isinstance(partitions, list) else partitions.items())
    }


def nested(offsets: Next) -> dict[str, dict[str, int]]:
    """Offsets as Spark writes them: ``{"topic": {"0": 123}}``."""
    written: dict[str, dict[str, int]] = {}
    for at, offset in sorted(offsets.items()):
        written.setdefault(at.topic, {})[str(at.partition)] = offset
    return written


@dataclass(frozen=True)
class Claim:
    """The table claims to hold the records of ``[since, offsets)`` without ``lost``, and no others."""

    delivery: str
    since: Next
    offsets: Next
    lost: tuple[Range, ...] = ()
    missed: tuple[Range, ...] = ()
    """Ranges that the pipeline read so late that Kafka may have forgotten deletes in them."""
    unknown: tuple[str, ...] = ()
    """Sentences: why the table can't be called exact, whatever the comparison finds."""
    by_rows: bool = False
    """No commit of the pipeline tells where the claim ends: the table's rows do."""

    @property
    def commits_later(self) -> bool:
        """Whether records beyond the claim may be in the table: offsets are committed to Kafka after the rows, or the
        last records made no rows."""
        return self.by_rows or self.delivery != "transactional"

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: since, offsets, lost."""
        return {
            "since": nested(self.since),
            "offsets": nested(self.offsets),
            "lost": [list(lost) for lost in self.lost],
        }


@dataclass(frozen=True)
class Logged:
    """What a coordinator log says of one table."""

    epoch: int
    """The last epoch that is in all tables."""
    offsets: Next
    """Up to where that epoch is."""
    holds: int = 0
    """The last epoch of which the table has a commit: later ones had no rows for it. 0: nobody knows."""
    gone: Mapping[str, str | None] = field(default_factory=dict)
    """As in ``Metadata``."""
    missed: tuple[Range, ...] = ()
    """As in ``Claim``, where epochs may have passed the table by that missed deletes of its rows."""


class Extent(NamedTuple):
    """The coordinates in the table's rows of one topic-partition: the lowest offset, and the one after the highest."""

    first: int
    next: int


@dataclass(frozen=True)
class Held:
    """What Kafka holds: ``beginnings`` and ``ends`` have every partition of every topic."""

    beginnings: Next
    ends: Next
    ids: Mapping[str, str]
    compacted: frozenset[str] = frozenset()
    """Topics that are compacted, or may be."""
    untold: frozenset[str] = frozenset()
    """Those of them whose cleanup policy Kafka doesn't tell."""


def claimed(
    found: Metadata | None,
    first: Metadata | None = None,
    *,
    delivery: str,
    partitions: Iterable[At],
    committed: Next,
    rows: Callable[[], Mapping[At, Extent]],
    older_version: bool,
    from_earliest: bool,
) -> tuple[Claim, list[str]]:
    """The claim, and notes on what had to be assumed.

    ``found`` is the pipeline's newest commit, ``first`` the oldest that the history has. ``delivery`` is the pipeline
    file's; it counts if there is no such commit. ``committed`` are the offsets of the consumer group, which say nothing
    about an ``older_version`` of the table. ``rows`` gives the coordinates of the table's rows; it is called only if
    nothing else tells. ``from_earliest``: the pipeline file says ``start: earliest``.
    """
    notes = []
    delivery = found.delivery if found else delivery
    weaker = delivery != "transactional"
    by_group = weaker and not older_version and (found is not None or bool(committed))
    by_rows = not by_group and (found is None or weaker)
    since = found.since if found else None
    partitions = set(partitions)
    without_offset = {at for at in partitions if at not in committed} if by_group else set()
    extents = rows() if by_rows or without_offset or (since is None and not from_earliest) else {}

    starts: dict[At, int] = {}
    ends: dict[At, int] = {}
    unknown: list[str] = []
    for at in sorted({*partitions, *(found.offsets if found else ()), *(since or ()), *extents}):
        extent = extents.get(at, Extent(0, 0))
        # A partition that was added later has to be there from offset 0 on, whatever a later commit says.
        begins = since.get(at, 0) if since is not None else 0 if from_earliest else extent.first
        starts[at] = 0 if _was_added(at, found, first) else begins
        if starts[at] < begins:
            unknown.append(_skipped(at, begins))
        ends[at] = max(
            starts[at],
            found.offsets.get(at, 0) if found else 0,
            committed.get(at, 0) if by_group else 0,
            extent.next if by_rows or at in without_offset else 0,
        )
    if forgotten := sorted(at for at in without_offset if found is not None and at in found.offsets):
        unknown.append(_forgotten(forgotten))
    if found is None:
        rows_too = "" if by_group or extents else ", and the table no rows of its topics"
        notes.append(f"The table's history has no commit of this pipeline{rows_too}.")
        if rows_too:
            unknown.append("Nothing says that this pipeline has written the table.")
    if by_rows and extents:
        why = "The consumer group's offsets don't apply to an older version of the table: t" if older_version else "T"
        notes.append(f"{why}he claim is taken to end at the last coordinates of the table's rows.")
    if since is None and any(ends.values()):
        assumed = "offset 0, as source.start is earliest" if from_earliest else "the first coordinates of its rows"
        notes.append(f"Where the pipeline began isn't known; taken: {assumed}. Records lost before that don't show.")
        if any(starts.values()):
            unknown.append("Where the pipeline began isn't known.")
    return Claim(delivery, starts, ends, *_gaps(found), tuple(unknown), by_rows and found is None), notes


def _gaps(found: Metadata | None) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    return (found.lost, found.missed) if found is not None else ((), ())


def not_from_earliest(found: Metadata | None, claim: Claim, beginnings: Next) -> list[str]:
    """A note on records that Kafka holds from before the claim, of a file with ``start: earliest``.

    ``found``: as in ``claimed``. The ``beginnings`` of what Kafka holds only grow: the records were there at first.
    """
    starts = {at: claim.since[at] for at in (found.since if found else None) or () if at in claim.since}
    before = {at: start - beginnings[at] for at, start in starts.items() if beginnings.get(at, start) < start}
    if not before:
        return []
    shown = first_of([f"{at.topic}-{at.partition} at {starts[at]}" for at in sorted(before)], _SHOWN)
    return [
        f"The table's commits say that the pipeline began later than the earliest records ({shown}), although "
        f"the file says start: earliest. Kafka holds {plural(sum(before.values()), 'offset')} from before that, which "
        f"{'is' if sum(before.values()) == 1 else 'are'} not part of the claim."
    ]


def _skipped(at: At, begins: int) -> str:
    return (
        f"{at.topic}-{at.partition} was added after the first epoch and is in the table from offset {begins} on. No "
        "commit says why the records before that aren't."
    )


def _forgotten(partitions: Sequence[At]) -> str:
    """A weaker delivery's commit says where it began, and the group got an offset of each partition then."""
    shown = some_of([f"{at.topic}-{at.partition}" for at in partitions], _SHOWN)
    return (
        f"The consumer group has no offset of {shown} any more, and only it knew how far the table claims to go. "
        "The claim is taken to end at the last coordinates of the table's rows."
    )


def _was_added(at: At, found: Metadata | None, first: Metadata | None) -> bool:
    """Whether the partition, or its topic, was added after the first epoch."""
    if found is None or first is None or first.epoch != 1 or first.since is None or at in first.since:
        return False
    return at.topic not in first.topics or first.topics[at.topic] == found.topics.get(at.topic)


@dataclass(frozen=True)
class Bounds:
    """One partition of the claim. Records of ``[begin, stop)`` can be compared; ``since <= begin <= stop <= end``."""

    at: At
    since: int
    begin: int
    stop: int
    end: int
    compacted: bool
    lost: tuple[Range, ...] = ()
    untold: bool = False
    """Whether Kafka doesn't tell its topic's cleanup policy. Then it counts as compacted."""
    missed: int = 0
    """Rows of records before this offset may have been deleted, unseen by the pipeline."""
    to_end: bool = False
    """Whether Kafka's log ends where the claim does."""


def bounds(claim: Claim, held: Held) -> list[Bounds]:
    """The part of the claim that Kafka can show, per partition."""
    cut = []
    lost: dict[At, list[Range]] = {}
    for gap in sorted(claim.lost):
        if gap.start < gap.end:
            lost.setdefault(gap.at, []).append(gap)
    late = missed_before(claim.missed, claim.offsets)
    for at, end in claim.offsets.items():
        since = claim.since[at]
        begin = min(max(since, held.beginnings.get(at, end)), end)
        stop = min(max(begin, held.ends.get(at, end)), end)
        compacted, untold = at.topic in held.compacted or at in late, at.topic in held.untold
        gaps, missed, to_end = tuple(lost.get(at, ())), late.get(at, 0), held.ends.get(at) == end
        cut.append(Bounds(at, since, begin, stop, end, compacted, gaps, untold, missed, to_end))
    return cut


def shows_all(cut: Sequence[Bounds]) -> bool:
    """Whether Kafka shows every record of the claim: nothing has removed one, nor may have compacted one away."""
    return not unchecked(cut) and not any(part.compacted for part in cut)


def unchecked(cut: Sequence[Bounds]) -> list[Range]:
    """The ranges of the claim that Kafka can't show: retention removed them, or its log ends before the claim does."""
    ranges = []
    for part in cut:
        for start, end in ((part.since, part.begin), (part.stop, part.end)):
            for gap in part.lost:
                if start < gap.start < end:
                    ranges.append(Range(*part.at, start, gap.start))
                if start < gap.end and gap.start < end:
                    start = gap.end
            if start < end:
                ranges.append(Range(*part.at, start, end))
    return ranges
