"""Rewinds and replays all pipelines of a file that has several: one of each sink, or one of each topic.

Each has epochs of its own, and is exact by itself, so there is no one position for all of them. What is asked of all is
planned for all before the first one changes. If the command is killed, the others stay where they stand: the same
command again takes them back, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from connector.config import PipelineConfig
from connector.config.placeholders import safe
from connector.fleet.files import PipelineFile, one_session
from connector.operations.replay import into_new_tables, refuse_old_places
from connector.operations.rewind import Rewind
from connector.operations.rewind_refused import NothingToRewind
from connector.pipeline import Pipeline
from connector.spark.session import isolated
from sinks.errors import ConfigurationError, LakelockError, NoRecordYet, OffsetsLost

log = logging.getLogger("lakelock.rewind")


def rewind_all(
    files: Sequence[PipelineFile],
    to_event_time: datetime,
    *,
    confirm: Callable[[Mapping[str, Rewind]], bool],
    allow_data_loss: bool = False,
    debug: bool = False,
) -> Mapping[str, Rewind]:
    """Take the tables of all these pipelines back to before a time. ``confirm`` gets all plans, and says whether to.

    One that has nothing to take back is passed by. ``allow_data_loss``: see ``Pipeline.rewind``. Raises
    ConfigurationError or OffsetsLost, with the name of the pipeline, if one of them can't go back. Then nothing was
    changed.
    """
    with _opened(files, "rewind", debug) as pipelines:
        plans, nothing = {}, None
        for name, pipeline in pipelines.items():
            try:
                plans[name] = pipeline.rewind(to_event_time=to_event_time, allow_data_loss=allow_data_loss)
            except (NoRecordYet, NothingToRewind) as error:  # as of a topic that has just appeared
                log.warning("%s: %s It is passed by.", name, error.message)
                nothing = error
            except (ConfigurationError, OffsetsLost) as error:
                told = f"{name}: {error.message} Nothing was changed, in no table."
                raise type(error)(told, hint=error.hint) from None
        if nothing is not None and not plans:
            raise nothing
        if not confirm(plans):
            return plans
        done: dict[str, Rewind] = {}
        for name in plans:
            rewind = pipelines[name].rewind
            try:
                done[name] = rewind(to_event_time=to_event_time, allow_data_loss=allow_data_loss, confirm=True)
            except LakelockError as error:
                back = ", ".join(done) or "none"
                error.message = f"{name}: {error.message} Of these pipelines have gone back: {back}."
                error.args, again = (error.message,), "Give the same command again for the others."
                error.hint = f"{error.hint} {again}".strip()
                if hasattr(error, "add_note"):
                    error.add_note(again)
                raise
        return done


def replay_all(
    files: Sequence[PipelineFile],
    into: str,
    replay: Callable[[Pipeline, str], None],
    *,
    failed: Callable[[str, Exception], None],
    debug: bool = False,
) -> None:
    """Replay each of these pipelines into a folder of its own. ``replay``: does it for one, and a path. ``failed``: is
    told of one that couldn't be, by its name; the others are replayed all the same.

    Raises ConfigurationError before the first one if a new table would lie in the folder of an old one, or around it.
    """
    # As a `{topic}` in the path of `tables` would name them.
    parts = {file.usable().name: safe(file.file.rpartition("#")[2], "path") for file in files}
    # Compared here, once, and with the topics that Kafka has. Each by itself would read all others again, and be kept
    # off folders of topics that there may be.
    files = [replace(file, config=_kept_apart(file.usable())) for file in files]
    configs = [file.usable() for file in files]
    new = {config.name: into_new_tables(config, f"{into}/{parts[config.name]}", None) for config in configs}
    refuse_old_places(new, configs)
    with _opened(files, "replay", debug) as pipelines:
        for name, pipeline in pipelines.items():
            try:
                replay(pipeline, f"{into}/{parts[name]}")
            except Exception as error:  # Spark has errors of its own
                failed(name, error)


def _kept_apart(config: PipelineConfig) -> PipelineConfig:
    return config.model_copy(update={"sinks": tuple(sink.kept_apart() for sink in config.sinks)})


@contextmanager
def _opened(files: Sequence[PipelineFile], what: str, debug: bool) -> Iterator[Mapping[str, Pipeline]]:
    """The pipelines by name, in one Spark session. Raises the error of a file that can't be used."""
    configs = [file.usable() for file in files]
    with one_session(files, name=what, debug=debug) as spark, isolated(spark) as own:
        yield {config.name: Pipeline(config, debug=debug, spark=own) for config in configs}
