"""What `lakelock status` finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from connector.config import PipelineConfig
from connector.display import Bar, Grid, Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.engine.in_parallel import of_each
from connector.engine.outputs import Table
from connector.protocol.decided import Row, strayed
from connector.protocol.gone import after
from connector.protocol.read_to import ahead, of_wrong_clock
from connector.protocol.recover import TopicsHeld, reached
from connector.protocol.recreated import recreated
from connector.protocol.same_group import refuse_another_group, refuse_undone
from connector.spark.rights import denied
from sinks.contract import Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.plurals import plural
from sinks.recreated import is_retired, topic_of


@dataclass(frozen=True, repr=False)
class Status(Shown):
    """Where a pipeline stands: what its table holds, next to what Kafka holds."""

    pipeline: str
    delivery: str
    sinks: Sequence[str]
    position: Position | None
    """The table's position. With several sinks, where all of them stand by the coordinator log."""
    offsets: Offsets
    """The next offsets: the table's, or the consumer group's if the delivery keeps them there."""
    held: TopicsHeld
    next_times: Mapping[TopicPartition, datetime | None] = field(default_factory=dict)
    """Kafka's timestamp of the next record, per partition that has offsets to read and answered in time. None: no
    record is at these offsets."""
    unfolded: int | None = None
    """The number of epochs that the change log has and the table lacks. None without ``merge: on_read``."""
    in_doubt: Row | None = None
    """An epoch that may be in some of the sinks only. Its run is at work on it, or was killed."""

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """The offsets from the next one to the last that is written, per partition, those in ``gone`` included: an
        upper bound on the records. Some may be ``held_back``.
        """
        return {at: max(0, end - self._next[at]) + self._held_back(at) for at, end in self.held.ends.items()}

    def _held_back(self, at: TopicPartition) -> int:
        return self.held.held_back[at].offsets if at in self.held.held_back else 0

    @cached_property
    def _next(self) -> Mapping[TopicPartition, int]:
        return next_offsets(self.position, self.offsets, self.held)

    @property
    def gone(self) -> Sequence[OffsetRange]:
        """Ranges that were never read and that Kafka no longer holds. A run stops there."""
        return [
            OffsetRange(at.topic, at.partition, self._next[at], beginning)
            for at, beginning in self.held.beginnings.items()
            if self._next[at] < beginning
        ]

    @property
    def cut(self) -> Sequence[OffsetRange]:
        """Ranges that were read and that lie after Kafka's end: the log was cut. A run stops there."""
        return [
            OffsetRange(at.topic, at.partition, end, self._next[at])
            for at, end in self.held.ends.items()
            if self._next[at] > end
        ]

    @property
    def replaced(self) -> str:
        """How somebody else has replaced what the table had, if so. A run stops there.

        With several tables also that one doesn't hold what the coordinator log says. Those of a route aren't asked:
        ``Pipeline.check`` asks them."""
        return self.position.replaced if self.position is not None else ""

    @property
    def recreated(self) -> frozenset[str]:
        """Topics that were recreated since. The stored offsets belong to the old ones."""
        return frozenset(recreated(self.position, self.held)) if self.position else frozenset()

    @property
    def lag_seconds(self) -> Mapping[TopicPartition, float | None]:
        """How many seconds the next record has been waiting, per partition; 0 if no record waits. None: nobody knows,
        as Kafka didn't give the record in time.
        """
        return {at: self._waits(at, lag) for at, lag in self.lag.items()}

    @property
    def max_lag_seconds(self) -> float | None:
        """The longest of them. None if one that isn't known may be longer."""
        known = [seconds for seconds in self.lag_seconds.values() if seconds is not None]
        return max(known, default=0.0) if len(known) == len(self.lag_seconds) else None

    def _waits(self, at: TopicPartition, lag: int) -> float | None:
        since = self.next_times.get(at)
        if since is None and (at in self.next_times or lag == self._held_back(at)):  # none of them can be read
            since = self.held.held_back[at].since if at in self.held.held_back else self.held.asked_at
        return None if since is None else max(0.0, (self.held.asked_at - since).total_seconds())

    def page(self) -> Page:
        """Where the pipeline stands, what would stop a run, and the lag of each partition."""
        lines = [Line("pipeline", self.pipeline), Line("delivery", self.delivery)]
        lines += [Line("table" if len(self.sinks) == 1 else "sink", sink) for sink in self.sinks]
        if self.in_doubt:
            lines.append(doubt(self.in_doubt))
        if self.position is None:
            lines.append(Line("epoch", "none yet: the first run starts at source.start"))
        else:
            lines += [*_position_lines(self.position, self.unfolded), *_gap_lines(self, self.position)]
        return Page([*lines, self._lag_grid()], labels=13)

    def _lag_grid(self) -> Grid:
        """A row per partition: next offset, end, and how far the table is behind. The longest lag has a whole bar."""
        longest, seconds = max([*self.lag.values(), 1]), self.lag_seconds
        rows = [
            (
                at.topic,
                str(at.partition),
                f"{self.offsets[at]:,}" if at in self.offsets else "-",
                f"{self.held.ends[at] + self._held_back(at):,}",
                Bar(f"{lag:,}", lag / longest),
                "-" if (waits := seconds[at]) is None else f"{waits:,.0f}",
            )
            for at, lag in self.lag.items()
        ]
        headings = ("topic", "partition", "next", "end", "lag", "seconds")
        return Grid(headings, rows, right=frozenset(headings[1:]))


