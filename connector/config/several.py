"""A pipeline file that has several pipelines: one of each topic, or one of each sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sinks.errors import ConfigurationError

if TYPE_CHECKING:
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
    parse: Callable[[Mapping[str, Any], str], PipelineConfig]
    """Reads the options of one pipeline; the text names it in errors."""

    @abstractmethod
    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one part. Raises ConfigurationError."""

    def _parsed(self, options: Mapping[str, Any], part: str, sink: str) -> PipelineConfig:
        """The pipeline with these options. ``sink``: where the file has the options of its sink."""
        try:
            return self.parse(options, f"{self.origin}#{part}")
        except ConfigurationError as error:
            raise type(error)(error.message.replace("sinks[0]", sink), hint=error.hint) from None
