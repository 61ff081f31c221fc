"""The units of dates and times in Avro: those of its logical types, and those that only Kafka Connect's names tell.

Debezium sends a time as a plain ``long`` and says by ``connect.name`` alone whether that counts milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "connect.name"
_DAYS, _OF_A_DAY, _SINCE_1970, _LONG = "days", "{} of a day", "{} since 1970", "{} of a duration"
_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
OF_NAME: Mapping[str, str] = {
    **{f"{by}Date": _DAYS for by in (_DEBEZIUM, _CONNECT)},
    **{f"{by}Time": _OF_A_DAY.format("millis") for by in (_DEBEZIUM, _CONNECT)},
    **{f"{by}Timestamp": _SINCE_1970.format("millis") for by in (_DEBEZIUM, _CONNECT)},
    **{f"{_DEBEZIUM}{unit.title()}Time": _OF_A_DAY.format(f"{unit}s") for unit in ("micro", "nano")},
    **{f"{_DEBEZIUM}{unit.title()}Timestamp": _SINCE_1970.format(f"{unit}s") for unit in ("micro", "nano")},
    **{f"{_DEBEZIUM}{unit.title()}Duration": _LONG.format(f"{unit}s") for unit in ("micro", "nano")},
    f"{_DEBEZIUM}Year": "years",
}
"""``connect.name`` of a whole number -> what it counts."""
_OF_LOGICAL: Mapping[str, str] = {
    "date": _DAYS,
    **{f"time-{unit}": _OF_A_DAY.format(unit) for unit in ("millis", "micros", "nanos")},
    **{f"timestamp-{unit}": _SINCE_1970.format(unit) for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": _SINCE_1970.format(unit) for unit in ("millis", "micros", "nanos")},
}


def named(node: Any, kind: str) -> dict[str, str]:
    """The attribute of a type that says the unit of its whole numbers, if it has one."""
    name = node.get(NAME) if kind in ("int", "long") else None
    return {NAME: name} if isinstance(name, str) and name in OF_NAME else {}


def without_names(node: Any) -> Any:
    """A schema as Avro takes it, without such attributes."""
    if isinstance(node, list):
        return [without_names(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {part: each if part == "default" else without_names(each) for part, each in node.items() if part != NAME}


def other_unit(written: Any, read: Any) -> tuple[str, str] | None:
    """The units of two types, if they differ and a name tells one of them. Without names Avro's own rules count."""
    if not any(isinstance(each, dict) and NAME in each for each in (written, read)):
        return None
    one, other = _unit(written), _unit(read)
    return (one, other) if one and other and one != other else None


def _unit(node: Any) -> str:
    if not isinstance(node, dict):
        return ""
    return OF_NAME.get(node.get(NAME, ""), "") or _OF_LOGICAL.get(str(node.get("logicalType", "")), "")
