"""A pipeline file that has several pipelines: one of each topic, or one of each sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from connector.config.kinds import dotted
from connector.config.marks import Marks
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.faults import Moved
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
    parse: Callable[[Mapping[str, Any], str, Moved], PipelineConfig]
    """Reads the options of one pipeline. The text names it in errors, and the function says where the file has an
    option of it."""
    marks: Marks = field(default_factory=Marks)
    """Where the options stand in the file."""

    @abstractmethod
    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one part. Raises ConfigurationError."""

    def _parsed(self, options: Mapping[str, Any], part: str, sink: Path, moved: Moved | None = None) -> PipelineConfig:
        """The pipeline with these options.

        ``sink``: where the file has the options of its sink. ``moved``: the same of any option.
        """

        def sinks_moved(path: Path) -> Path:
            return (*sink, *path[2:]) if path[:2] == ("sinks", 0) else path

        try:
            return self.parse(options, f"{self.origin}#{part}", moved or sinks_moved)
        except ConfigurationError as error:
            raise type(error)(error.message.replace("sinks[0]", dotted(sink)), hint=error.hint) from None
