"""One look at several pipelines, with one Spark session. A fault of one pipeline hides nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml

from connector.config import PipelineConfig, load
from connector.operations.dead_letters import LetterGroup, letter_groups
from connector.operations.history import LAST, PastEpoch, past
from connector.operations.status import Status
from connector.pipeline import Pipeline
from connector.spark.session import session
from sinks.errors import ConfigurationError, LakelockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Fault:
    """Why something couldn't be seen, as a command would say it."""

    message: str
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class Watched:
    """A pipeline file, read once. It has a ``config``, or a ``fault`` if it can't be read."""

    file: str
    config: PipelineConfig | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str:
        """The pipeline's name, or the file's if it can't be read."""
        return self.config.name if self.config else Path(self.file).name


@dataclass(frozen=True)
class Look:
    """What was seen of one pipeline. The parts are independent: without Kafka there is still the history."""

    file: str
    name: str
    at: datetime
    status: Status | None = None
    past: Sequence[PastEpoch] = ()
    letters: Sequence[LetterGroup] | None = None
    """Open dead letters. None: the pipeline keeps none in a table, or they couldn't be read."""
    faults: Sequence[Fault] = ()


def pipeline_files(places: Sequence[Path]) -> list[Path]:
    """The given files, and the pipeline files in the given folders: YAML with a ``source``, or files that aren't YAML.

    Raises ConfigurationError if there is none.
    """
    files: list[Path] = []
    for place in places:
        if place.is_dir():
            files += (file for file in sorted([*place.glob("*.yaml"), *place.glob("*.yml")]) if _is_pipeline(file))
        else:
            files.append(place)
    if not files:
        raise ConfigurationError(
            f"There is no pipeline file in {', '.join(map(str, places))}.",
            hint="Give pipeline files, or a folder that has some (*.yaml).",
        )
    return list(dict.fromkeys(files))


def _is_pipeline(file: Path) -> bool:
    """Whether a YAML file is meant as a pipeline file. A broken file counts as one, so that it shows."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError):
        return True
    return isinstance(document, dict) and "source" in document


def read(files: Sequence[Path], overrides: Sequence[str] = ()) -> list[Watched]:
    """Read pipeline files, with the same ``--set`` overrides. A file that can't be read has a fault."""
    watched = []
    for file in files:
        try:
            watched.append(Watched(str(file), load(file, overrides)))
        except LakelockError as error:
            watched.append(Watched(str(file), fault=fault_of(error)))
    return watched


def fault_of(error: Exception) -> Fault:
    """An error as a fault. Of an error that isn't Lakelock's own, only the first line."""
    if isinstance(error, LakelockError):
        return Fault(error.message, error.hint, error.exit_code)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return Fault(f"{type(error).__name__}: {first}"[:500])


@contextmanager
def one_session(watched: Sequence[Watched], *, debug: bool) -> Iterator[SparkSession]:
    """One Spark session for all pipelines, with the options of all files. Where files differ, the first file counts."""
    configs = [pipeline.config for pipeline in watched if pipeline.config is not None]
    options = {name: value for config in reversed(configs) for name, value in config.spark_options.items()}
    on_s3 = any(config.on_s3 for config in configs)
    with session(options, name="status", s3=on_s3, debug=debug, short=lambda: True) as spark:
        yield spark


def status_of(pipeline: Watched, spark: SparkSession, *, debug: bool = False) -> Status | Fault:
    """Where a pipeline stands, or why that can't be known. Raises nothing."""
    if pipeline.config is None:
        return pipeline.fault or Fault("The file can't be read.")
    try:
        return Pipeline(pipeline.config, debug=debug, spark=spark).status()
    except Exception as error:
        return fault_of(error)


def look(pipeline: Watched, spark: SparkSession, *, last: int = LAST, debug: bool = False) -> Look:
    """Look at one pipeline: its status, its ``last`` epochs, its dead letters. Faults are returned, not raised."""
    config, now = pipeline.config, datetime.now(timezone.utc)
    status = status_of(pipeline, spark, debug=debug)
    faults = [status] if isinstance(status, Fault) else []
    if config is None:
        return Look(pipeline.file, pipeline.name, now, faults=faults)

    def seen(ask: Callable[[], Seen], otherwise: Seen) -> Seen:
        try:
            return ask()
        except Exception as error:
            faults.append(fault_of(error))
            return otherwise

    in_table = config.dead_letters is not None and config.dead_letters.topic is None
    return Look(
        pipeline.file,
        pipeline.name,
        now,
        None if isinstance(status, Fault) else status,
        seen(lambda: past(config, spark, last), []),
        seen(lambda: letter_groups(config, spark), None) if in_table else None,
        faults,
    )
