"""What `fold` says where the file has no change log: epochs may be left in one that it had."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.operations.fold import refuse_no_change_log
from sinks.errors import ConfigurationError

UPSERT = {"type": "delta_upsert", "path": "lake/{kind}", "key": "k"}


def config(sink: dict[str, Any], *, routed: bool = False) -> PipelineConfig:
    one = {"sinks": [{**sink, "path": "lake/t"}]}
    several = {"coordinator": {"path": "lake/_log"}, "route": {"by": "kind", "sink": sink}}
    return parse(
        {
            "name": "p",
            "source": {"topics": "t", "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "kind STRING, k STRING"},
            **(several if routed else one),
        }
    )


@pytest.mark.parametrize(
    ("sink", "routed", "way_out"),
    [
        (UPSERT, False, "before the file said so is folded by the next `lakelock run FILE`"),
        (UPSERT, True, "before the file said so is folded with the file as it was before"),
        ({"type": "delta_append", "path": "lake/{kind}"}, False, "With `merge: on_read`"),
    ],
)
def test_what_an_earlier_file_has_appended_is_not_denied(sink: dict[str, Any], routed: bool, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match="has nothing to fold") as refused:
        refuse_no_change_log(config(sink, routed=routed))
    assert way_out in refused.value.hint
    refuse_no_change_log(config({**UPSERT, "merge": "on_read"}, routed=routed))
