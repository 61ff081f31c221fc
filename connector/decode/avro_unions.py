"""Which type of a reader's union a type of a writer's is read as.

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


def type_of(written: Node, beside: Sequence[Node], read: Sequence[Node]) -> Node | None:
    """The type of ``read`` whose parts the parts of a writer's type belong to. None: there is none.

    All are definitions. ``beside``: the types of the writer's union, with its own. Neither has a null in it.
    """
    if len(beside) == len(read) == 1:
        return read[0]
    same = [each for each in read if kind_of(each) == kind_of(written)]
    return record_of(written, beside, same) if same and kind_of(written) == "record" else next(iter(same), None)


def values(node: Node) -> list[Node]:
    """The types of a union but null, or the type itself."""
    found = [each for each in node if each != "null"] if isinstance(node, list) else []
    return found or [node]


def in_union(path: str, number: int, of: int) -> str:
    """The path of what is in a union's type with this number, of so many without null: Spark names its column."""
    return f"{path}.member{number}".removeprefix(".") if of > 1 else path


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
