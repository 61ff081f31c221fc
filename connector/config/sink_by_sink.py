"""``together: eventual``: each of several sinks moves by itself, as a pipeline of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connector.config.faults import Fault
from connector.config.placeholders import digest
from connector.config.places import NAME
from connector.config.several import Several
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

OPTION, EVENTUAL = "together", "eventual"


@dataclass(frozen=True)
class PartOf:
    """The names that the pipeline of one sink may have had before."""

    file: str
    """The name of the file's pipeline: with ``together: atomic`` it was that of all sinks."""
    last: str
    """The last part of the sink's place."""
    part: str = ""
    """What the sink is called now."""

    @property
    def pattern(self) -> str:
        """A regular expression for the names that the file gives this sink by itself. Which one it is depends on the
        other sinks."""
        return f"^{re.escape(self.file)}-{re.escape(self.last)}(_[0-9a-f]{{8}})?$"


class SinkBySink(Several):
    """A pipeline file whose sinks don't wait for each other.

    A sink's name is its ``part``, or else the last part of its place. If another sink has the same, a part of the hash
    of the place is added, so the name may change with the other sinks. A pipeline's name must never change: it fences
    runs, and says which commits are its own. ``engine.renamed`` refuses a sink that was written under another name.
    """

    of, makes = "sink", "each sink is a pipeline"

    @property
    def parts(self) -> list[str]:
        """What each sink is called. Raises ConfigurationError."""
        sinks = self.document.get("sinks")
        if not isinstance(sinks, list) or not sinks or not all(isinstance(sink, Mapping) for sink in sinks):
            raise self._no_sinks()
        given = [_given(sink) for sink in sinks]
        twice = next((name for name in given if name is not None and given.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(
                f"{self.origin}: two sinks have part: {twice}, and each is a pipeline of its own.",
                hint="Give each of them another name. One that has rows keeps its own.",
            )
        taken = Counter(name or _last(sink) for name, sink in zip(given, sinks, strict=True))
        return [name or _own_name(sink, taken) for name, sink in zip(given, sinks, strict=True)]

    @property
    def known_parts(self) -> list[str]:
        """All of them. Raises ConfigurationError."""
        return self.parts

    def _no_sinks(self) -> ConfigurationError:
        """What is wrong with the file, whose sinks are no list of sinks."""
        options = {name: value for name, value in self.document.items() if name != OPTION}
        wrong = f"{OPTION}: {EVENTUAL} is for several sinks. Write a list of sinks, or remove {OPTION}"
        try:
            self.parse(options, self.origin, lambda path: path, [Fault((OPTION,), wrong, name=True)])
        except ConfigurationError as error:
            return error
        raise AssertionError("a fault is always told")

    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one sink. Raises ConfigurationError."""
        parts = self.parts
        if part not in parts:
            raise ConfigurationError(f"{self.origin} has no sink {part}.", hint=f"Its sinks are {', '.join(parts)}.")
        index = parts.index(part)
        options = {name: value for name, value in self.document.items() if name != OPTION}
        options |= self._name(part)
        options["sinks"] = [self.document["sinks"][index]]
        source = options.get("source")
        kafka = source.get("kafka") if isinstance(source, Mapping) else None
        if isinstance(source, Mapping) and isinstance(kafka, Mapping) and "group.id" in kafka:
            # Each publishes how far it is; in one group the last one would count.
            options["source"] = {**source, "kafka": {**kafka, "group.id": f"{kafka['group.id']}-{part}"}}
        config = self._parsed(options, part, ("sinks", index))
        config._part_of = PartOf(str(self.document.get("name", "")), _last(self.document["sinks"][index]), part)
        return config


def _place(sink: Mapping[str, Any]) -> str:
    """Where a sink is, or its name."""
    return str(next((sink[name] for name in ("path", "table", "url", "topic", "name") if sink.get(name)), ""))


def _given(sink: Mapping[str, Any]) -> str | None:
    """The name that the file gives the sink. One that can't be a name is told as a fault of the pipeline."""
    part = sink.get("part")
    return part if isinstance(part, str) and re.fullmatch(NAME, part) else None


def _last(sink: Mapping[str, Any]) -> str:
    return last_of(_place(sink))


def last_of(place: str) -> str:
    """The last part of a sink's place, as a part of a name."""
    return re.sub("[^a-z0-9]+", "_", re.split(r"[/.]", place.rstrip("/"))[-1].lower())


def _own_name(sink: Mapping[str, Any], taken: Mapping[str, int]) -> str:
    """The name of a sink to which the file gives none."""
    last = _last(sink)
    return last if last and taken[last] == 1 else f"{last}_{digest(_place(sink))}"
