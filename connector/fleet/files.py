"""Pipeline files, several at once: those of a folder, read so that a fault in one hides none of the others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import PipelineConfig, Several, SinkBySink, Template, is_meant, load_any
from connector.config.apart import nested, tables_of
from connector.config.masked import hidden_login, names_secret
from connector.config.places import spot
from connector.source.topics import KafkaSource
from connector.spark.in_use import shared_session
from connector.spark.session import wanted
from sinks.errors import BrokerUnreachable, ConfigurationError, LakelockError, NotAuthorized, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.fleet")

_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Fault:
    """Why something couldn't be done or seen, as a command would say it."""

    message: str
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline file, read once. It has a ``config``, or an ``error`` if it can't be used."""

    file: str
    """Its path; with ``#TOPIC`` the pipeline of one topic in it."""
    config: PipelineConfig | None = None
    error: LakelockError | None = None
    template: Path | None = None
    """The file with ``tables`` that it was made from. Another topic may appear there at any time."""
    intended: PipelineConfig | None = None
    """Beside some errors: the ``config`` that it would have without. If Kafka hasn't told the topics: like theirs."""
    for_now: bool = False
    """Whether it is refused only as long as Kafka doesn't show its topic, or that of an override that seems to be meant
    for its own."""
    spark: SparkSession | None = None
    """The session that the pipeline was given in Python; None: it works in that of all."""

    @property
    def name(self) -> str:
        """The pipeline's name, or the file's if it can't be read."""
        return self.config.name if self.config else Path(self.file).name

    @property
    def awaits_topics(self) -> bool:
        """Whether it stands for a file with ``tables`` whose topics Kafka hasn't told: none there yet, or no answer."""
        return self.template is not None and isinstance(self.error, BrokerUnreachable | TopicMissing)

    @property
    def grows(self) -> bool:
        """Whether topics that appear get a pipeline in the same run."""
        like = self.config or self.intended
        return self.template is not None and like is not None and like.interval is not None

    @property
    def fault(self) -> Fault | None:
        """The ``error``, as a command would say it."""
        return fault_of(self.error) if self.error else None

    def usable(self) -> PipelineConfig:
        """The ``config``. Raises the ``error``."""
        if self.error is not None:
            raise self.error
        assert self.config is not None
        return self.config


def pipeline_files(places: Sequence[Path]) -> list[Path]:
    """The given files, those that a pattern such as ``pipelines/*.yaml`` names, and those in the given folders.

    In a folder a pipeline file is YAML with a ``source``, or with a pipeline file's options for the most part. A file
    that is empty or isn't YAML counts as one, so that it shows. Raises ConfigurationError for a place that has none.
    """
    files, empty = list[Path](), list[Path]()
    for place in places:
        found = [place]
        if place.is_dir():
            found = [file for file in sorted(place.iterdir()) if file.suffix.lower() in _YAML and is_meant(file)]
        elif any(sign in str(place) for sign in "*?[") and not place.exists():
            found = sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))))
        files += found
        empty += [] if found else [place]
    # Also beside others that have some: after a slip in one, its pipelines would seem to be looked at.
    if empty or not files:
        raise ConfigurationError(
            f"There is no pipeline file in {', '.join(map(str, empty))}.",
            hint="Give pipeline files, or a folder that has some (*.yaml). Leave out what has none.",
        )
    return list(dict.fromkeys(files))


def read(files: Sequence[Path], overrides: Sequence[str] = (), *, known: Collection[str] = ()) -> list[PipelineFile]:
    """Read pipeline files, with the same ``--set`` overrides. A file that can't be read has an error.

    A file with ``tables`` gives one for each of its topics: Kafka is asked which there are. A file with ``together:
    eventual`` gives one for each sink. ``known``: leave out these parts of files (``FILE#PART``).
    """
    found: list[PipelineFile] = []
    for file in files:
        try:
            one = load_any(file, overrides)
            found += _parts(one, known) if isinstance(one, Several) else [PipelineFile(str(file), one)]
        except LakelockError as error:
            found.append(PipelineFile(str(file), error=error))
    return found


def _parts(several: Template | SinkBySink, known: Collection[str]) -> list[PipelineFile]:
    """One for each topic that there is, or for each sink. Raises LakelockError; one that is wrong has its error."""
    grows = Path(several.origin) if isinstance(several, Template) else None
    try:
        parts, hidden = _topics(several) if isinstance(several, Template) else (several.parts, ())
    except (BrokerUnreachable, TopicMissing) as error:
        like = several.like_all if isinstance(several, Template) else None
        return [PipelineFile(several.origin, error=error, template=grows, intended=like)]
    unused, misnamed = _of_no_topic(several, parts, known, hidden) if isinstance(several, Template) else ([], {})
    found = []
    for part in [*parts, *unused]:
        file = f"{several.origin}#{part}"
        if file in known:
            continue
        try:
            config = several.pipeline(part)
        except LakelockError as wrong:
            found.append(PipelineFile(file, error=wrong, template=grows))
            continue
        if part in misnamed:
            found.append(PipelineFile(file, error=misnamed[part], template=grows, intended=config, for_now=True))
        elif part in hidden:
            found.append(
                PipelineFile(file, error=_hidden(several, part), template=grows, intended=config, for_now=True)
            )
        elif part not in unused:
            found.append(PipelineFile(file, config, template=grows))
    return found


