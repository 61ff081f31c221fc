"""The part of docs/conformance.md about Protobuf."""

from __future__ import annotations

from protobuf_cases import ALL
from protobuf_kinds import CUT, EXTENSION, NANOS, WITHOUT_DEPTH, WITHOUT_GROUPS, WITHOUT_SETS

REFUSED = {
    "Numbers of more bits than their type has": CUT,
    "Times with nanoseconds": NANOS,
    "Groups, also as delimited messages": WITHOUT_GROUPS,
    "Message sets": WITHOUT_SETS,
    "Extensions": EXTENSION,
    "A thousand messages within each other": WITHOUT_DEPTH,
}


def counts() -> tuple[int, int]:
    """All cases; those that are refused on purpose."""
    return len(ALL), len([case for case in ALL if case.refused])


def rows() -> list[tuple[str, int, str, str]]:
    plain = [case for case in ALL if not case.refused]
    bad = len([case for case in plain if isinstance(case.found, str)])
    found = [
        (
            "values of every type: alone, twice, packed or not, in maps, oneofs and messages", len(plain) - bad, "read",
            "As Protobuf says. Fields that the schema lacks are passed over",
        ),
        (
            "bytes that are no message", bad, "bad records",
            "As every decoder has to: bytes that end too early, tags of no field, groups that don't end, texts that "
            "aren't UTF-8, times out of range",
        ),
    ]  # fmt: skip
    for about, why in REFUSED.items():
        cases = [case for case in ALL if case.refused == why]
        they = "bad records" if isinstance(cases[0].found, str) else "passed over"
        found.append((about, len(cases), they, why))
    return found
