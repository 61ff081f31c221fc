"""Whether a value of Avro means in the reader's schema what it meant in the writer's: Avro compares neither the logical
types nor the names by which Kafka Connect tells the unit of a time."""

from __future__ import annotations

from connector.audit.avro_schema import Node, kind_of, meaning

_CONNECTS = ("io.debezium.time.", "org.apache.kafka.connect.data.")
_COUNTS = {
    "Date": "d", "Year": "y", "Time": "time-ms", "MicroTime": "time-us", "NanoTime": "time-ns",
    "Timestamp": "ms", "MicroTimestamp": "us", "NanoTimestamp": "ns",
    "MicroDuration": "for-us", "NanoDuration": "for-ns",
    "date": "d", "time-millis": "time-ms", "time-micros": "time-us", "time-nanos": "time-ns",
    "timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns",
}  # fmt: skip
"""The end of Connect's name, or a logical type -> what the number counts."""


class OtherMeaning(Exception):
    """No value of the writer's schema is read, also not one without this part: the pipeline refuses the schema."""


def check_meaning(written: Node, read: Node) -> None:
    """Raises OtherMeaning."""
    of_writer, of_reader = meaning(written), meaning(read)
    if of_writer[:1] == ("decimal",) and kind_of(read) == "string":
        raise OtherMeaning  # the bytes of a number are no text
    if _by_connect(written) or _by_connect(read):
        sent, wanted = (_by_connect(each) or _by_logical_type(each) for each in (written, read))
        if sent and wanted and sent != wanted:
            raise OtherMeaning
    if of_writer == of_reader or not of_reader or (not of_writer and kind_of(written) == kind_of(read)):
        return  # where the schema names it later, the value has always been that
    if of_writer[:1] == of_reader[:1] == ("decimal",):
        (_, digits, scale), (_, most, same) = of_writer, of_reader
        if scale == same and digits <= most:
            return
    raise OtherMeaning


def _by_connect(node: Node) -> str:
    """What a whole number counts, by Connect's name. Empty: it says nothing."""
    name = node.get("connect.name") if isinstance(node, dict) and kind_of(node) in ("int", "long") else None
    known = isinstance(name, str) and name.startswith(_CONNECTS)
    return _COUNTS.get(str(name).rpartition(".")[2], "") if known else ""


def _by_logical_type(node: Node) -> str:
    (name, *_) = meaning(node) or ("",)
    return _COUNTS.get(str(name).removeprefix("local-"), "")