def _of_no_topic(
    template: Template, topics: Sequence[str], known: Collection[str], hidden: Collection[str]
) -> tuple[list[str], dict[str, ConfigurationError]]:
    """The topics of ``overrides`` that Kafka doesn't have, and the topics that these seem to be meant for -> why they
    are refused. The log names the others, once, but for the ``hidden``. ``known``: as in ``read``."""
    unused, misnamed = template.without_topic(topics), template.misnamed(topics)
    absent = [topic for topic in unused if topic not in hidden]
    if absent and not misnamed and not any(file.startswith(f"{template.origin}#") for file in known):
        log.warning(
            "%s: tables.overrides is for topics that Kafka doesn't have: %s. If one had a table, no command for the "
            "whole file looks at it",
            template.origin,
            ", ".join(absent),
        )
    return unused, misnamed


def _topics(template: Template) -> tuple[list[str], Collection[str]]:
    """The topics that Kafka lists; and those of ``overrides`` that it doesn't, as the user may not see them."""
    with closing(KafkaSource(template.source)) as source:
        topics = source.topics()
        return topics, source.hidden(template.without_topic(topics))


def _hidden(several: Several, topic: str) -> NotAuthorized:
    """The error for a topic of ``overrides``. Without it the table would stop growing, and nobody would say so."""
    return NotAuthorized(
        f"{several.origin}: tables.overrides.{topic}: Kafka doesn't let the user see this topic, and leaves it out of "
        "its list.",
        hint=f"Allow the user DESCRIBE and READ on topic {topic!r}. If there is no such topic, remove the override.",
    )


def fault_of(error: BaseException) -> Fault:
    """An error as a fault. Of an error that isn't Lakelock's own, only the first line."""
    if isinstance(error, LakelockError):
        return Fault(error.message, error.hint, error.exit_code)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return Fault(f"{type(error).__name__}: {first}"[:500])


def without_clashes(files: Sequence[PipelineFile]) -> list[PipelineFile]:
    """The same files. Those that would get in each other's way in one process have an error instead of a ``config``.

    Two pipelines clash if they have one name, write to one place or into each other's folders, or want different values
    of one setting of Spark's, because all share a session. A setting that may change what is stored, such as the time
    zone, has to be in all files or in none. Nobody can say which of them is right, so all that clash are refused.
    """
    claims: dict[tuple[str, str], list[PipelineFile]] = {}
    settings: dict[str, dict[str, list[PipelineFile]]] = {}
    for file in files:
        if file.config is not None:
            claims.setdefault(("are both called", file.config.name), []).append(file)
            for place in _written(file.config):
                claims.setdefault(("both write to", place), []).append(file)
    tables = {
        (number, option): place.folder
        for number, file in enumerate(files)
        if file.config is not None
        for option, place in tables_of(file.config).items()
    }
    apart = {(inner[0], outer[0]) for inner, outer in nested(tables, tables) if inner[0] != outer[0]}
    options = [(file, config.spark_options) for file in files if (config := _for_session(file)) is not None]
    for setting in {setting for _, given in options for setting in given}:
        for file, given in options:
            value = wanted(setting, given)
            if value is not None:
                settings.setdefault(setting, {}).setdefault(value, []).append(file)
    clashing = [
        ([files[inner], files[outer]], "write to tables in each other's folder, where VACUUM would remove files")
        for inner, outer in sorted(apart)
    ]
    clashing += [(claimed, f"{how} {what}") for (how, what), claimed in claims.items() if len(claimed) > 1]
    clashing += [
        ([file for wanting in values.values() for file in wanting], _different(setting, values))
        for setting, values in settings.items()
        if len(values) > 1
    ]
    clashes: dict[str, str] = {}
    for claimed, how in clashing:
        said = f"{' and '.join(file.file for file in claimed)} {how}."
        clashes |= {file.file: said for file in claimed}
    hint = (
        "Pipelines of one process share a Spark session, and each has a name and sinks of its own. Correct the files."
    )
    return [
        replace(
            file,
            config=None,
            error=ConfigurationError(clashes[file.file], hint=hint),
            intended=file.config or file.intended,
        )
        if file.file in clashes
        else file
        for file in files
    ]


def _written(config: PipelineConfig) -> Collection[str]:
    """The places of the sinks, of a route also those of ``overrides``."""
    named = config.route.names if config.route is not None else []
    return dict.fromkeys(spot(sink) for each in [config, *map(config.routed, named)] for sink in each.sinks)


def _different(setting: str, values: Mapping[str, Sequence[PipelineFile]]) -> str:
    """That files give a setting different values, which are named if none can be a secret. ``values``: in clear."""
    configs = [config for wanting in values.values() for file in wanting if (config := _for_session(file)) is not None]
    said = f"give spark.{setting!r} different values"
    # What comes from the environment or from a file is wrapped, whatever the setting is called.
    if names_secret(("spark", setting)) or any(not isinstance(c.spark.get(setting, ""), str) for c in configs):
        return said
    return f"{said}: {' and '.join(map(hidden_login, values))}"


def _for_session(file: PipelineFile) -> PipelineConfig | None:
    """What the session of all is made for; None: not for this one. It is also that of topics which appear later."""
    if file.spark is not None:
        return None
    return file.intended if file.awaits_topics else file.config


@contextmanager
def one_session(files: Sequence[PipelineFile], *, name: str, debug: bool, short: bool = True) -> Iterator[SparkSession]:
    """One Spark session for all pipelines, with the options of all files. Where files differ, the first file counts.

    ``short`` says whether there is little to do.
    """
    configs = [config for file in files if (config := _for_session(file)) is not None]
    options = {name: value for config in reversed(configs) for name, value in config.spark_options.items()}
    on_s3 = any(config.on_s3 for config in configs)
    given = None if configs else next((file.spark for file in files if file.spark is not None), None)
    with shared_session(options, name=name, s3=on_s3, debug=debug, short=lambda: short, given=given) as spark:
        yield spark
