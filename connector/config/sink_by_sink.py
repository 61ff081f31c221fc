"""``together: eventual``: each of several sinks moves by itself, as a pipeline of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connector.config.faults import Fault
from connector.config.placeholders import digest
from connector.config.several import Several
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

OPTION, EVENTUAL = "together", "eventual"


class SinkBySink(Several):
    """A pipeline file whose sinks don't wait for each other."""

    of, makes = "sink", "each sink is a pipeline"

    @property
    def parts(self) -> list[str]:
        """What each sink is called: the last part of its place. Raises ConfigurationError."""
        sinks = self.document.get("sinks")
        if not isinstance(sinks, list) or not sinks or not all(isinstance(sink, Mapping) for sink in sinks):
            raise self._no_sinks()
        places = [_place(sink) for sink in sinks]
        last = [re.sub("[^a-z0-9]+", "_", re.split(r"[/.]", place.rstrip("/"))[-1].lower()) for place in places]
        taken = Counter(last)
        return [
            name if name and taken[name] == 1 else f"{name}_{digest(place)}"
            for name, place in zip(last, places, strict=True)
        ]

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
        config._part_of = str(self.document.get("name", ""))
        return config


def _place(sink: Mapping[str, Any]) -> str:
    """Where a sink is, or its name."""
    return str(next((sink[name] for name in ("path", "table", "url", "topic", "name") if sink.get(name)), ""))