def next_offsets(position: Position | None, offsets: Offsets, held: TopicsHeld) -> dict[TopicPartition, int]:
    """The next offset to read of each partition that Kafka holds.

    As in a run, a partition that isn't in the position has appeared since, and stands at offset 0. So do those of a
    recreated topic, of which the stored offsets say nothing.
    """
    if position is None:
        return {at: offsets.get(at, beginning) for at, beginning in held.beginnings.items()}
    recreated_topics = recreated(position, held)
    return {at: 0 if at.topic in recreated_topics else offsets.get(at, 0) for at in held.beginnings}


def status_of(config: PipelineConfig, assembly: Assembly) -> Status:
    """Where the pipeline of ``assembly`` stands, next to what Kafka holds. Changes nothing. Raises LakelockError."""
    # The tables of a route are too many to be asked each time that somebody looks.
    position, offsets, in_doubt = stands(assembly, asks=assembly.routes is None)
    held = assembly.source.look()
    waiting = {at: max(next_, held.beginnings[at]) for at, next_ in next_offsets(position, offsets, held).items()}
    return Status(
        config.name,
        config.delivery,
        [output.label for output in assembly.outputs],
        position,
        offsets,
        held,
        assembly.source.next_times(Offsets(waiting), held.ends),
        _unfolded(config, assembly, position),
        in_doubt,
    )


def _unfolded(config: PipelineConfig, assembly: Assembly, position: Position | None) -> int | None:
    """The number of epochs that the change log has and the table lacks; None without ``merge: on_read``, unless an
    earlier file has left some."""
    several = assembly.log is not None and config.merged_on_read is None
    log = assembly.table.derivation.log if not several else None
    if log is None or position is None or log.folded is None:
        return None
    return max(0, position.epoch - log.folded.epoch)


def stands(assembly: Assembly, *, asks: bool = True) -> tuple[Position | None, Offsets, Row | None]:
    """The position, the next offsets, and the epoch that is in doubt. Settles nothing.

    ``asks``: whether to ask each of several tables, if they hold what the coordinator log says. Raises
    ConfigurationError where the file's consumer group can't tell the offsets.
    """
    if assembly.log is not None:
        known = assembly.log.read()
        if known.decided is None:
            return None, Offsets(), known.in_doubt
        strays = strayed(_of_tables(assembly, known.decided), known) if asks else ""
        position = replace(known.decided.epoch.position(), committed_at=assembly.log.since(), replaced=strays)
        return position, position.offsets, known.in_doubt
    table = assembly.table
    stood = _stood(table) if table.table.detail() is not None else None
    if stood is None:
        return None, Offsets(), None
    group = assembly.group
    # As a run does: another group's offsets would show a lag, or none, that is of something else.
    refuse_another_group(stood, group.name, assembly.config.name)
    refuse_undone(stood, group.name)
    if stood.delivery == "transactional":
        return stood, stood.offsets, None
    return stood, reached(stood, group.committed(), assembly.source.look(), group.name), None


