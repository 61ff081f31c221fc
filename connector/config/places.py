"""Where a sink is: among the sinks of the pipeline file, and, of a Delta table, its path or name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from connector.config.kinds import Name, Options, fits, topic_name
from connector.config.layout import TableLayout, TableProperties, refuse_append_only
from sinks.spark.files import absolute

if TYPE_CHECKING:
    from typing_extensions import Self

    from connector.config.pipeline import PipelineConfig
    from connector.config.sinks import SinkOptions
    from connector.config.source import Source


NAME = r"^[a-z0-9_-]+$"
"""What a pipeline, or a part of its name, may be called."""


def normal(place: str) -> str:
    """The place without what makes no difference: ``./lake//a/`` is lake/a, ``file:/lake`` is /lake, and ``s3a://lake``
    is s3://lake."""
    here = re.fullmatch("file:(?://[^/]*)?(/.*)", place, re.I)
    scheme, separator, path = place.rpartition("://") if here is None else ("", "", "")
    if separator:
        bucket, _, folder = path.partition("/")
        return f"{scheme.lower().replace('s3a', 's3')}://{bucket}{_path(f'/{folder}').rstrip('/')}"
    return _path(place if here is None else here[1])


def _path(path: str) -> str:
    """As Hadoop reads it. POSIX lets two slashes at the start be a place of their own."""
    return posixpath.normpath(re.sub("/+", "/", path))


@dataclass(frozen=True)
class InSeveral:
    """What the sink of one pipeline knows of a file that has several."""

    option: str
    """Where the file takes an option for this sink alone: ``sinks[1]``, or ``tables.overrides.orders.sink``."""
    others: Callable[[Sequence[str]], Sequence[PipelineConfig]] = field(compare=False, repr=False)
    """The other pipelines of the file that are known without asking Kafka, or may have a table near one of these
    folders, if their options are right. It takes a while: each is read anew."""
    tables_alone: str = ""
    """What to do where only tables are meant, as a hint."""


class ListedSink(Options):
    """What the options of every sink know: where in the pipeline file they are."""

    part: Annotated[str, Field(pattern=NAME, max_length=100)] | None = None
    """What the sink's pipeline is called with ``together: eventual``, after the name of the file: docs/many-tables.md.
    By default the last part of its place. Don't change it once the sink has rows."""
    _in_file: str = PrivateAttr("sinks[0]")
    _in_several: InSeveral | None = PrivateAttr(None)
    _several_topics: bool = PrivateAttr(False)

    @property
    def in_file(self) -> str:
        """``sinks[1]`` for the second sink of the file, for messages."""
        return self._in_file

    @property
    def in_several(self) -> InSeveral | None:
        """What it knows of a file of several pipelines. None: it is the file of one pipeline."""
        return self._in_several

    def kept_apart(self) -> Self:
        """A copy whose place has been compared with those of all the file's pipelines."""
        copy = self.model_copy()
        copy._in_several = self._in_several and replace(self._in_several, others=lambda _: ())
        return copy

    @property
    def several_topics(self) -> bool:
        """Whether its rows may be of several topics, and no ``route`` tells their tables apart."""
        return self._several_topics

    def at(self, index: int, source: Source | None) -> Self:
        """A copy that knows its place among the sinks of the file, and of which topics its rows are."""
        copy = self.given_as(f"sinks[{index}]")
        copy._several_topics = source is not None and source.several_topics
        return copy

    def given_as(self, option: str) -> Self:
        """A copy that is given elsewhere in the file, for messages: ``route.sink``."""
        copy = self.model_copy()
        copy._in_file = option
        return copy

    def option(self, *path: str) -> str:
        """The path of one of these options in the file, for messages: ``sinks[1].aggregates.delay``."""
        return ".".join((self._in_file, *path))


