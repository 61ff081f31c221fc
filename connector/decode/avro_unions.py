"""Which record of a reader's union a record of a writer's is read as.

Avro goes by the fields where no name fits: it would store an order that was refunded as one that was placed, because
that has fewer fields. Where a value may be one of several records, only its name tells which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from connector.decode.avro_schema import Node, full_name, kind_of


def record_of(written: Node, beside: Sequence[Node], read: Sequence[Node]) -> Node | None:
    """The record among the types ``read`` that a writer's record is read as. None: there is none.

    All are definitions. ``beside``: the types of the writer's union, with its own. Of one record, which none of the
    writer's is named as, the name says nothing: it may have been changed, or tell what the writer's have in common.
    """
    ours, theirs = ([each for each in union if kind_of(each) == "record"] for union in (read, beside))
    found = _named(written, theirs, ours)
    if found is not None or len(ours) != 1 or any(_named(each, theirs, ours) for each in theirs):
        return found
    return ours[0]


def _named(written: Node, theirs: Sequence[Node], ours: Sequence[Node]) -> Node | None:
    """By full name, or by a name without its namespace that no other has."""
    name = full_name(written)
    former = [each for each in ours if name in aliases(each)]
    today = [each for each in ours if name == full_name(each)]
    alike = [each for each in ours if each["name"] == written["name"]]
    alone = len(alike) == 1 == [each["name"] for each in theirs].count(written["name"])
    return next(iter((*former, *today, *(alike if alone else ()))), None)


def aliases(node: Node) -> tuple[str, ...]:
    """The aliases: full names for a type, as they are for a field."""
    space = node.get("namespace") or ""
    return tuple(alias if "." in alias or not space else f"{space}.{alias}" for alias in node.get("aliases", ()))