def _stood(table: Table) -> Position | None:
    """The position of the table, with what is in its change log, also if the file merges on write by now."""
    log = table.derivation.log
    if log is None or log is table.derivation.sink:
        return table.derivation.sink.position()
    try:
        left = log.started and log.standing().unfolded
    except Exception as error:
        if not denied(error):
            raise
        left = False  # who may read a table by its name needn't be let into the folders under it
    return log.position() if left else table.derivation.sink.position()


def _of_tables(assembly: Assembly, decided: Row) -> Mapping[str, Position | None]:
    if assembly.routes is not None:
        sinks = assembly.routes.sinks(decided.prepared.keys())
        return of_each({name: sink.look for name, sink in sinks.items()}, at_once=assembly.routes.at_once)
    tables = [output for output in assembly.outputs if isinstance(output, Table)]
    return {table.label: table.derivation.sink.position() for table in tables}


def doubt(row: Row) -> Line:
    """What is known of an epoch in doubt."""
    text = (
        f"epoch {row.epoch.number} was {row.state.value} by run {row.epoch.owner}. That run is at work, or was killed; "
        "the next run settles the epoch"
    )
    return Line("in doubt", text, "warning")


def _position_lines(position: Position, unfolded: int | None) -> Iterator[Line]:
    """The last epoch, its commit, and how far the table is complete."""
    yield Line("epoch", f"{position.epoch}" + _found_by(position.source))
    if position.committed_at:
        when = f"{position.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        version = f"version {position.version}, " if position.version is not None else ""
        yield Line("last commit", f"{version}{when}, by run {position.owner}")
    if unfolded is not None:
        yield Line("unfolded", f"{plural(unfolded, 'epoch')}: `connector.read` has what the table lacks")
    if position.read_to:
        yield Line("complete to", f"{position.read_to:%Y-%m-%d %H:%M:%S} UTC")
    if position.clock.watermark:
        late = f"late so far: {position.clock.late:,}"
        yield Line("watermark", f"{position.clock.watermark:%Y-%m-%d %H:%M:%S} UTC, {late}")


def _gap_lines(state: Status, position: Position) -> Iterator[Line]:
    """What isn't as a run expects it: a replaced table; of Kafka recreated topics, gone, cut and lost records."""
    wrong = ahead(position, state.held.looked_at)
    if wrong is not None:
        yield Line("wrong clock", of_wrong_clock(position, wrong), "warning")
    if state.replaced:
        text = f"by somebody else: {state.replaced}. A run stops there, and says how to go on"
        yield Line("replaced", text, "warning")
    for topic in sorted(state.recreated):
        text = f"{topic}: Kafka has a new topic of this name. A run stops there; see source.on_recreated_topic"
        yield Line("recreated", text, "warning")
    for gap in state.gone:
        text = f"{gap}: never read, and Kafka no longer holds it. A run stops there; see source.on_data_loss"
        yield Line("gone", text, "warning")
    for gap in state.cut:
        text = f"{gap}: was read, and Kafka ends before it. A run stops there: were records of the topic lost?"
        yield Line("cut", text, "warning")
    for topic in filter(is_retired, sorted(position.offsets.topics)):
        read_to = json.dumps(position.offsets.to_dict()[topic])
        yield Line("recreated", f"{topic_of(topic)}: the topic before it is {topic}, read up to {read_to}")
    for at, back in sorted(state.held.held_back.items()):
        since = f" since {back.since:%Y-%m-%d %H:%M:%S} UTC" if back.since else ""
        waiting = plural(back.offsets, "offset waits", "offsets wait")
        yield Line("held back", f"{at.topic}-{at.partition}: a transaction is open{since}; {waiting} for its end")
    for topic, known in sorted(position.gone.items()):
        if known is not None:
            text = f"{topic}{after(known)}: isn't in Kafka any more, and nobody knows whether all of it was read"
            yield Line("unknown", text, "warning")
    for gap in position.lost:
        yield Line("lost", f"{gap}, up to {plural(gap.span, 'record')} never read", "warning")


def _found_by(source: str) -> str:
    """Where the position was found, in parentheses; empty for the usual place, the table's last commit."""
    return {
        "restored": " (the table was restored: the next run goes on from the restored version)",
        "cloned": " (the table is a clone: the next run goes on from the source's position)",
        "rows": " (no commit in the log has a position: it was found from the rows' coordinates)",
    }.get(source, "")
