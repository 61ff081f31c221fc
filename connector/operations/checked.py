"""What `lakelock check` finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connector.display import Line, Page, Shown
from sinks.contract import Position
from sinks.offsets import Offsets
from sinks.plurals import plural


@dataclass(frozen=True)
class CheckedSink:
    """One sink as `check` found it.

    ``exists`` says whether it is there; ``columns`` are those that a run would write; ``rules`` are the table's own, in
    words.
    """

    kind: str
    """``table`` or ``sink``."""
    place: str
    """The absolute path, the URI or the name of a table; else what the file calls the sink."""
    exists: bool
    columns: Sequence[str]
    rules: Sequence[str] = ()
    made_by: str = ""
    """The SQL that would make the table, if its sink says how. Empty: it is there."""
    differs: Sequence[str] = ()
    """How a table that is there differs from what its sink says of its layout."""


@dataclass(frozen=True)
class Fault:
    """Records of a sample that have the same thing wrong with them."""

    detail: str
    count: int
    topic: str
    partition: int
    offset: int
    """The coordinates of the first one: this, and ``topic`` and ``partition``."""


@dataclass(frozen=True)
class Sample:
    """A few records of each topic, decoded."""

    records: Mapping[str, int] = field(default_factory=dict)
    """How many were read of each topic."""
    faults: Sequence[Fault] = ()
    rows: Sequence[str] = ()
    """The first rows for the first sink, as JSON objects."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Of a route: how many of them are for which table."""
    warnings: Sequence[str] = ()
    """About the fields of tables with a schema of their own."""

    @property
    def bad(self) -> int:
        """How many of the records are bad."""
        return sum(fault.count for fault in self.faults)


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """What `check` found: the sinks as they would be used, and where a run would start."""

    pipeline: str
    sinks: Sequence[CheckedSink]
    log: str | None
    """Where the coordinator log is, in words. None: the file names none."""
    start: str
    """The file's ``source.start``, for a table without a position."""
    position: Position | None
    next_offsets: Offsets
    behind: int
    sample: Sample
    """A few of the records that a run would read next."""
    stops_at_bad: bool = False
    """Whether a bad record stops a run."""
    warnings: Sequence[str] = ()
    notifies: Sequence[str] = ()
    """What a run would tell a webhook of."""

    @property
    def refused(self) -> Fault | None:
        """The first bad record at which a run would stop."""
        if not self.stops_at_bad:
            return None
        return min(self.sample.faults, key=lambda fault: (fault.topic, fault.partition, fault.offset), default=None)

    def page(self) -> Page:
        """A line for each thing that was looked at, and what was found of it."""
        lines = [
            Line("file", f"ok: pipeline {self.pipeline}"),
            Line("kafka", f"ok: {', '.join(sorted(self.next_offsets.topics))}"),
        ]
        for sink in self.sinks:
            place = _from_here(sink.place)
            lines.append(Line(sink.kind, f"ok: {place} {'fits' if sink.exists else 'will be made'}"))
            if sink.columns:  # of a route each table may have its own
                lines.append(Line("columns", ", ".join(sink.columns)))
            lines += [Line("rule", rule) for rule in sink.rules]
            lines += [Line(" " if number else "layout", line) for number, line in enumerate(sink.made_by.splitlines())]
            lines += [Line("differs", difference) for difference in sink.differs]
        if self.log is not None:
            lines.append(Line("log", self.log))
        where = f"after epoch {self.position.epoch}" if self.position else f"at {self.start}"
        lines.append(Line("position", f"{where}: next {self.next_offsets.to_json()}"))
        lines.append(Line("behind", plural(self.behind, "offset")))
        if self.notifies:
            lines.append(Line("notify", f"{', '.join(self.notifies)}: nothing was sent"))
        return Page(
            [*lines, *_sample_lines(self.sample), *(Line("warning", warning, "warning") for warning in self.warnings)]
        )


def _from_here(place: str) -> str:
    """A path in the working directory as it is reached from there. All else as it is."""
    here = Path.cwd()
    return str(Path(place).relative_to(here)) if Path(place).is_relative_to(here) else place


def records_line(sample: Sample) -> Line:
    """How many records were looked at, and how many are bad."""
    looked_at = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(sample.records.items()))
    return Line("records", (looked_at or "none there yet") + (f": {sample.bad:,} bad" if sample.bad else ""))


def _sample_lines(sample: Sample) -> Iterator[Line]:
    yield records_line(sample)
    for fault in sample.faults:
        where = f"(first: {fault.topic}-{fault.partition}, offset {fault.offset})"
        yield Line("bad", f"{fault.count:,}: {fault.detail} {where}", "bad")
    if sample.tables:
        yield Line("tables", ", ".join(f"{count:,} for {name}" for name, count in sample.tables.items()))
    for row in sample.rows:
        yield Line("row", row)
