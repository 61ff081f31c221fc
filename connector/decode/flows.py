"""Decodes the records of several flows, each by its own decoder, into rows of one frame.

The columns of the rows are those of all flows. One that a flow lacks is null in its rows. No value is cast: a column
has one type, or the flows don't fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from connector.config.flows import OfFlow
from connector.decode.own_columns import OwnColumns
from connector.decode.records import RecordDecoder
from connector.source.columnar import PlainValues
from connector.source.records import nothing_like
from sinks.errors import ConfigurationError
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_Read: TypeAlias = Callable[[Sequence[OffsetRange], PlainValues | None], "DataFrame"]
_REST = "the top of the file"


@dataclass(frozen=True)
class FlowDecoder:
    """The decoder of one flow. ``others``: whether its records are those of all topics but ``topics``."""

    flow: OfFlow | None
    """For messages. None: the flow of the topics that no other one names."""
    topics: tuple[str, ...]
    others: bool
    decode: RecordDecoder

    def reads(self, topic: str) -> bool:
        """Whether it reads this topic's records. Every topic has one flow, also one that has left the pipeline: its
        dead letters may come again."""
        return (topic in self.topics) is not self.others

    def decoded(self, records: DataFrame) -> DataFrame:
        """Raises ConfigurationError, which names the flow's own options."""
        with told_of(self.flow):
            return self.decode(records)

    def mine(self, records: DataFrame, topic: str = "topic") -> DataFrame:
        """Of the records its own. ``topic``: the column with their topic."""
        return records.where(f"{topic} {'NOT IN' if self.others else 'IN'} ({', '.join(map(literal, self.topics))})")


@dataclass(frozen=True)
class FlowsDecoder:
    """Decodes the records of all flows, as ``RecordDecoder`` does for those of one."""

    flows: tuple[FlowDecoder, ...]

    def __call__(self, records: DataFrame) -> DataFrame:
        """Raises ConfigurationError if the flows don't fit together."""
        return self._united([flow.decoded(flow.mine(records)) for flow in self.flows])

    def of_ranges(self, read: _Read, ranges: Sequence[OffsetRange], *, keep_odd: bool) -> DataFrame:
        """The decoded records of these ranges. Each flow reads its own, so that Kafka is read once. ``keep_odd``: as in
        ``PlainValues``."""
        decoded = []
        for flow in self.flows:
            own = [each for each in ranges if flow.reads(each.topic)]
            plain = flow.decode.plain
            records = flow.mine(read(own, replace(plain, keep_odd=keep_odd) if plain is not None else None))
            frame = flow.decoded(records)
            # Spark would try for long to compute in advance what a decoder makes of nothing.
            decoded.append(nothing_like(frame) if not own and records.isEmpty() else frame)
        return self._united(decoded)

    def explained(self, bad: DataFrame) -> DataFrame:
        """As ``RecordDecoder.explained``."""
        return _union([flow.decode.explained(flow.mine(bad, "_topic")) for flow in self.flows])

    @property
    def keeps_truncates(self) -> bool:
        """As ``RecordDecoder.keeps_truncates``."""
        return all(flow.decode.keeps_truncates for flow in self.flows)

    @property
    def plain(self) -> None:
        """What the columnar reader may decode of all of them: each flow has its own."""

    @property
    def own(self) -> tuple[OwnColumns, ...]:
        """None: flows have no route."""
        return ()

    @property
    def comments(self) -> Mapping[str, str]:
        """As ``RecordDecoder.comments``; of a column in several flows, that of the first."""
        found: dict[str, str] = {}
        for flow in self.flows:
            found = {**flow.decode.comments, **found}
        return found

    def begin_epoch(self) -> None:
        """As ``RecordDecoder.begin_epoch``."""
        for flow in self.flows:
            flow.decode.begin_epoch()

    def resolve(self, part: str, schema_id: str, records: DataFrame) -> bool:
        """As ``RecordDecoder.resolve``."""
        flow = next(flow for flow in reversed(self.flows) if part.startswith(flow.decode.asks_as))
        return flow.decode.resolve(part.removeprefix(flow.decode.asks_as), schema_id, flow.mine(records))

    def _united(self, decoded: Sequence[DataFrame]) -> DataFrame:
        """The rows of all flows by the names of their columns."""
        columns: dict[str, tuple[FlowDecoder, StructField]] = {}
        for flow, frame in zip(self.flows, decoded, strict=True):
            for field in frame.schema:
                first, known = columns.setdefault(field.name.lower(), (flow, field))
                kind, other = sql_type(known.dataType), sql_type(field.dataType)
                if kind != other:
                    raise _unlike(f"{field.name} is {kind.upper()} in {_name(first)}, and {other.upper()} in", flow)
                if known.name != field.name:
                    raise _unlike(f"{known.name} of {_name(first)} is written {field.name} in", flow)
        return _union([_with_all(frame, [field for _, field in columns.values()]) for frame in decoded])


@contextmanager
def told_of(flow: OfFlow | None) -> Iterator[None]:
    """Have an error about an option of a flow's own name it as the file does."""
    try:
        yield
    except ConfigurationError as error:
        if flow is None or type(error) is not ConfigurationError:
            raise
        raise ConfigurationError(flow.named(error.message), hint=error.hint) from None


def with_raw(decoder: RecordDecoder | FlowsDecoder, *, letters: bool = False) -> RecordDecoder | FlowsDecoder:
    """The decoder, with ``_raw``. ``letters``: bad records stay too."""
    if isinstance(decoder, RecordDecoder):
        return replace(decoder, raw=True, letters=letters or decoder.letters)
    kept = (replace(flow.decode, raw=True, letters=letters or flow.decode.letters) for flow in decoder.flows)
    return FlowsDecoder(tuple(replace(flow, decode=each) for flow, each in zip(decoder.flows, kept, strict=True)))


def decoder_of(decoder: RecordDecoder | FlowsDecoder, topic: str) -> RecordDecoder:
    """The decoder of a topic's records."""
    if isinstance(decoder, RecordDecoder):
        return decoder
    return next(flow.decode for flow in decoder.flows if flow.reads(topic))


def _name(flow: FlowDecoder) -> str:
    return flow.flow.option if flow.flow is not None else _REST


def _unlike(what: str, flow: FlowDecoder) -> ConfigurationError:
    return ConfigurationError(
        f"flows: the column {what} {_name(flow)}. Rows of all flows go into the same columns, and no value is cast "
        "without a word.",
        hint="Write steps for one of them: cast, rename or drop. Or give both the same schema.",
    )


def _with_all(frame: DataFrame, columns: Sequence[StructField]) -> DataFrame:
    names = set(frame.columns)
    return frame.selectExpr(
        *(
            identifier(field.name)
            if field.name in names
            else f"CAST(NULL AS {sql_type(field.dataType)}) AS {identifier(field.name)}"
            for field in columns
        )
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)
