"""One epoch as one function: read, decode, reduce, write. Each step is announced before the next begins.

With several sinks the last step is to prepare them; what comes then is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from connector.decode.event_time import LATE, TIME, Timing, clocked, problem_with_time, timed
from connector.decode.records import PROBLEM, RAW, TOMBSTONE, told
from connector.derive.fit import problem_with_values, refuse_values
from connector.engine.dead_letters import Letters
from connector.engine.in_parallel import of_each
from connector.engine.outputs import Output
from connector.engine.record_errors import SchemaToAskFor, about_the_records
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch, Prepared, TwoPhaseSink
from sinks.offsets import OffsetRange
from sinks.spark.cached import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Reading:
    """How the records of an epoch become the rows of each sink: the same for every epoch of a run, unless the records
    get more columns."""

    read: Callable[[Sequence[OffsetRange]], DataFrame]
    outputs: Mapping[str, Output]
    """By the name of the sink."""
    timing: Timing | None
    letters: Letters | None
    """None: a record that isn't right stops the run."""
    with_new_columns: Callable[[Mapping[str, Output]], Mapping[str, Output]] = lambda outputs: outputs
    """The outputs again, of records that have got more columns. Raises SchemaMismatch."""
    refuse_changed: Callable[[Epoch], None] = lambda _: None
    """Asked after a read: whether the topics, and their logs, are still those that the epoch was planned on. Raises
    TopicRecreated, OffsetsLost."""
    set_aside: int = 0
    """Dead letters of the epoch that was read last."""

    @property
    def several(self) -> bool:
        """A record may make several rows."""
        return any(output.decode.several for output in self.outputs.values())

    def reduced(self, epoch: Epoch, stack: ExitStack, *, again: bool = False) -> tuple[Epoch, dict[str, DataFrame]]:
        """Kafka is read once for all sinks that can share its decoded records; what several queries use is kept until
        the end of ``stack``. ``again``: the epoch's clock is known."""
        self.set_aside = 0
        records = self.read(epoch.ranges)
        decoders = [output.decode.decode for output in self.outputs.values()]
        decoded = {decode: decode(records) for decode in decoders}
        for decode, frame in decoded.items():
            if decoders.count(decode) > 1 or PROBLEM in frame.columns:
                decoded[decode] = stack.enter_context(kept(frame))
        rows = {name: output.decode.shape(decoded[output.decode.decode]) for name, output in self.outputs.items()}
        leading = next(iter(decoded.values()))  # all have the same problems: they differ in what a tombstone deletes
        if self.letters is not None and PROBLEM in leading.columns:
            rows = self._sorted_out(self.letters, leading, rows, epoch)
        else:
            rows = {name: refuse_values(frame, self.outputs[name].unfit(frame)) for name, frame in rows.items()}
        if self.timing is not None:
            for name, output in self.outputs.items():
                rows[name] = output.derivation.prepare(timed(rows[name], self.timing.column), epoch)
            if not again:
                # Whichever has windows knows what is late; else all tell the same.
                first = next((name for name in rows if LATE in rows[name].columns), next(iter(rows)))
                rows[first], epoch = stack.enter_context(clocked(rows[first], epoch, self.timing.idle_after))
            rows = {name: frame.drop(TIME) for name, frame in rows.items()}
        for name, output in self.outputs.items():
            late = output.derivation.late(rows[name], epoch)
            if late is not None and self.letters is not None:
                self.letters.late(late, name, epoch)
                self.set_aside += epoch.late_now
        return epoch, {
            name: output.derivation.reduce(rows[name].drop(RAW), epoch) for name, output in self.outputs.items()
        }

    def learn(self, unknown: SchemaToAskFor, epoch: Epoch) -> None:
        """Ask the registry for a schema that turned up in the records of an epoch; afterwards the epoch is read again.

        The outputs may have got more columns by then. Raises what the registry raises, and SchemaMismatch.
        """
        # The sinks' decoders share their formats.
        decoder = next(iter(self.outputs.values())).decode.decode
        if decoder.resolve(unknown.part, unknown.schema_id, self.read(epoch.ranges)):
            self.outputs = self.with_new_columns(self.outputs)

    def _sorted_out(
        self, letters: Letters, records: DataFrame, rows: Mapping[str, DataFrame], epoch: Epoch
    ) -> dict[str, DataFrame]:
        marked = {name: self._marked(name, frame) for name, frame in rows.items()}
        good, self.set_aside = letters.sort_out(
            records, {name: frame for name, frame in marked.items() if PROBLEM in frame.columns}, epoch,
            several=self.several,
        )  # fmt: skip
        unkeyed = [name for name, output in self.outputs.items() if not output.decode.takes_tombstones]
        return {name: frame.drop(TOMBSTONE) if name in unkeyed else frame for name, frame in {**marked, **good}.items()}

    def _marked(self, name: str, rows: DataFrame) -> DataFrame:
        """With the problems that the sink has with a row, where it can have any."""
        output = self.outputs[name]
        problems = [output.derivation.problem] if output.derivation.problem is not None else []
        unfit = output.unfit(rows)
        if unfit:
            problems.append(problem_with_values(unfit))
        if not output.decode.takes_tombstones and TOMBSTONE in rows.columns:
            problems.append(f"CASE WHEN {TOMBSTONE} THEN {told('tombstone', 'has no value (a tombstone)')} END")
        if self.timing is not None:
            problems.append(problem_with_time(rows, self.timing.column))
        return rows.selectExpr("*", f"coalesce({', '.join(problems)}) AS {PROBLEM}") if problems else rows


