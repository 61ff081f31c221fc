"""No second pipeline keeps the newest row, or the versions, of a table's keys by a sequence.

What a pipeline remembers of deletes beside the table counts by its own position, and goes back by its own epochs. So a
delete of the one wouldn't hold for late updates of the other, and a RESTORE would forget the other's. Without a
sequence a key that both have stops the run. The weaker deliveries have no position, and every delete counts.
"""

from __future__ import annotations

from connector.config import KeyedSink, PipelineConfig
from sinks.delta.commit import PipelineCommits
from sinks.errors import ConfigurationError


def refuse_second(config: PipelineConfig, sink: KeyedSink, commits: PipelineCommits) -> None:
    """Raises ConfigurationError if the pipeline has written nothing to the table yet, and another one has, of other
    topics. One that goes on with the same topics, under another name, finds its rows there."""
    if sink.sequence_by is None or config.delivery != "transactional" or commits.position() is not None:
        return
    other = commits.of_other_topics()
    if other is not None:
        raise ConfigurationError(
            f"{sink.in_file}: pipeline {other!r} keeps the rows of {commits.label!r} from other topics. Two pipelines "
            "can't do so by sequence_by: the deletes of the one don't hold for late updates of the other.",
            hint="Give this pipeline a table of its own, or have one pipeline read all the topics, in several "
            "formats if need be: flows. If it takes the "
            f"other's place, give it the other's name: {other}.",
        )
