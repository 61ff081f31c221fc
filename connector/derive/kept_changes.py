"""The options of an upsert that its change log keeps, and what the changes of a log mean by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from connector.config.unavailable import UNAVAILABLE
from connector.derive.net_change import net_of
from sinks.delta.meaning import Meaning, Merging
from sinks.delta.order import back_to_offsets
from sinks.delta.table import DeltaTable
from sinks.delta.upsert_rule import UpsertRule
from sinks.errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NOT_STORED = ("_delete", "_truncate", UNAVAILABLE)


@dataclass(frozen=True)
class Options:
    """What the changes of a log mean."""

    rule: UpsertRule
    ties: bool
    """See ``net_of``."""
    gone: Sequence[str] = ()
    """See ``sinks.delta.upsert.Gone``."""
    letters: bool = False
    """Whether the changes may be older than a delete by offset, as retried dead letters are."""


def options_of(rule: UpsertRule, *, ties: bool, gone: Sequence[str] = (), letters: bool = False) -> str:
    """The options as text, see ``Options``."""
    options = asdict(rule)
    if not rule.by_offset:  # releases before it don't know the word
        del options["by_offset"]
    late = letters and not (rule.sequenced or rule.soft)
    return json.dumps({**options, "ties": ties, **_said(gone=gone, letters=late)})


def _said(**words: object) -> dict[str, object]:
    """Without what isn't so: releases before these words don't know them."""
    return {word: value for word, value in words.items() if value}


def read_options(options: str) -> Options:
    """The options of this text. Raises ValueError for the text of a newer release."""
    read: dict[str, Any] = json.loads(options)
    found: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in read.items()}
    ties, gone, letters = bool(found.pop("ties", False)), tuple(found.pop("gone", ())), found.pop("letters", False)
    try:
        return Options(UpsertRule(**found), ties, gone, bool(letters))
    except TypeError as error:
        raise ValueError(str(error)) from None


def kept(
    table: DeltaTable,
    now: Callable[[], Meaning],
    merging: Callable[[UpsertRule, Sequence[str], bool], Merging],
    columns: StructType,
    options: str,
    *,
    sequenced: bool,
) -> Meaning:
    """What the changes of a log with these columns and options mean.

    ``now``: what those of the file do, asked only for a log that has kept no options; ``merging``: the sink that merges
    into ``table`` by the rule, ``gone`` and ``letters`` with which the log was started; ``sequenced``: whether the file
    orders changes by a sequence. Raises SchemaMismatch.
    """
    there = {name.lower() for name in table.schema.names}
    lost = [name for name in columns.names if name.lower() not in there and name not in _NOT_STORED]
    if lost:
        raise SchemaMismatch(
            f"The change log of {table.label!r} has changes with {', '.join(lost)}, and the table has no such column "
            "any more: their values would be lost.",
            hint="Add the column to the table again, run `lakelock fold`, and drop or rename it then.",
        )
    if not options:  # by a release that kept none: its changes lacked what the pipeline has got since
        meaning = now()
        if _lower(columns) - _lower(meaning.columns()):
            raise SchemaMismatch(
                f"An older release has started the change log of {table.label!r}, with columns that the pipeline no "
                "longer has, and hasn't kept by which options its changes are to be folded.",
                hint="Run `lakelock fold` with the pipeline file and the schema as they were before.",
            )
        if _lower(columns) == _lower(meaning.columns()):
            return meaning
        options = meaning.options()
    try:
        then = read_options(options)
    except ValueError as error:
        raise SchemaMismatch(
            f"A newer release has started the change log of {table.label!r}, with options that this one doesn't know: "
            f"{error}.",
            hint="Run `lakelock fold` with that release.",
        ) from None
    rule = then.rule
    if rule.sequenced != sequenced:
        ordered = "with a sequence_by" if rule.sequenced else "by Kafka's offset"
        back = "" if rule.sequenced else f"Give the table that order back: {back_to_offsets(table)}. Then "
        raise SchemaMismatch(
            f"The changes in the change log of {table.label!r} are ordered {ordered}, and the pipeline orders changes "
            "otherwise: what one rule has merged, the other can't compare.",
            hint=f"{back or 'Before the order is changed, '}run `lakelock fold` with the pipeline file as it was. If "
            "everything is folded, just run the pipeline: it starts the log again.",
        )
    by = merging(rule, tuple(then.gone), then.letters)
    return Meaning(lambda: columns, lambda: options, net_of(columns.names, rule, ties=then.ties), by, rule.key)


def _lower(columns: StructType) -> set[str]:
    return {name.lower() for name in columns.names}
