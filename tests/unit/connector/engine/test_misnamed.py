"""A value of a route whose override has another name."""

import pytest

from connector.config import parse
from connector.engine.misnamed import refuse_misnamed
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
