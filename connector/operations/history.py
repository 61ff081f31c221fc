"""The epochs of a pipeline as its commits tell them: of one table by its history, of several sinks by the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from connector.config import DeltaPlace, PipelineConfig
from connector.display import Grid, Line, Page, Shown
from connector.engine.coordinator_log import Entry, Log
from connector.engine.letters_again import letters_version
from connector.operations.merged_history import merged
from connector.protocol.decided import State
from connector.telemetry.progress import span
from sinks.contract import Position
from sinks.delta.change_log import ChangeLog
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.delta.restore import BY_REWIND
from sinks.delta.table import DeltaTable
from sinks.gaps import added
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.recreated import is_retired, topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = 20
_FIRST_LOOK = 10


@dataclass(frozen=True)
class PastEpoch:
    """One epoch, as the commits and the coordinator log tell of it."""

    number: int
    at: datetime
    """When it was committed; of several sinks, when it was last heard of."""
    owner: str
    """The run that made it."""
    offsets: Offsets
    """Next offsets, after it."""
    state: str = "committed"
    """``committed``; of several sinks ``begun``, ``decided``, ``aborted`` or ``done``."""
    ranges: tuple[OffsetRange, ...] | None = None
    """What it read; None: the commit before it isn't known any more."""
    rows: int | None = None
    """That it wrote or changed; None where the commit doesn't say."""
    since_last: float | None = None
    """Seconds since the epoch before."""
    took: float | None = None
    """Seconds from its start to its end: of several sinks only, as nothing else says when it began."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds per part, where commits tell them: ``read``, ``match`` and ``write`` of a MERGE; ``prepare`` and
    ``commit`` of several sinks."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Sink -> its commit, in words: ``version 7``. With ``merge: on_read``, ``change log`` if the table has no version
    of it."""
    lost: tuple[OffsetRange, ...] = ()
    """What Kafka no longer held, and that was gone on without here."""
    notes: tuple[str, ...] = ()
    """What is out of the ordinary."""

    @property
    def records(self) -> int | None:
        """Offsets that it passed: an upper bound on the records."""
        return None if self.ranges is None else sum(each.span for each in self.ranges)


class PastEpochs(Shown, list[PastEpoch]):
    """The last epochs of a pipeline, newest first."""

    def __init__(self, pipeline: str, epochs: Iterable[PastEpoch]) -> None:
        super().__init__(epochs)
        self.pipeline = pipeline

    def page(self) -> Page:
        """A row per epoch."""
        if not self:
            return Page([Line("", f"{self.pipeline}: no epoch yet.")])
        headings = ("epoch", "committed (UTC)", "offsets", "rows", "after", "commit", "run", "remarks")
        several = any(len(epoch.commits) > 1 for epoch in self)
        rows = [_shown(epoch, several=several) for epoch in self]
        return Page([Grid(headings, rows, right=frozenset({"epoch", "offsets", "rows", "after"}))])


def _shown(epoch: PastEpoch, *, several: bool) -> Sequence[str]:
    """The cells of one epoch. ``several``: whether to name the sinks of its commits."""
    remarks = [*([] if epoch.state in ("committed", "done") else [epoch.state]), *epoch.notes]
    if epoch.lost:
        remarks.append(f"lost: {', '.join(map(str, epoch.lost))}")
    if epoch.took is not None:
        remarks.append(f"took {span(epoch.took)}")
    commits = [f"{sink}: {commit}" if several else commit for sink, commit in epoch.commits.items()]
    return (
        str(epoch.number),
        f"{epoch.at:%Y-%m-%d %H:%M:%S}",
        *("-" if number is None else f"{number:,}" for number in (epoch.records, epoch.rows)),
        span(epoch.since_last),
        "\n".join(commits) or "-",
        short(epoch.owner),
        "; ".join(remarks),
    )


def past(config: PipelineConfig, spark: SparkSession, last: int = LAST) -> PastEpochs:
    """The last epochs. Asks no Kafka, and settles nothing."""
    return PastEpochs(config.name, _past(config, spark, last))


def _past(config: PipelineConfig, spark: SparkSession, last: int) -> list[PastEpoch]:
    if config.two_phase:
        place = config.coordinator
        assert place is not None
        log = Log(spark, path=place.folder, name=place.table, pipeline=config.name, run="")
        return of_entries(log.entries(last + 1))[:last]
    sink = config.sinks[0]
    assert isinstance(sink, DeltaPlace)
    table = DeltaTable(spark, path=sink.folder, name=sink.table)
    if not table.exists():
        return []
    commits = _read(table, config.name, last)
    if config.merged_on_read is not None:
        changes = ChangeLog(table, pipeline=config.name, topics=config.source.topics).table
        appended = _read(changes, config.name, last) if changes.exists() else []
        history = merged(commits, appended, config.name)
        return of_commits(history.commits, config.name, sink.place, history.names)[:last]
    return of_commits(commits, config.name, sink.place)[:last]


