"""One epoch as one function: read, decode, reduce, write. Each step is announced before the next one begins.

With several sinks the last step prepares them, and the coordinator does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from connector.decode.event_time import LATE, TIME, Timing, clocked, problem_with_time, timed
from connector.decode.flows import FlowsDecoder, decoder_of, with_raw
from connector.decode.records import PROBLEM, RAW, SHOWN, TOMBSTONE, RecordDecoder
from connector.derive.fit import problems, refuse_values
from connector.engine.dead_letters import LATE_DETAIL, Letters
from connector.engine.in_parallel import of_each
from connector.engine.output import Output
from connector.engine.record_errors import OddRecord, SchemaToAskFor, about_the_records, because
from connector.protocol.steps import Event, Observer, Step
from connector.source.columnar import PlainValues
from connector.source.records import nothing_like
from sinks.contract import Committed, Epoch, Prepared, TwoPhaseSink
from sinks.errors import BadRecord
from sinks.spark.cached import kept
from sinks.spark.limits import Limit
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.offsets import OffsetRange, TopicPartition


log = logging.getLogger("lakelock.decode")

Result = TypeVar("Result")


class Read(Protocol):
    """Reads records, as ``Reader`` does."""

    def __call__(self, ranges: Sequence[OffsetRange], values: PlainValues | None = None) -> DataFrame:
        """The records of the ranges. ``values``: what the columnar reader may decode."""


def these(records: DataFrame) -> Read:
    """Gives these records, whatever it is asked for."""
    return lambda *_: records


@dataclass
class Reading:
    """How the records of an epoch become the rows of each sink.

    It changes during a run only if the records get more columns.
    """

    read: Read
    outputs: Mapping[str, Output]
    """By the name of their sink."""
    timing: Timing | None
    letters: Letters | None
    """Where bad records go. None: a bad record stops the run."""
    with_new_columns: Callable[[Mapping[str, Output]], Mapping[str, Output]] = lambda outputs: outputs
    """Makes the outputs again after the records have got more columns. Raises SchemaMismatch."""
    refuse_changed: Callable[[Epoch], None] = lambda _: None
    """Checks after a read that since the epoch was planned nobody recreated a topic, and no partition's log was cut.
    Raises TopicRecreated, OffsetsLost."""
    refuse_unmatched: Callable[[Epoch], None] = lambda _: None
    """Checks that the records have the fields that the pipeline file declares. Raises SchemaMismatch."""
    forget: Callable[[], None] = lambda: None
    """Has the next read ask Kafka for every record, because a topic was recreated. See ``Reader.forget``."""
    led_by: Callable[[Mapping[TopicPartition, int]], None] = lambda _: None
    """Has it do so if a partition has another leader, see ``Reader.led_by``."""
    keep_odd: bool = False
    """Whether the columnar reader has met odd records. From then on it keeps them, for the decoder in Spark SQL."""
    set_aside: int = 0
    """The number of dead letters of the epoch that was read last."""
    first_letter: str = ""
    """What is wrong with the first of them."""
    _no_rows: DataFrame | None = field(default=None, init=False)
    """An empty frame of decoded records, kept because Spark takes a while to plan it."""
    _rules: dict[str, tuple[DataFrame, Sequence[Limit]]] = field(default_factory=dict, init=False)
    """By sink: rows of the epoch that was read last, and the limits that they were compared with."""

    @property
    def several(self) -> bool:
        """Whether a record may make several rows."""
        return any(output.decode.several for output in self.outputs.values())

    def reduced(self, epoch: Epoch, stack: ExitStack, *, again: bool = False) -> tuple[Epoch, dict[str, DataFrame]]:
        """The epoch with its event time, and the rows to write, by the name of their sink.

        Spark reads Kafka once for all sinks that can share its decoded records. A frame that several queries use is
        cached until ``stack`` closes. Dead letters are stored here, before anything is written to a sink. ``again``
        says that the epoch has its event time already, because it was read before.

        Raises TooManyDeadLetters, and what a query over the records raises.
        """
        self.set_aside, self.first_letter = 0, ""
        self.led_by(epoch.leaders)
        records = self.read(epoch.ranges, self._plain())
        decoders = [output.decode.decode for output in self.outputs.values()]
        decoded = {decode: self._decoded(decode, records, epoch) for decode in decoders}
        if not epoch.ranges and records.isEmpty():  # those of a retry are letters
            # Spark would try for minutes to compute in advance what the decoders make of nothing.
            decoded = {decode: nothing_like(frame) for decode, frame in decoded.items()}
        for decode, frame in decoded.items():
            if decoders.count(decode) > 1 or PROBLEM in frame.columns:
                decoded[decode] = stack.enter_context(kept(frame))
        rows = {name: output.decode.shape(decoded[output.decode.decode]) for name, output in self.outputs.items()}
        # All frames have the same problems. They differ in what a tombstone deletes, and in truncates, which not all
        # of them have.
        leading = decoded[max(decoded, key=lambda decode: decode.keeps_truncates)]
        if self.letters is not None and PROBLEM in leading.columns:
            rows = self._sorted_out(self.letters, leading, rows, epoch, again=again)
        else:
            rows = {name: refuse_values(frame, self._unfit(name, frame)) for name, frame in rows.items()}
        if self.timing is not None:
            for name, output in self.outputs.items():
                at = timed(rows[name], self.timing.column, output.derivation.deletes)
                rows[name] = output.derivation.prepare(at, epoch)
            if not again:
                # A sink with windows knows which rows are late. What one sink doesn't take, another one may.
                first = next((name for name in rows if LATE in rows[name].columns), next(iter(rows)))
                same = self.letters is None and len({decode.keeps_truncates for decode in decoded}) == 1
                for name in [first] if same else rows:
                    rows[name] = stack.enter_context(kept(rows[name]))
                others = [] if same else [rows[name] for name in rows if name != first]
                epoch = clocked(rows[first], others, epoch, self.timing)
            rows = {name: frame.drop(TIME) for name, frame in rows.items()}
        elif not again:
            epoch = replace(epoch, clock=epoch.clock.without_times())
        for name, output in self.outputs.items():
            late = output.derivation.late(rows[name], epoch)
            if late is not None and self.letters is not None:
                self.letters.late(late, name, epoch)
                self.set_aside += epoch.late_now
                if epoch.late_now and not self.first_letter:
                    self.first_letter = LATE_DETAIL
        return epoch, {
            name: output.derivation.reduce(rows[name].drop(RAW), epoch) for name, output in self.outputs.items()
        }

    def _decoded(self, decode: RecordDecoder | FlowsDecoder, records: DataFrame, epoch: Epoch) -> DataFrame:
        if isinstance(decode, RecordDecoder):
            return decode(records)
        return decode.of_ranges(self.read, epoch.ranges, keep_odd=self.keep_odd)

    def read_event(self, epoch: Epoch, behind: int) -> Event:
        """The announcement that the epoch is read."""
        return Event(Step.READ, epoch, behind=behind, letters=self.set_aside, first_letter=self.first_letter)

    def _plain(self) -> PlainValues | None:
        """What the columnar reader may decode, and which records it may leave out: those that nothing asks for."""
        output, *others = self.outputs.values()
        decoder = output.decode.decode
        if isinstance(decoder, FlowsDecoder) or decoder.plain is None:
            return None
        plain, key = replace(decoder.plain, keep_odd=self.keep_odd), output.derivation.latest_by
        if not key or others:
            return plain
        if self.several or self.letters is not None or self.timing is not None:
            return plain
        if decoder.key is not None or decoder.require is not None or decoder.steps is not None:
            return plain  # a record that they leave out, or find bad, may be the last one of its key
        # The reader sees fields of the value. Those of an envelope aren't the columns, whatever their names are.
        if plain.schema != decoder.value.type or not set(key) <= set(plain.schema.names):
            return plain
        # A table's rules are of every record, also of those that a later one replaces.
        if self._no_rows is None:
            self._no_rows = output.decode(self.read(()))
        return plain if output.unfit(self._no_rows) else replace(plain, latest_by=tuple(key))

    def until_learned(self, ranges: Sequence[OffsetRange], attempt: Callable[[], Result]) -> Result:
        """Call ``attempt``, which reads these ranges, again after each failure that teaches something about records.

        Raises what it raises otherwise; a problem with a record names its coordinates.
        """
        self._decoder.begin_epoch()
        while True:
            try:
                with about_the_records():
                    return attempt()
            except (SchemaToAskFor, OddRecord) as unknown:
                self.learn(unknown, ranges)
            except BadRecord as bad:
                if not self.learn_rules():
                    raise self.explained(bad) from None

    def learn(self, unknown: SchemaToAskFor | OddRecord, ranges: Sequence[OffsetRange]) -> None:
        """Ask the registry for a schema that turned up in the records of these ranges, or have odd records kept.

        Afterwards they are read again.

        The outputs may have more columns then. Raises what the registry raises, and SchemaMismatch.
        """
        if isinstance(unknown, OddRecord):
            if self.keep_odd:  # then it was no word of the reader's
                raise unknown.error
            self.keep_odd = True
            return
        with about_the_records():
            grown = self._decoder.resolve(unknown.part, unknown.schema_id, self.read(ranges))
        if grown:
            self.outputs, self._no_rows = self.with_new_columns(self.outputs), None

    @property
    def _decoder(self) -> RecordDecoder | FlowsDecoder:
        """Of any sink: their decoders share their formats."""
        return next(iter(self.outputs.values())).decode.decode

    def explained(self, bad: BadRecord) -> BadRecord:
        """The error with the field that is wrong, if a second look at the record finds it."""
        if bad.record is None:
            return bad
        this = bad.record
        try:
            records = self.read([this]).where(f"topic = {literal(this.topic)}")
            record = records.where(f"partition = {this.partition} AND offset = {this.start}")
            decoder = decoder_of(with_raw(self._decoder, letters=True), this.topic)
            row = decoder.explained(decoder(record).where(f"{PROBLEM} IS NOT NULL")).first()
        except Exception:  # What was found first is right too.
            log.debug("no second look at %s", this, exc_info=True)
            return bad
        if row is None:
            return bad
        return because(bad, row[PROBLEM], row[SHOWN], row[RAW], decoder.header(row[PROBLEM]["reason"]))

    def _unfit(self, name: str, rows: DataFrame) -> Sequence[Limit]:
        limits = self.outputs[name].unfit(rows)
        self._rules[name] = rows, limits
        return limits

    def learn_rules(self) -> bool:
        """Read the tables' rules again, after a table has refused a row.

        Returns whether the records of the epoch were compared with other rules: somebody has changed them since. Then
        the epoch is read again.
        """
        self._no_rows = None
        for output in self.outputs.values():
            output.forget_rules()
        return any(list(self.outputs[name].unfit(rows)) != list(limits) for name, (rows, limits) in self._rules.items())

    def _sorted_out(
        self, letters: Letters, records: DataFrame, rows: Mapping[str, DataFrame], epoch: Epoch, *, again: bool
    ) -> dict[str, DataFrame]:
        marked = {name: self.marked(name, frame) for name, frame in rows.items()}
        good, self.set_aside, self.first_letter = letters.sort_out(
            records, {name: frame for name, frame in marked.items() if PROBLEM in frame.columns}, epoch,
            several=self.several, explained=self._decoder.explained, decided=again,
        )  # fmt: skip
        unkeyed = [name for name, output in self.outputs.items() if not output.decode.takes_tombstones]
        return {name: frame.drop(TOMBSTONE) if name in unkeyed else frame for name, frame in {**marked, **good}.items()}

    def marked(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows with the problems that the sink has with them, in ``_problem``, if it can have any."""
        output = self.outputs[name]
        refuses_tombstones = not output.decode.takes_tombstones and TOMBSTONE in rows.columns
        found = problems(output.derivation.problem, self._unfit(name, rows), refuses_tombstones=refuses_tombstones)
        if self.timing is not None:
            found.append(problem_with_time(rows, self.timing.column, output.derivation.deletes))
        return rows.selectExpr("*", f"coalesce({', '.join(found)}) AS {PROBLEM}") if found else rows


