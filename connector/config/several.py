"""A pipeline file that has several pipelines: one of each topic, or one of each sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from connector.config.fault_texts import shown
from connector.config.kinds import dotted
from connector.config.marks import Marks
from connector.config.places import InSeveral
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.faults import Fault, Moved
    from connector.config.marks import Path
    from connector.config.pipeline import PipelineConfig


@dataclass(frozen=True)
class Several(ABC):
    """What makes the pipelines of a file. ``FILE#PART`` names one of them."""

    of: ClassVar[str]
    """What each pipeline is of: a topic or a sink."""
    makes: ClassVar[str]
    """The same as a clause."""
    origin: str
    document: Mapping[str, Any]
    parse: Callable[[Mapping[str, Any], str, Moved, Sequence[Fault]], PipelineConfig]
    """Reads the options of one pipeline. The text names it in errors, the function says where the file has an option of
    it, and the faults are those that were found already."""
    marks: Marks = field(default_factory=Marks)
    """Where the options stand in the file."""

    @property
    @abstractmethod
    def known_parts(self) -> Sequence[str]:
        """The parts that are known without asking Kafka. There is at least one. Raises ConfigurationError."""

    @abstractmethod
    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one part. Raises ConfigurationError."""

    def named(self, part: str) -> PipelineConfig:
        """The pipeline of a part that somebody names, as ``FILE#PART``. Raises ConfigurationError."""
        return self.pipeline(part)

    def _name(self, of_part: str) -> dict[str, Any]:
        """The option with the name of one pipeline, if the file has one."""
        name = self.document.get("name")
        return {"name": f"{name}-{of_part}" if isinstance(name, str) else name} if "name" in self.document else {}

    def _parsed(
        self,
        options: Mapping[str, Any],
        part: str,
        sink: Path,
        moved: Moved | None = None,
        faults: Sequence[Fault] = (),
        own: Path | None = None,
    ) -> PipelineConfig:
        """The pipeline with these options.

        ``sink``: where the file has the options of its sink. ``moved``: the same of any option. ``faults``: those that
        were found already. ``own``: where the file takes options for this sink alone, if not there.
        """

        def sinks_moved(path: Path) -> Path:
            return (*sink, *path[2:]) if path[:2] == ("sinks", 0) else path

        try:
            config = self.parse(options, f"{self.origin}#{part}", moved or sinks_moved, faults)
        except ConfigurationError as error:
            told = error.message.replace("sinks[0]", dotted(sink))
            told = told.replace(shown(options.get("name")), shown(self.document.get("name")))
            raise type(error)(told, hint=error.hint) from None
        for each in config.sinks:
            each._in_several = InSeveral(dotted(own or sink), partial(self._others, part), self._tables_alone)
        return config

    @property
    def _tables_alone(self) -> str:
        return f"Each {self.of} is a pipeline by itself: name one whose sink is a table, '{self.origin}#PART'."

    def _parts_near(self, folders: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - only a pattern's topics need them
        """The parts that may have a table in these folders, or around them: those that are known without asking Kafka.
        Raises ConfigurationError."""
        return self.known_parts

    def _others(self, part: str, folders: Sequence[str]) -> list[PipelineConfig]:
        found = []
        for other in self._parts_near(folders):
            if other != part:
                with suppress(ConfigurationError):  # told when it runs
                    found.append(self.pipeline(other))
        return found
