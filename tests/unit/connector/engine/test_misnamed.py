"""A value of a route whose override has another name."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from connector.config import load, parse
from connector.engine import misnamed
from connector.engine.misnamed import refuse_misnamed, refuse_misnamed_topic
from sinks.errors import ConfigurationError


def test_a_table_is_never_made_without_the_override_that_is_meant_for_it(caplog: pytest.LogCaptureFixture) -> None:
    config = parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "kind STRING, id INT"},
            "coordinator": {"path": "lake/_log"},
            "route": {
                "by": "kind",
                "sink": {"type": "delta_upsert", "path": "lake/{kind}", "key": "id"},
                "overrides": {"refnd": {"sink": {"key": ["id", "kind"]}}},
            },
        }
    )
    with pytest.raises(ConfigurationError, match="records name 'refund', which has no override: its table") as caught:
        refuse_misnamed(config, ["order", "refund"], ["order", "refund"], {"order"})
    assert "write refund: {} there, too" in caught.value.hint
    assert not caplog.messages
    refuse_misnamed(config, ["refund"], ["refund"], {"refund"})  # made by an earlier version
    assert "its table is like all others" in caplog.text
    caplog.clear()
    for named, tables in ((["refund", "refnd"], set()), (["refund"], {"refnd"})):
        refuse_misnamed(config, ["refund"], named, tables)
    assert not caplog.messages


class Kafka:
    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def deleted(self, topics: Any) -> set[str]:
        return {*topics} - {*self.topics}


@pytest.mark.parametrize("there", [False, True])
def test_a_topic_that_is_named_by_itself_gets_no_table_without_the_override_that_is_meant_for_it(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(misnamed, "_is_there", lambda *_: there)
    options = {
        "name": "shop",
        "source": {"topics": "shop-.*", "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "id INT, line INT"},
        "tables": {
            "for_each": "topic",
            "sink": {"type": "delta_upsert", "path": "lake/{topic}", "key": "id"},
            "overrides": {"shop-return": {"sink": {"key": ["id", "line"]}}},
        },
    }
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(options))
    nothing = cast(Any, None)
    config = load(f"{file}#shop-returns")
    refuse_misnamed_topic(config, nothing, cast(Any, Kafka("shop-return", "shop-returns")))
    refuse_misnamed_topic(load(f"{file}#shop-orders"), nothing, nothing)
    assert not caplog.messages
    missing = cast(Any, Kafka("shop-returns"))
    if not there:
        with pytest.raises(ConfigurationError, match="Kafka has no such topic, but it has shop-returns") as caught:
            refuse_misnamed_topic(config, nothing, missing)
        assert "write shop-returns: {} into tables.overrides" in caught.value.hint
    else:
        refuse_misnamed_topic(config, nothing, missing)
        assert "its table is like all others" in caplog.text
