"""Separates bad records from good ones, and stores the dead letters before the commit of their epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from connector.config import PipelineConfig, tables_of_letters
from connector.decode.records import PROBLEM, RAW
from sinks.contract import Epoch
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.layout import Layout
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.errors import TooManyDeadLetters
from sinks.plurals import plural
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connector.engine.routes import Routes
    from sinks.topic.dead_letters import TopicDeadLetters

_RECORD = COORDINATES[:3]
LATE_DETAIL = "came after its window was closed"


class Place(Protocol):
    """Where dead letters are stored; see ``sinks.delta.dead_letters`` and ``sinks.topic.dead_letters``."""

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """Store the letters of an epoch. A table stores each letter once, even if it is called again after a crash."""
        ...


@dataclass(frozen=True)
class UnlessReplaced:
    """Stores dead letters, unless the run was replaced: then the other run has read their records."""

    place: Place
    refuse_replaced: Callable[[Epoch], object]
    """Raises Fenced."""

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """Ask right before the letters are stored: they may count at once, and no commit holds them back."""
        self.refuse_replaced(epoch)
        self.place.add(letters, epoch)


class Letters:
    """The dead letters of one pipeline.

    ``max_share``: the share of an epoch's records, from 0 to 1, that may be bad; None: all may be. ``label`` names the
    place in messages.
    """

    def __init__(self, place: Place, *, max_share: float | None, label: str) -> None:
        self._place = place
        self._max_share = max_share
        self._label = label

    def sort_out(
        self,
        records: DataFrame,
        rows: Mapping[str, DataFrame],
        epoch: Epoch,
        *,
        several: bool,
        explained: Callable[[DataFrame], DataFrame],
        decided: bool = False,
    ) -> tuple[dict[str, DataFrame], int, str]:
        """Store the bad records as dead letters.

        Returns the good rows of each sink, the number of letters, and what is wrong with the first one. ``decided``: a
        decided epoch is committed however many of its records are bad.

        This is the rule "dead letters in step": the position never passes a bad record unless its letter is stored. So
        the letters are stored before the epoch's commit, and a letter counts once the position has passed its record.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the letters    The old position. The next run reads the same records, and finds the same ones bad.
                              Another run that reads them meanwhile is asked for right before they are stored.
        after the letters     Letters, and the old position. They don't count yet. The next run reads the same records,
                              finds their letters by coordinates, and adds none twice. (A topic can't be asked what it
                              holds, so it may hold a letter twice, with the same coordinates.)
        after the commit      Letters, rows, and the new position. Nothing is left to do.
        ====================  ==========================================================================================

        ``records`` are all records of the epoch, with the problems of decoding. ``rows`` are made of those without such
        a problem, by the name of their sink, with the problems that the sink has with a row. ``several`` says that a
        record may make several rows: if one of them is bad, the whole record becomes a letter, and none of its rows
        gets in. ``explained`` looks again at records that couldn't be decoded. Cache the frames before: they are read
        twice.

        Raises TooManyDeadLetters before anything is stored.
        """
        bad: Mapping[str | None, DataFrame] = dict([(None, records), *rows.items()])
        counts = reduce(
            lambda left, right: left.unionByName(right),
            (_counted(frame, sink) for sink, frame in bad.items()),
        ).collect()
        bad_of_sink = {row["sink"]: row["bad"] for row in counts}
        read = next(row["read"] for row in counts if row["sink"] is None)
        number = bad_ones = sum(bad_of_sink.values())
        refused = {sink: frame for sink, frame in rows.items() if bad_of_sink[sink]}
        if len(refused) > 1 or (refused and several):
            number, bad_ones = (bad_of_sink[None] + more for more in _each_once(refused))
        if not decided:
            self._check_share(bad_ones, read, epoch)
        letters = [
            _letters(frame, sink, explained if sink is None else None)
            for sink, frame in bad.items()
            if bad_of_sink[sink]
        ]
        if letters:
            self._place.add(reduce(lambda left, right: left.unionByName(right), letters), epoch)
        good = {sink: _good(frame, whole=several and bad_of_sink[sink] > 0) for sink, frame in rows.items()}
        first = min((row["first"] for row in counts if row["first"] is not None), default=None)
        return good, number, "{3} ({0}-{1}, offset {2})".format(*first) if first is not None else ""

    def late(self, rows: DataFrame, sink: str, epoch: Epoch) -> None:
        """Store letters of rows that arrived after their window was closed."""
        window = [name for name in ("window_start", "window_end") if name in rows.columns]
        told = rows.selectExpr(
            f"{literal(sink)} AS sink", "'late' AS reason", f"{literal(LATE_DETAIL)} AS detail",
            f"{RAW}.*", *window, *COORDINATES,
        )  # fmt: skip
        self._place.add(told, epoch)

    def _check_share(self, bad: int, read: int, epoch: Epoch) -> None:
        if self._max_share is not None and bad > self._max_share * read:
            raise TooManyDeadLetters(
                f"Epoch {epoch.number} has {plural(bad, 'bad record')} among {read:,}, which is more than "
                f"dead_letters.max_share ({self._max_share:g}) allows. Nothing of this epoch was written, and no dead "
                "letters either.",
                hint="Run with on_bad_record: fail to see what is wrong with the first of them. Then mend the pipeline "
                f"file, or raise max_share to have them put into {self._label}.",
            )


def _counted(frame: DataFrame, sink: str | None) -> DataFrame:
    name = "CAST(NULL AS STRING)" if sink is None else literal(sink)
    bad = f"CASE WHEN {PROBLEM} IS NOT NULL THEN struct({', '.join(_RECORD)}, {PROBLEM}.detail AS detail) END"
    return frame.selectExpr(
        "count(1) AS read", f"count_if({PROBLEM} IS NOT NULL) AS bad", f"min({bad}) AS first"
    ).selectExpr(f"{name} AS sink", "read", "bad", "first")


def _each_once(refused: Mapping[str, DataFrame]) -> tuple[int, int]:
    """The letters of these sinks' bad rows, and their records: a record may be bad in several rows, and for several
    sinks."""
    rows = (
        _bad(frame).selectExpr(f"{literal(sink)} AS sink", f"{PROBLEM}.reason", *_RECORD)
        for sink, frame in refused.items()
    )
    records = ", ".join(_RECORD)
    counts = reduce(lambda left, right: left.union(right), rows).selectExpr(
        f"count(DISTINCT sink, reason, {records}) AS letters", f"count(DISTINCT {records}) AS records"
    )
    (found,) = counts.collect()
    return found["letters"], found["records"]


def _bad(frame: DataFrame) -> DataFrame:
    return frame.where(f"{PROBLEM} IS NOT NULL")


def _letters(
    frame: DataFrame, sink: str | None, explained: Callable[[DataFrame], DataFrame] | None = None
) -> DataFrame:
    name = "CAST(NULL AS STRING)" if sink is None else literal(sink)
    bad = _bad(frame)
    if explained is not None:
        bad = explained(bad)
    return bad.selectExpr(f"{name} AS sink", f"{PROBLEM}.*", f"{RAW}.*", *COORDINATES)


def _good(rows: DataFrame, *, whole: bool) -> DataFrame:
    good = rows.where(f"{PROBLEM} IS NULL")
    if whole:
        bad = _bad(rows).select(*_RECORD)
        good = good.join(bad, list(_RECORD), "left_anti").select(*map(identifier, rows.columns))
    return good.drop(PROBLEM)


def letters(
    config: PipelineConfig, spark: SparkSession, refuse_replaced: Callable[[Epoch], object] = lambda _: None
) -> Letters | None:
    """The dead letters of a pipeline; None if a bad record stops the run. ``refuse_replaced``: raises Fenced."""
    place = config.dead_letters
    to: Place | None = letters_table(config, spark) or letters_topic(config)
    if place is None or to is None:
        return None
    return Letters(UnlessReplaced(to, refuse_replaced), max_share=place.max_share, label=place.place)


def letters_table(config: PipelineConfig, spark: SparkSession) -> DeadLetters | None:
    """The table of dead letters; None if there are no letters, or if they go to a topic."""
    place = config.dead_letters
    if place is None or place.topic is not None:
        return None
    layout = Layout(properties=place.properties)
    held = [DeltaTable(spark, path=of.folder, name=of.table) for of in tables_of_letters(config)]
    return DeadLetters(
        DeltaTable(spark, path=place.folder, name=place.table),
        pipeline=config.name,
        layout=layout,
        of=lambda: [table.id for table in held if table.id],
    )


def letters_location(config: PipelineConfig, spark: SparkSession, *, make: bool = False) -> str:
    """Where the files of the table of dead letters are. Empty text if there is no such table, or not yet.

    ``make``: make a table that has a name and isn't there, as only then its catalog says where it is.
    """
    letters = letters_table(config, spark)
    if letters is None or letters.table.path is not None:
        return (letters and letters.table.path) or ""
    if make:
        letters.make_ready()
    return letters.table.location


def take_letters_back(
    config: PipelineConfig, spark: SparkSession, routes: Routes | None, epoch: Epoch, to: int
) -> None:
    """Undo what epochs after ``to`` did to dead letters, in a rewind of several tables by this epoch.

    May be called again, also when others have gone on: the letters of later epochs stay as they are. ``routes``: the
    tables of a route, which forget the deletes of undone retries. Other tables have no letters that are retried.
    """

    def forget(records: str) -> None:
        for output in routes.tables(routes.logged).values() if routes is not None else ():
            if output.derivation.tombstones is not None:
                output.derivation.tombstones.forget(records)

    table = letters_table(config, spark)
    if table is not None:
        table.take_back(epoch.offsets, to, epoch.number - 1, forget=forget)


def letters_topic(config: PipelineConfig) -> TopicDeadLetters | None:
    """The topic of dead letters; None if there are no letters, or if they go to a table."""
    from sinks.topic.dead_letters import TopicDeadLetters

    place = config.dead_letters
    if place is None or place.topic is None:
        return None
    return TopicDeadLetters(place.topic, pipeline=config.name, kafka=config.source.kafka_options)
