"""A hash of the options that shape the rows: an epoch in doubt may only be read again by the same ones."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connector.config.formats import schema_files, unset_since
from connector.config.layout import LAYOUT
from connector.config.places import DeltaSink
from connector.config.sinks import DeltaHistorySink

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_SHAPING = {
    "value", "key", "headers", "require", "on_bad_record", "on_new_column", "transform", "event_time", "sinks",
    "route",
}  # fmt: skip


def shape_of(config: PipelineConfig) -> str:
    """Two files with the same hash make the same rows of a record."""
    # A table's layout has no part in its rows; that of objects is a part of their names.
    layout = {
        index: {"part", *(LAYOUT if isinstance(sink, DeltaSink) else ()), *_unset_since(sink)}
        for index, sink in enumerate(config.sinks)
    }
    unset: dict[str, Any] = {option: unset_since(getattr(config, option)) for option in ("value", "key")}
    files = b""
    if config.route is not None:
        own = config.route.own
        unset["route"] = {"overrides": {value: {"value": each.unset} for value, each in own.items()}}
        named = [each.reads(config.value) for each in own.values() if each.schema_file is not None]
        files = schema_files(config.value, config.key, *named)
    shaping = config.model_dump_json(include=_SHAPING, exclude={"sinks": layout, **unset})
    return hashlib.sha256(shaping.encode() + files + _steps(config) + _flows(config)).hexdigest()[:16]


def _flows(config: PipelineConfig) -> bytes:
    """Empty without flows. Each makes rows as a file of its own would."""
    if not config.flows:
        return b""
    topics = [[], *(sorted(flow.topics) for flow in config.flows)]  # a topic more of the first changes no row
    each = zip(config.by_flow, topics, strict=True)
    return b"".join(f"{of} {shape_of(flow)}".encode() + schema_files(flow.value, flow.key) for flow, of in each)


def _unset_since(sink: object) -> Sequence[str]:
    """The options that a sink got later and that aren't set, as ``unset_since`` of a format."""
    later = ("system_sequence_by", "apply_as_truncates") if isinstance(sink, DeltaHistorySink) else ()
    return [name for name in later if getattr(sink, name) is None]


def _steps(config: PipelineConfig) -> bytes:
    """Empty without steps: the hash is that of versions before them. A salt is told apart, and not told."""
    if not config.steps:
        return b""
    salts = [step.salt.get_secret_value().encode() for step in config.steps if step.salt is not None]
    told = b"".join(hmac.digest(salt, b"lakelock shape", "sha256") for salt in salts)
    return config.model_dump_json(include={"steps"}).encode() + told