def run_epoch(
    epoch: Epoch,
    reading: Reading,
    *,
    write: Callable[[Epoch, DataFrame], Committed],
    observe: Observer,
    behind: int,
) -> Committed:
    """Write one epoch, see ``write_epoch``, and announce its commit."""
    clocked, committed = write_epoch(epoch, reading, write=write, observe=observe, behind=behind)
    observe(Event(Step.COMMITTED, clocked, committed, behind))
    return committed


def write_epoch(
    epoch: Epoch,
    reading: Reading,
    *,
    write: Callable[[Epoch, DataFrame], Committed],
    observe: Observer,
    behind: int,
) -> tuple[Epoch, Committed]:
    """Read, decode and reduce one epoch, and write it to the pipeline's one sink.

    Spark is lazy, so ``write`` does all the work in one pass. Only with event time or dead letters there is a small
    query before it, over cached rows. If a record needs a schema that isn't known yet, the run asks the registry and
    repeats the epoch: a query that fails for an unknown schema has written nothing. It also repeats the epoch if a
    table has refused a row by a rule that somebody has given it since.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before ``READ``       The old position; maybe dead letters of the epoch, which the next run finds and doesn't add
                          again.
    before ``write``      The same.
    in ``write``          Files that no version of the table names, or the whole commit. The sink's position tells.
    after ``write``       Rows and position, in one commit. The next run goes on with the next epoch.
    ====================  ==============================================================================================

    ``write`` takes the epoch with its event time, and the rows. ``behind``: the offsets that Kafka holds after this
    epoch, for the events. Returns the epoch with its event time, and the commit. Raises LakelockError; a problem with a
    record names its coordinates.
    """
    reading.refuse_unmatched(epoch)

    def attempt() -> tuple[Epoch, Committed]:
        with ExitStack() as stack:
            clocked, reduced = reading.reduced(epoch, stack)
            (rows,) = reduced.values()
            # Polled records are in memory already. If their topic has changed since, nothing is written.
            reading.refuse_changed(clocked)
            observe(reading.read_event(clocked, behind))
            observe(Event(Step.WRITING, clocked, behind=behind))
            return clocked, write(clocked, rows)

    return reading.until_learned(epoch.ranges, attempt)


