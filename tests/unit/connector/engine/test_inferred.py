"""Where the schema of records comes from that no file declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from connector.config import PipelineConfig, parse
from connector.engine import inferred
from connector.protocol.recover import TopicsHeld
from sinks.errors import BrokerUnreachable, ConfigurationError, LakelockError, NoRecordYet
from sinks.offsets import OffsetRange, Offsets, TopicPartition


def of_json(**source: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}, **source},
            "value": {"format": "json", "schema": "inferred"},
            "sinks": [{"type": "delta_append", "path": "lake/t"}],
        }
    )


@pytest.mark.parametrize(("known", "reads"), [("id BIGINT, more BOOLEAN", "id BIGINT, more BOOLEAN"), (None, "id INT")])
def test_a_schema_that_is_known_is_not_looked_for_again(
    known: str | None, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a replay, which reads by the schema of the old table, and whose new table isn't there yet."""
    monkeypatch.setattr(inferred, "of_table", lambda *_: None)
    monkeypatch.setattr(inferred, "_found", lambda *_: "id INT")
    config = of_json()
    config = config.read_by(known) if known is not None else config
    nothing = cast(Any, None)
    found = inferred.with_schema(config, nothing, nothing, nothing)
    assert found.inferred is not None
    assert found.inferred.schema_ == reads
    assert found.inferred.properties


@dataclass
class Record:
    offset: int
    value: bytes | None


class Kafka:
    """A partition with these values from offset 0 on, of which a look shows two. None: no broker answers any more."""

    def __init__(self, *values: bytes | None, end: int, answers: bool = True) -> None:
        self.records = [Record(offset, value) for offset, value in enumerate(values)]
        self.answers, self.looks = answers, 0
        at = TopicPartition("t", 0)
        self.held = TopicsHeld(Offsets({at: 0}), Offsets({at: end}), {"t": "id"}, datetime.now(timezone.utc))

    def starting(self, held: TopicsHeld) -> Any:
        return lambda: Offsets(dict.fromkeys(held.ends, 0))

    def samples(self, ranges: Sequence[OffsetRange]) -> Mapping[TopicPartition, list[Record]]:
        self.looks += 1
        if not self.answers:
            return {}
        return {each.at: [record for record in self.records if record.offset >= each.start][:2] for each in ranges}


def found(kafka: Kafka, **source: Any) -> str:
    return inferred._found(of_json(**source), cast(Any, kafka), kafka.held)


@pytest.mark.parametrize("kafka", [Kafka(None, end=1), Kafka(None, None, None, end=5), Kafka(end=2), Kafka(end=0)])
def test_deletes_and_ends_of_transactions_are_no_record_that_could_show_a_schema(kafka: Kafka) -> None:
    """The next record may, so they are looked at again rather than refused for as long as the process goes on."""
    with pytest.raises(NoRecordYet, match="t has no record yet that could show the schema"):
        found(kafka)
    with pytest.raises(ConfigurationError, match="its first records would be left out"):
        found(kafka, start="latest")


def test_records_behind_those_that_show_nothing_are_looked_at() -> None:
    """No restart would help a compacted topic that begins with deletes."""
    kafka = Kafka(*[None] * 5, b"text", b'{"id": 1}', end=7)
    assert (found(kafka), kafka.looks) == ("`id` BIGINT", 4)


@pytest.mark.parametrize(
    ("kafka", "error", "said"),
    [
        (
            Kafka(b"text", None, b"[1]", end=3),
            ConfigurationError,
            "3 records of t looked at, and none",
        ),
        (Kafka(None, end=2, answers=False), BrokerUnreachable, "gave no record of t in time"),
    ],
)
def test_what_does_not_pass_by_itself_is_told(kafka: Kafka, error: type[LakelockError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        found(kafka)
    assert not isinstance(caught.value, NoRecordYet)


def test_not_all_of_a_topic_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it said of what nobody has looked at that it shows nothing."""
    monkeypatch.setattr(inferred, "_LOOKS_SECONDS", -1.0)
    with pytest.raises(ConfigurationError, match="2 records of t looked at, and none"):
        found(Kafka(*[None] * 4, end=4))