class DeltaPlace(Options):
    """Names a Delta table, by path or by table name."""

    path: Name | None = None
    """The table's folder, relative to the pipeline file, or its URI. Give ``path`` or ``table``."""
    table: Name | None = None
    """The table's name, ``catalog.schema.table``, instead of ``path``."""
    _beside: str = PrivateAttr("")

    @property
    def place(self) -> str:
        """The path or name of the table, as the user wrote it."""
        return str(self.path or self.table)

    @property
    def folder(self) -> str | None:
        """The table's folder, as an absolute path, or its URI. None for a table with a name."""
        return None if self.path is None else absolute(self.path, self._beside)

    @property
    def address(self) -> str:
        """The absolute path, the URI or the name of the table."""
        return str(self.folder or self.table)

    def beside(self, folder: str) -> Self:
        """A copy whose relative path belongs to ``folder``, by default to the working directory."""
        copy = self.model_copy()
        copy._beside = folder
        return copy

    @fits
    def _one_place(self) -> None:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path (a folder or URI) or table (catalog.schema.name)")
        if not (self.path or self.table):
            raise ValueError("path or table is empty")


class DeltaSink(ListedSink, TableLayout, DeltaPlace):
    """A sink that is a Delta table."""


def spot(sink: DeltaPlace | SinkOptions) -> str:
    """What all spellings of a sink's place have in common: a catalog takes a table's name in any case."""
    if not isinstance(sink, DeltaPlace) or (sink.path is None and sink.table is None):
        return normal(sink.place)
    return normal(sink.folder) if sink.folder is not None else str(sink.table).replace("`", "").lower()


def shared_places(sinks: Sequence[SinkOptions]) -> Sequence[str]:
    """The places that several of the sinks have. A sink of one's own may be called as a table is, and logs know sinks
    by what they are called."""
    same = (
        other.place
        for one, other in combinations(sinks, 2)
        if spot(one) == spot(other) or normal(one.place) == normal(other.place)
    )
    return list(dict.fromkeys(same))


class DeadLetters(DeltaPlace):
    """Where to store dead letters: a Delta table, or a topic in the source's Kafka cluster."""

    topic: Annotated[Name, AfterValidator(topic_name)] | None = None
    """A topic in the source's Kafka cluster, instead of a table. After a crash a dead letter may be there twice."""
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The largest share of bad records in an epoch, above 0 up to 1. Beyond it the run stops. No limit by default."""
    sensitive: Literal["refuse", "allow"] = "refuse"
    """Whether the letters may hold ``sensitive`` columns: a letter has its whole record, which a retry needs. With
    ``refuse`` such a file is refused. Write ``allow`` if who can read the letters may see these columns."""
    properties: TableProperties = Field(default_factory=dict)
    """Properties of the table, for when it is made, as in {delta.deletedFileRetentionDuration: 30 days}."""

    @property
    def place(self) -> str:
        """The path, table or ``kafka:<topic>``."""
        return super().place if self.topic is None else f"kafka:{self.topic}"

    @fits
    def _one_place(self) -> None:
        if [self.path, self.table, self.topic].count(None) != 2:
            raise ValueError("give one of path (a folder or URI), table (catalog.schema.name) or topic (of Kafka)")
        if not (self.path or self.table or self.topic):
            raise ValueError("path or table is empty")
        if self.topic is not None and self.properties:
            raise ValueError("properties: are those of a Delta table, and a topic has none. Remove them")
        refuse_append_only(self.properties)


def tables_of_letters(config: PipelineConfig) -> Sequence[DeltaPlace]:
    """The tables that a dead letter of this pipeline may name as its own. A new letter names the first of them.

    With two-phase commit that is the coordinator log. Letters from before a second sink was added name their table.
    Where one sink is left of several, those from before name the log, which counts as long as the file names it.
    """
    whole = config.whole
    found: Sequence[object] = whole.sinks
    if whole.two_phase:
        found = [whole.coordinator, *(whole.sinks if whole.route is None else ())]
    elif whole.coordinator is not None:
        found = [*whole.sinks, whole.coordinator]
    return [table for table in found if isinstance(table, DeltaPlace)]