def prepare_epoch(
    epoch: Epoch,
    reading: Reading,
    sinks: Mapping[str, TwoPhaseSink[DataFrame]],
    *,
    again: bool,
    at_once: int | None,
    observe: Observer,
    behind: int,
) -> tuple[Epoch, dict[str, Prepared]]:
    """Read, decode and reduce one epoch, and prepare it in ``sinks``: all of them, or those that lost what they had
    prepared.

    ``again`` says that the epoch was read before and keeps its event time. ``at_once``: how many sinks to prepare at
    the same time; None: all. Returns the epoch with its event time, and what each sink has prepared. No reader sees any
    of it; a crash here leaves an undecided epoch, see ``protocol.two_phase``. Raises what ``run_epoch`` raises.
    """
    if not again:  # a decided epoch is committed whatever is in it
        reading.refuse_unmatched(epoch)

    def attempt() -> tuple[Epoch, dict[str, Prepared]]:
        with ExitStack() as stack:
            clocked, reduced = reading.reduced(epoch, stack, again=again)
            observe(reading.read_event(clocked, behind))
            observe(Event(Step.WRITING, clocked, behind=behind))
            prepare = {name: partial(sink.prepare, clocked, reduced[name]) for name, sink in sinks.items()}
            prepared = of_each(prepare, at_once=at_once)
            reading.refuse_changed(clocked)
            return clocked, prepared

    return reading.until_learned(epoch.ranges, attempt)
