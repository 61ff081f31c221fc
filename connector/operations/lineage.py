"""What a pipeline's options say of it: where its records come from and go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connector.config import DeadLetters, DeltaPlace, PipelineConfig, TopicPattern
from connector.config.masked import hidden_login
from connector.display import Line, Page, Shown


@dataclass(frozen=True)
class Goal:
    """Where rows go to."""

    kind: str
    """As in the file: ``delta_append``."""
    place: str


@dataclass(frozen=True, repr=False)
class Lineage(Shown):
    """From topics to tables."""

    name: str
    brokers: str
    topics: Sequence[str]
    steps: Sequence[str]
    """What is done with a record on its way, in words."""
    goals: Sequence[Goal]
    aside: str | None = None
    """Where bad records go to."""

    @property
    def line(self) -> str:
        """In one line."""
        return f"{self.name}: {', '.join(self.topics)} -> {', '.join(goal.place for goal in self.goals)}"

    def page(self) -> Page:
        """The way of a record, from top to bottom."""
        aside = [Line("bad records", self.aside)] if self.aside is not None else []
        return Page(
            [
                Line("pipeline", self.name),
                Line("reads", f"{', '.join(self.topics)} from {self.brokers}"),
                Line("records are", ", ".join(self.steps)),
                *(Line("writes", f"{goal.kind} {goal.place}") for goal in self.goals),
                *aside,
            ],
            labels=13,
        )


def lineage_of(config: PipelineConfig, *, as_written: bool = False) -> Lineage:
    """The lineage as the file has it. A topic pattern is shown as it is.

    ``as_written``: with relative paths as they are in the file. Otherwise they are absolute.
    """
    topics = config.source.topics
    steps = [step for flow in config.by_flow for step in _of_flow(flow)]
    steps += ["transformed by SQL"] if config.transform is not None else []
    steps += [f"routed by {config.route.by}"] if config.route is not None else []
    goals = [
        Goal(sink.type, hidden_login(sink.address if isinstance(sink, DeltaPlace) and not as_written else sink.place))
        for sink in config.sinks
    ]
    return Lineage(
        config.name,
        hidden_login(config.source.kafka_options["bootstrap.servers"]),
        [str(topics)] if isinstance(topics, TopicPattern) else [str(topic) for topic in topics],
        steps,
        goals,
        _aside(config.dead_letters, as_written=as_written),
    )


def _of_flow(config: PipelineConfig) -> list[str]:
    of = f" ({', '.join(str(topic) for topic in config.source.topics)})" if config.flow is not None else ""
    steps = [f"decoded as {config.value.format}{of}"]
    steps += ["checked by require"] if config.require is not None else []
    return steps + [f"changed by {step.kind}" for step in config.steps]


def _aside(letters: DeadLetters | None, *, as_written: bool) -> str | None:
    if letters is None:
        return None
    return hidden_login(letters.place if as_written or letters.topic is not None else letters.address)
