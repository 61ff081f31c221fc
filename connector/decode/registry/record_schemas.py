"""Which schemas the records of a topic name, of those that a registry has. Each is requested once in a run.

One that the registry doesn't have is requested once in an epoch: a node of the registry may have lagged behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Generic, TypeAlias

from connector.decode.format import NOTHING, UNKNOWN
from connector.decode.registry.registry import Part, Registry, Schema
from sinks.errors import UnknownSchema, UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MANY = 2_000
"""The number of schemas that are requested from the registry at once."""
MOST_ABSENT = 16
"""The number of IDs in one epoch that the registry may not have. After these it is asked for no others. Corrupt bytes
may name thousands, and each request takes its time."""

Learn: TypeAlias = Callable[[str, Schema], str | None]
"""Of an ID and its schema: why records with it can't be read, as in "has fields that ...", ``NOTHING`` if they say
nothing of a row, or None. May raise UnusableSchema."""


class RecordSchemas(Generic[Schema]):
    """The schemas that records may name by their header.

    All versions of the subject are requested at the start. A record with another ID has the problem `UNKNOWN`: request
    such IDs with `resolve`, and run the query again. Once an epoch has named `MOST_ABSENT` IDs that the registry
    doesn't have, its other unknown IDs are problems like any other.
    """

    def __init__(self, registry: Registry[Schema], topics: Sequence[str], part: Part, learn: Learn[Schema]) -> None:
        """Requests nothing yet."""
        self.taken: list[str] = []
        """The IDs of schemas whose records can be read."""
        self._registry, self._topics, self._part = registry, topics, part
        self._learn = learn
        self._refused: dict[str, str] = {}
        self._absent: set[str] = set()
        """The IDs that this epoch has named and the registry doesn't have."""
        self._asks = True

    def request_versions(self) -> None:
        """Take the versions that the subject has now. Raises what the registry raises."""
        for schema_id, schema in self._registered().items():
            self._take(schema_id, schema)

    def take(self, schemas: Mapping[str, Schema]) -> None:
        """Take these schemas, by their ID, which were requested elsewhere."""
        for schema_id, schema in schemas.items():
            if schema_id not in self.taken:
                self._take(schema_id, schema)

    def begin_epoch(self) -> None:
        """See `Format.begin_epoch`."""
        self._absent.clear()
        self._asks = True

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """Request these schemas, and all others that the column ``bytes`` of ``records`` names.

        A schema that can't be used makes bad records from now on, one that the registry doesn't have in this epoch.
        After `MOST_ABSENT` IDs of an epoch that the registry doesn't have, it is asked for no others. Raises
        `RegistryUnreachable`.
        """
        known = {*self.taken, *self._refused, *self._absent}
        wanted = [schema_id for schema_id in dict.fromkeys([*self._named(records), *ids]) if schema_id not in known]
        if len(wanted) > MOST_ABSENT:
            # A few requests find every new version of the subject, however many other IDs there are.
            for schema_id, schema in self._registered().items():
                if schema_id in wanted:
                    wanted.remove(schema_id)
                    self._take(schema_id, schema)
        for schema_id in wanted:
            if len(self._absent) >= MOST_ABSENT:
                self._asks = False
                return
            try:
                schema = self._registry.schema(schema_id).schema
            except UnknownSchema:
                self._absent.add(schema_id)
            except UnusableSchema as error:
                self._refuse(schema_id, error)
            else:
                self._take(schema_id, schema)

    def problem(self, value: Column, of_taken: str | None) -> Column:
        """STRING: why this value can't be read. ``of_taken``: what is said of one whose schema can."""
        from pyspark.sql import functions as F

        wire = self._registry.wire
        named = wire.schema_id(value)
        why = F.when(wire.problem(value).isNotNull(), wire.problem(value))
        if self.taken:
            why = F.when(self.one_of(value, self.taken), F.lit(of_taken)).when(
                wire.problem(value).isNotNull(), wire.problem(value)
            )
        if self._absent:
            nowhere = F.concat(F.lit("schema id "), named, F.lit(" isn't in the registry"))
            why = why.when(named.isin(*sorted(self._absent)), nowhere)
        for schema_id, refused in self._refused.items():
            why = why.when(self.one_of(value, [schema_id]), refused)
        unasked = f" wasn't looked up, because the registry has none of {MOST_ABSENT} other ids in the same epoch"
        ask = F.concat(F.lit(UNKNOWN), named) if self._asks else F.concat(F.lit("schema id "), named, F.lit(unasked))
        return why.otherwise(ask)

    def one_of(self, value: Column, ids: Iterable[str]) -> Column:
        """Whether the value names one of these schemas."""
        from pyspark.sql import functions as F

        headers = [F.startswith(value, F.lit(self._registry.wire.header(schema_id))) for schema_id in ids]
        return reduce(lambda one, other: one | other, headers)

    def _registered(self) -> Mapping[str, Schema]:
        """The versions that the subject has now, by their ID."""
        versions = [self._registry.known(topic, self._part) for topic in self._topics]
        return {schema_id: each.schema for known in versions for schema_id, each in known.items()}

    def _take(self, schema_id: str, schema: Schema) -> None:
        try:
            why = self._learn(schema_id, schema)
        except UnusableSchema as error:
            self._refuse(schema_id, error)
            return
        if why is None:
            self.taken.append(schema_id)
        else:
            self._refused[schema_id] = why if why == NOTHING else f"schema id {schema_id} {why}"

    def _refuse(self, schema_id: str, error: UnusableSchema) -> None:
        self._refused[schema_id] = f"schema id {schema_id} can't be used: {error.message}"

    def _named(self, records: DataFrame) -> list[str]:
        """IDs in one query, because each answer makes the epoch be read again. Those that most records name come first,
        because corrupt data may name any ID, and hardly any twice."""
        from pyspark.sql import functions as F

        value, wire = F.col("bytes"), self._registry.wire
        named = records.where(wire.problem(value).isNull() & value.isNotNull())
        counts = named.groupBy(wire.schema_id(value).alias("id")).count()
        return [row["id"] for row in counts.orderBy(F.desc("count"), "id").limit(_MANY).collect()]
