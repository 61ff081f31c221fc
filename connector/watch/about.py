"""What a pipeline's file says of it: where its records come from and go to, and the file itself, without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from connector.config import DeadLetters, DeltaPlace, PipelineConfig, TopicPattern, options_in
from connector.config.masked import hidden_login, without_secrets
from sinks.errors import LakelockError


@dataclass(frozen=True)
class Goal:
    """Where rows go to."""

    kind: str
    """As in the file: ``delta_append``."""
    place: str


@dataclass(frozen=True)
class Lineage:
    """From topics to tables."""

    brokers: str
    topics: Sequence[str]
    steps: Sequence[str]
    """What is done with a record on its way, in words."""
    goals: Sequence[Goal]
    aside: str | None = None
    """Where bad records go to."""


def lineage_of(config: PipelineConfig) -> Lineage:
    """The lineage as the file has it. A topic pattern is shown as it is."""
    topics = config.source.topics
    steps = [f"decoded as {config.value.format}"]
    steps += ["checked by require"] if config.require is not None else []
    steps += ["transformed by SQL"] if config.transform is not None else []
    steps += [f"routed by {config.route.by}"] if config.route is not None else []
    goals = [
        Goal(sink.type, hidden_login(sink.address if isinstance(sink, DeltaPlace) else sink.place))
        for sink in config.sinks
    ]
    return Lineage(
        hidden_login(config.source.kafka_options["bootstrap.servers"]),
        [str(topics)] if isinstance(topics, TopicPattern) else [str(topic) for topic in topics],
        steps,
        goals,
        _aside(config.dead_letters),
    )


def _aside(letters: DeadLetters | None) -> str | None:
    if letters is None:
        return None
    return hidden_login(letters.place if letters.topic is not None else letters.address)


def text_of(file: str, overrides: Sequence[str] = ()) -> str | None:
    """The options of a pipeline file as YAML, without secrets. None: it can't be read.

    ``file`` may name a part of it, as ``FILE#PART``.
    """
    path = file if Path(file).exists() else file.partition("#")[0]
    try:
        return without_secrets(options_in(Path(path), overrides))
    except (LakelockError, RecursionError):  # YAML can hold itself
        return None
