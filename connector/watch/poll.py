"""One look at several pipelines, with one Spark session: a fault of one hides nothing of the others."""

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

Found = TypeVar("Found")


@dataclass(frozen=True)
class Fault:
    message: str
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class Watched:
    """A pipeline file, read once; ``config`` is missing where it can't be."""

    file: str
    config: PipelineConfig | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str:
        return self.config.name if self.config else Path(self.file).name


@dataclass(frozen=True)
class Look:
    """What was seen of one pipeline. Each part is found by itself: without Kafka there is still the history."""

    file: str
    name: str
    at: datetime
    status: Status | None = None
    past: Sequence[PastEpoch] = ()
    letters: Sequence[LetterGroup] | None = None
    """None: nothing is set aside in a table."""
    faults: Sequence[Fault] = ()


def pipeline_files(places: Sequence[Path]) -> list[Path]:
    """The files, and of folders the pipeline files in them: YAML with a ``source``, or what isn't YAML at all.

    Raises ConfigurationError where there is none.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += (file for file in sorted([*place.glob("*.yaml"), *place.glob("*.yml")]) if _is_pipeline(file))
        else:
            found.append(place)
    if not found:
        raise ConfigurationError(
            f"There is no pipeline file in {', '.join(map(str, places))}.",
            hint="Give pipeline files, or a folder with some (*.yaml).",
        )
    return list(dict.fromkeys(found))


def _is_pipeline(file: Path) -> bool:
    """Whether it is meant as one: a broken one shall be seen, a compose file beside it left out."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError):
        return True
    return isinstance(document, dict) and "source" in document


def read(files: Sequence[Path], overrides: Sequence[str] = ()) -> list[Watched]:
    found = []
    for file in files:
        try:
            found.append(Watched(str(file), load(file, overrides)))
        except LakelockError as error:
            found.append(Watched(str(file), fault=fault_of(error)))
    return found


def fault_of(error: Exception) -> Fault:
    if isinstance(error, LakelockError):
        return Fault(error.message, error.hint, error.exit_code)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return Fault(f"{type(error).__name__}: {first}"[:500])


@contextmanager
def one_session(watched: Sequence[Watched], *, debug: bool) -> Iterator[SparkSession]:
    """For all of them: what the files say of Spark is taken together, the first one's where they differ."""
    configs = [each.config for each in watched if each.config is not None]
    options = {name: value for config in reversed(configs) for name, value in config.spark_options.items()}
    on_s3 = any(config.on_s3 for config in configs)
    with session(options, name="status", s3=on_s3, debug=debug, short=lambda: True) as spark:
        yield spark


def status_of(each: Watched, spark: SparkSession, *, debug: bool = False) -> Status | Fault:
    if each.config is None:
        return each.fault or Fault("The file can't be read.")
    try:
        return Pipeline(each.config, debug=debug, spark=spark).status()
    except Exception as error:
        return fault_of(error)


def look(each: Watched, spark: SparkSession, *, last: int = LAST, debug: bool = False) -> Look:
    config, now = each.config, datetime.now(timezone.utc)
    status = status_of(each, spark, debug=debug)
    if config is None:
        assert isinstance(status, Fault)
        return Look(each.file, each.name, now, faults=[status])
    faults = [status] if isinstance(status, Fault) else []

    def found(ask: Callable[[], Found], otherwise: Found) -> Found:
        try:
            return ask()
        except Exception as error:
            faults.append(fault_of(error))
            return otherwise

    in_table = config.dead_letters is not None and config.dead_letters.topic is None
    return Look(
        each.file,
        each.name,
        now,
        None if isinstance(status, Fault) else status,
        found(lambda: past(config, spark, last), []),
        found(lambda: letter_groups(config, spark), None) if in_table else None,
        faults,
    )
