"""Which second pipeline, of other topics, a table doesn't take. It is refused before it writes anything.

* One that keeps the newest row, or the versions, of a table's keys by a sequence. What a pipeline remembers of deletes
  beside the table counts by its own position, and goes back by its own epochs. So a delete of the one wouldn't hold for
  late updates of the other, and a RESTORE would forget the other's. Without a sequence a key that both have stops the
  run. The weaker deliveries have no position, and every delete counts. A second one that an earlier release has let in
  goes on.
* Any, if one of the two merges on read. They would share one change log, which each of them empties when it starts it.
  Each run asks, as a file may get ``merge: on_read`` later.
"""

from __future__ import annotations

from connector.config import DeltaSink, KeyedSink, PipelineConfig
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.other_pipelines import Other, named, of_other_topics
from sinks.delta.shape import forgetting_sql
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError


def refuse_second(config: PipelineConfig, table: DeltaTable, commits: PipelineCommits) -> None:
    """Raises ConfigurationError if the pipeline is a second one that the table doesn't take."""
    if table.is_new:
        return
    sink = config.sinks[0]
    assert isinstance(sink, DeltaSink)
    lasting = config.delivery == "transactional"
    begun = lasting and commits.position() is not None
    by_sequence = isinstance(sink, KeyedSink) and sink.sequence_by is not None and lasting and not begun
    on_read = config.merged_on_read is not None
    if not (by_sequence or on_read or ((not begun or named(table, config.name)) and _has_log(config, table))):
        return
    other = of_other_topics(table, config.name, config.source.topics, begun=begun)
    if other is None:
        return
    if by_sequence:
        raise _by_sequence(sink, table, other)
    if on_read or other.merges_on_read(table):
        raise _on_read(sink, table, other, own=on_read, begun=begun)


def _has_log(config: PipelineConfig, table: DeltaTable) -> bool:
    return ChangeLog(table, pipeline=config.name, topics=config.source.topics).table.exists()


def _by_sequence(sink: DeltaSink, table: DeltaTable, other: Other) -> ConfigurationError:
    return ConfigurationError(
        f"{sink.in_file}: pipeline {other.name!r} keeps the rows of {table.label!r} from other topics. Two pipelines "
        "can't do so by sequence_by: the deletes of the one don't hold for late updates of the other.",
        hint="Give this pipeline a table of its own, or have one pipeline read all the topics, in several "
        "formats if need be: flows. If it takes the "
        f"other's place, give it the other's name: {other.name}.",
    )


def _on_read(sink: DeltaSink, table: DeltaTable, other: Other, *, own: bool, begun: bool) -> ConfigurationError:
    where = f"{sink.option('merge')}: on_read" if own else f"{sink.in_file}: merge: on_read in pipeline {other.name!r}"
    hint = (
        "Give each pipeline a table of its own. Or write merge: on_write in both; the one that had on_read runs first."
    )
    if begun:
        hint += f" If {other.name} doesn't run any more, have the table forget it: {forgetting_sql(table, other.name)}"
    return ConfigurationError(
        f"{where}: pipeline {other.name!r} writes to {table.label!r} from other topics. Two pipelines can't share a "
        "table that is merged on read: there is one change log, and each would empty it of the other's epochs. "
        "Nothing was written.",
        hint=hint,
    )