def run_epoch(
    epoch: Epoch,
    reading: Reading,
    *,
    write: Callable[[Epoch, DataFrame], Committed],
    observe: Observer,
    behind: int,
) -> Committed:
    """Read, decode and reduce one epoch, and write it to the pipeline's one sink.

    Spark is lazy: all the work is done in one pass, by ``write``. Only with event time or dead letters the decoded rows
    are kept for a small query before it. The epoch is repeated once per newly seen schema: what fails for an unknown
    schema has written nothing.
    """
    while True:
        try:
            with ExitStack() as stack, about_the_records():
                clocked, reduced = reading.reduced(epoch, stack)
                (rows,) = reduced.values()
                # Polled records are here already: nothing is written if their topic has changed since.
                reading.refuse_changed(clocked)
                observe(Event(Step.READ, clocked, behind=behind, letters=reading.set_aside))
                observe(Event(Step.WRITING, clocked, behind=behind))
                committed = write(clocked, rows)
            observe(Event(Step.COMMITTED, clocked, committed, behind))
            return committed
        except SchemaToAskFor as unknown:
            reading.learn(unknown, epoch)


def prepare_epoch(
    epoch: Epoch,
    reading: Reading,
    sinks: Mapping[str, TwoPhaseSink[DataFrame]],
    *,
    again: bool,
    at_once: bool,
    observe: Observer,
    behind: int,
) -> tuple[Epoch, dict[str, Prepared]]:
    """Read, decode and reduce one epoch, and prepare several sinks: all, or those that lost what they had prepared."""
    while True:
        try:
            with ExitStack() as stack, about_the_records():
                clocked, reduced = reading.reduced(epoch, stack, again=again)
                observe(Event(Step.READ, clocked, behind=behind, letters=reading.set_aside))
                observe(Event(Step.WRITING, clocked, behind=behind))
                prepare = {name: partial(sink.prepare, clocked, reduced[name]) for name, sink in sinks.items()}
                prepared = of_each(prepare, at_once=at_once)
                reading.refuse_changed(clocked)
                return clocked, prepared
        except SchemaToAskFor as unknown:
            reading.learn(unknown, epoch)
