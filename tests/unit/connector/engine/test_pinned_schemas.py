"""Which schemas of a registry read an epoch of a route again, as the coordinator log says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from connector.config import PipelineConfig, parse
from connector.engine.coordinator_log import Log
from connector.engine.pinned_schemas import pinned_schemas, schemas_in, with_schemas
from connector.protocol.decided import LogHeld, Row, State
from sinks.contract import Epoch
from sinks.offsets import Offsets

OWN = {
    "a": {"value": {"subject": "A"}},
    "b": {"value": {"schema_file": "b.avsc"}},
    "c": {"value": {"subject": "C"}},
}


def routed(overrides: Any = OWN) -> PipelineConfig:
    return parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "avro", "registry": {"url": "http://r"}},
            "coordinator": {"path": "lake/_log"},
            "route": {
                "by": "_schema",
                "sink": {"type": "delta_append", "path": "lake/{route}"},
                "overrides": overrides,
            },
        }
    )


@dataclass
class Held:
    held: LogHeld

    def read(self) -> LogHeld:
        return self.held


def log(state: State, config: str) -> Log:
    epoch = Epoch("shop", 3, "me", (), Offsets(), {}, None, None)
    row = Row(state, epoch, "me", config=config)
    return cast(Log, Held(LogHeld(7, row, row)))


def test_an_epoch_in_doubt_pins_the_schemas_of_its_decision() -> None:
    config = routed()
    decided = with_schemas(f"{config.shape}-America/Port-au-Prince-true", ["12", "15"])
    assert pinned_schemas(config, log(State.DECIDED, decided)) == {"a": "12", "c": "15"}
    assert pinned_schemas(config, log(State.DONE, decided)) == {}
    assert pinned_schemas(config, cast(Log, Held(LogHeld()))) == {}


def test_what_another_file_has_decided_pins_nothing() -> None:
    config, other = routed(), routed({**OWN, "b": {"value": {"subject": "B"}}})
    decided = with_schemas(f"{other.shape}-UTC-true", ["12", "13", "15"])
    assert pinned_schemas(config, log(State.DECIDED, decided)) == {}
    assert pinned_schemas(config, log(State.DECIDED, f"{config.shape}-UTC-true")) == {}


@pytest.mark.parametrize("ids", [[], ["7"], ["7", "7", "123456"]])
def test_the_log_keeps_the_schemas_and_where_there_are_none_what_it_kept_before(ids: list[str]) -> None:
    kept = with_schemas("0123-UTC-true", ids)
    assert [*schemas_in(kept, "0123")] == ids
    assert ids or kept == "0123-UTC-true"