def _read(table: DeltaTable, pipeline: str, last: int) -> list[Commit]:
    """The newest commits, without copies of metadata.

    The history also has the commits of others: it is read further back until there are enough of the pipeline's.
    """
    limit = 2 * last + _FIRST_LOOK
    while True:
        commits = table.history(limit)
        claimed = {
            commit.version: metadata.epoch
            for commit in commits
            if (metadata := CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline))
        }
        if len(claimed) > last or len(commits) < limit:
            break
        limit *= 4
    log = table.log
    taken = log.txns(list(claimed), pipeline) if log is not None else {}
    return without_copies(commits, lambda version: version in claimed and claimed[version] == taken.get(version))


def without_copies(commits: Iterable[Commit], is_own: Callable[[int], bool]) -> list[Commit]:
    """The commits, without metadata that is a stale copy. ``is_own``: whether the commit of this version really took
    its epoch. What a rewind says is no metadata of an epoch, and stays."""
    return [
        each if is_own(each.version) or each.user_metadata == BY_REWIND else replace(each, user_metadata=None)
        for each in commits
    ]


def of_commits(
    commits: Sequence[Commit], pipeline: str, place: str, names: Mapping[int, str] = MappingProxyType({})
) -> list[PastEpoch]:
    """Of a table's history, newest first. ``names``: version -> the commit in words, unless it is that version."""

    def name(version: int) -> str:
        return names.get(version, f"version {version}")

    standing: dict[int, Position | None] = {}
    """Version -> the commit of ours that the table goes on from there."""
    found: list[tuple[int, PastEpoch]] = []
    stands: Position | None = None
    before: Position | None = None
    known = bool(commits) and min(each.version for each in commits) == 0
    aside: list[str] = []
    at: datetime | None = None
    runs: list[str] = []
    for commit in sorted(commits, key=lambda each: each.version):
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
        if metadata is not None:
            found.append(
                (
                    commit.version,
                    PastEpoch(
                        number=metadata.epoch,
                        at=commit.timestamp,
                        owner=metadata.owner,
                        offsets=metadata.offsets,
                        ranges=_ranges(stands, metadata.position) if known or stands is not None else None,
                        rows=commit.written.rows,
                        phases=commit.written.seconds,
                        since_last=(commit.timestamp - at).total_seconds() if at else None,
                        commits={place: name(commit.version)},
                        lost=added(metadata.position.lost, stands.lost if stands is not None else ())
                        if known or stands is not None
                        else (),
                        notes=(*aside, *_notes(before, metadata.position, runs)),
                    ),
                )
            )
            stands = before = metadata.position
            at, aside, runs = commit.timestamp, [], [*runs, metadata.owner]
        elif commit.operation == "RESTORE":
            restored = commit.goes_on_from
            rewound = commit.user_metadata == BY_REWIND
            aside.append(f"the table was {'rewound' if rewound else 'restored'} before it, in {name(commit.version)}")
            known = known and restored in standing
            stands = standing.get(restored) if restored is not None else None
        elif commit.operation == "CLONE":
            aside.append("the table is a clone: it goes on from the position of what was cloned")
            known, stands, before = False, None, None
        standing[commit.version] = stands
    undone = _undone(commits, name)
    return [_taken_back(epoch, *undone.get(version, ("", False))) for version, epoch in reversed(found)]


def _undone(commits: Sequence[Commit], name: Callable[[int], str]) -> dict[int, tuple[str, bool]]:
    """The versions that haven't led to the newest one, or may not have: by what they were taken back, and whether that
    is sure. Of a clone over the table, and of a RESTORE to a time, nobody knows what it left."""
    by_version = {each.version: each for each in commits}
    undone: dict[int, tuple[str, bool]] = {}
    version: int | None = max(by_version, default=None)
    while version is not None and version in by_version:
        commit = by_version[version]
        target, what = commit.goes_on_from, "rewind" if commit.user_metadata == BY_REWIND else "RESTORE"
        how = f"the clone in {name(version)}" if commit.operation == "CLONE" else f"the {what} of {name(version)}"
        after = -1 if target is None else target
        undone |= {each: (how, target is not None) for each in by_version if after < each < version}
        version = target
    return undone


