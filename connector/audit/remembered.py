"""What a table remembers of the options that made its rows, as a property of its own. Pure.

By another time zone a text without one is another instant, and by another key other rows belong together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from connector.config import DeltaAggregateSink, DeltaHistorySink, KeyedSink, PipelineConfig
from connector.config.kinds import duration_text

ZONE = "spark.sql.session.timeZone"

Text: TypeAlias = str | Sequence[str] | None


def property_of(pipeline: str) -> str:
    """The name of the property that has the options of this pipeline."""
    return f"lakelock.shape.{pipeline.encode().hex()}"


def remembered(text: str | None) -> dict[str, Text]:
    """Option -> what it said, by the property. Empty: nothing that can be read."""
    try:
        found = json.loads(bytes.fromhex(text or ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def other_options(kept: Mapping[str, Text], config: PipelineConfig) -> list[str]:
    """In sentences: the options that said something else when the table's rows were made."""
    sink, now = config.sinks[0], _options(config)
    # What makes a column can't be left out later. Of other options that the file lacks, nobody knows what they meant.
    both = [name for name in kept if name in now or name.startswith(("key", "group_by", "aggregates.", "window."))]
    return [
        f"The table's rows were made with another {sink.option(name)}, {_told(kept[name])}: the file says "
        f"{_told(now.get(name))}, and that was compared."
        for name in both
        if _plain(kept[name]) != _plain(now.get(name))
    ]


def no_longer_tracked(kept: Mapping[str, Text], columns: Sequence[str]) -> list[str]:
    """In a sentence: the columns by which a history told its versions apart, and that the file leaves out.

    ``columns``: those that its rows have by the file.
    """
    were, now = kept.get("tracked"), {name.lower() for name in columns}
    gone = [name for name in were if name.lower() not in now] if isinstance(were, list) else []
    return [
        f"The table's versions were told apart by {', '.join(gone)} too, which the file leaves out: they were compared "
        "with those that the other columns make."
    ] * bool(gone)


def _options(config: PipelineConfig) -> dict[str, Text]:
    sink = config.sinks[0]
    found: dict[str, Text] = {"type": sink.type}
    if isinstance(sink, KeyedSink):
        found |= {"key": sink.key} | ({"sequence_by": sink.sequence_by} if sink.sequence_by is not None else {})
    if isinstance(sink, DeltaHistorySink):
        found["stored_as_scd_type"] = f"{sink.stored_as_scd_type}"
        found["track_history_column_list"] = sink.track_history_column_list
        found["track_history_except_column_list"] = sink.track_history_except_column_list
        found |= {"system_sequence_by": sink.recorded_by} if sink.recorded_by is not None else {}
    if isinstance(sink, DeltaAggregateSink):
        found |= {"group_by": sink.group_by, **{f"aggregates.{name}": text for name, text in sink.aggregates.items()}}
        if (window := sink.window) is not None:
            spans = {"size": window.size, "slide": window.slide or window.size, "gap": window.gap}
            found["window.time"] = window.time
            found |= {f"window.{name}": duration_text(span) for name, span in spans.items() if span is not None}
    return found


def _plain(text: Text) -> Text:
    """The same for texts that differ in spaces, case, quotes of names, or the order of columns."""
    if text is None or isinstance(text, str):
        return text and re.sub(r"[\s`]", "", text).lower()
    return sorted(each.lower() for each in text)


def _told(text: Text) -> str:
    if text is None:
        return "none"
    return text if isinstance(text, str) else ", ".join(text) or "none"
