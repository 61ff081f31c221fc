"""Letters of an epoch that failed, when a corrected file reads its records again."""

from __future__ import annotations

from typing import Any

import pytest
from another_engine import query
from conftest import Lake, Topic

from connector import Pipeline
from connector.audit import audit
from connector.engine.left_letters import LeftLetters
from connector.protocol.steps import Event, Step


class Killed(Exception):
    """The process is gone."""


def dying_once_read(event: Event) -> None:
    if event.step is Step.READ:
        raise Killed


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.breadth
@pytest.mark.parametrize("sinks", [("append",), ("append", "sums")], ids=["one table", "two sinks"])
def test_letters_are_closed_of_records_that_have_got_in(
    sinks: tuple[str, ...], lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters are there before their epoch's commit, which failed. The second time the run that reads the records
    again is killed right before it closes them."""
    of = {
        "append": {"type": "delta_append", "path": str(lake.path("append"))},
        "sums": {"type": "delta_aggregate", "path": str(lake.path("sums")), "group_by": "k",
                 "aggregates": {"n": "sum(n)"}},
    }  # fmt: skip

    def options(mode: str) -> dict[str, Any]:
        made = lake.options(on_bad_record="dead_letter", dead_letters={"path": str(lake.path("letters"))})
        made |= {
            "sinks": [of[name] for name in sinks],
            "value": {"format": "json", "schema": "k STRING, n INT", "mode": mode},
        }
        return made if len(sinks) == 1 else {**made, "coordinator": {"path": str(lake.path("log"))}}

    for epoch in range(2):
        topic.send(("a", {"k": "a", "n": "7"}), ("b", {"k": "b", "n": "?"}), ("c", {"k": "c", "n": 1}), partition=0)
        with pytest.raises(Killed):
            Pipeline.from_options(options("strict")).run(observers=[dying_once_read])
        mended = Pipeline.from_options(options("permissive"))
        with monkeypatch.context() as patched:
            if epoch == 1:
                patched.setattr(LeftLetters, "close", killed)
                with pytest.raises(Killed):
                    mended.run()
        mended.run()
        letters = query(lake.path("letters"), "SELECT _offset, _retried_epoch FROM t ORDER BY _offset")
        assert letters[2 * epoch :] == [(3 * epoch, epoch + 1), (3 * epoch + 1, None)]
        assert all(audit(mended.config.alone(index)).ok for index in range(len(sinks)))
    assert query(lake.path("append"), "SELECT k, n FROM t") == [("a", 7), ("c", 1)] * 2