def of_entries(entries: Iterable[Entry]) -> list[PastEpoch]:
    """Of a coordinator log, in any order; the newest epoch first."""
    by_epoch: dict[int, list[Entry]] = {}
    for entry in sorted(entries, key=lambda each: each.number):
        by_epoch.setdefault(entry.row.epoch.number, []).append(entry)
    found: list[PastEpoch] = []
    before: Position | None = None
    runs: list[str] = []
    for number, of_it in sorted(by_epoch.items()):
        newest, done = of_it[-1], next((each for each in reversed(of_it) if each.row.state is State.DONE), None)
        decided = next((each for each in reversed(of_it) if each.row.state is State.DECIDED), None)
        epoch = (done or decided or newest).row.epoch
        position = epoch.position()
        notes = list(_notes(before, position, runs))
        back_to = decided.row.back_to if decided is not None else None
        if back_to is not None:
            notes.append(f"a rewind: all tables went back to epoch {back_to}" if back_to else "a rewind to the start")
        aborted = sum(each.row.state is State.ABORTED for each in of_it)
        if aborted:
            notes.append("begun and thrown away once" if aborted == 1 else f"begun and thrown away {aborted} times")
        helpers = {each.row.run for each in of_it if each.row.state in (State.DONE, State.DECIDED)} - {epoch.owner}
        notes += [f"finished by run {short(helper)}, after a crash" for helper in sorted(helpers)]
        if newest.row.state in (State.BEGUN, State.DECIDED):
            notes.append("in doubt: its run is at work, or was killed, and the next one settles it")
        begun = next((each.at for each in reversed(of_it) if each.row.state is State.BEGUN), None)
        rows = [each.rows for each in decided.row.prepared.values()] if decided else []
        found.append(
            PastEpoch(
                number=number,
                at=newest.at,
                owner=epoch.owner,
                offsets=epoch.offsets,
                state=newest.row.state.value,
                ranges=epoch.ranges,
                rows=sum(rows) if decided else None,
                since_last=(newest.at - found[-1].at).total_seconds() if found else None,
                took=(done.at - begun).total_seconds() if done and begun else None,
                phases=_phases(begun, decided, done),
                commits=_commits(decided, done) if done else {},
                lost=added(epoch.lost, before.lost) if before is not None else (),
                notes=tuple(notes),
            )
        )
        if newest.row.state is not State.ABORTED:
            before, runs = position, [*runs, epoch.owner]
    return found[::-1]


def _phases(begun: datetime | None, decided: Entry | None, done: Entry | None) -> dict[str, float]:
    if begun is None or decided is None or done is None:
        return {}
    return {
        "prepare": (decided.at - begun).total_seconds(),
        "commit": (done.at - decided.at).total_seconds(),
    }


def _commits(decided: Entry | None, done: Entry) -> dict[str, str]:
    """Of the sinks that got rows of the epoch."""
    prepared = decided.row.prepared if decided is not None else {}
    passed_by = [sink for sink, each in prepared.items() if each.passes_by]
    return {sink: in_words(reads) for sink, reads in done.row.reads.items() if sink not in passed_by}


def short(run: str) -> str:
    """Enough of a run's id to tell it from others on a page."""
    return run[:8]


def in_words(reads: Mapping[str, Any]) -> str:
    """How a reader sees a sink as of an epoch."""
    if "version" in reads:
        return f"version {reads['version']}"
    if "ends" in reads:
        return "transaction, up to " + ", ".join(
            f"{topic}-{partition}: {end}" for topic, ends in reads["ends"].items() for partition, end in ends.items()
        )
    return ", ".join(f"{name} {value}" for name, value in reads.items()) or "committed"


def _ranges(before: Position | None, after: Position) -> tuple[OffsetRange, ...]:
    def start(at: TopicPartition) -> int:
        known = before.offsets.get(at) if before is not None else None
        return known if known is not None else after.since.get(at, 0)

    return tuple(
        OffsetRange(at.topic, at.partition, start(at), end)
        for at, end in after.offsets.items()
        if end > start(at) and not is_retired(at.topic)
    )


def _notes(before: Position | None, after: Position, runs: Sequence[str]) -> list[str]:
    notes = []
    if before is not None:
        if before.delivery != after.delivery:
            notes.append(f"delivery changed from {before.delivery} to {after.delivery}")
        gone = filter(is_retired, sorted(after.offsets.topics - before.offsets.topics))
        notes += [f"topic {topic_of(name)} was recreated" for name in gone]
        if after.epoch > before.epoch + 1:
            notes.append(f"epoch numbers from {before.epoch + 1} to {after.epoch - 1} have no commit")
        if after.owner in runs and runs[-1] != after.owner:
            notes.append(f"run {short(after.owner)} goes on after another run's epoch: two were active")
    missed = [str(gap) for gap in added(after.missed, before.missed)] if before is not None else []
    if missed:
        notes.append(f"deletes may be missing in {', '.join(missed)}")
    if after.batch:
        of_letters = letters_version(after.batch) is not None
        notes.append("dead letters sent again" if of_letters else f"batch {after.batch} of a streaming query")
    return notes


def _taken_back(epoch: PastEpoch, how: str, sure: bool) -> PastEpoch:
    if not how:
        return epoch
    if not sure:
        return replace(epoch, notes=(*epoch.notes, f"{how} may have taken it back"))
    return replace(epoch, state="taken back", notes=(*epoch.notes, f"taken back by {how}"))
