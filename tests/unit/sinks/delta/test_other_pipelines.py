"""Which other pipeline of a table counts, by what each leaves in it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sinks.contract import Position
from sinks.delta.other_pipelines import which
from sinks.delta.shape import Shape, pipelines
from sinks.delta.standing import Standing
from sinks.offsets import Offsets

TOPICS = frozenset("xy")
WRITTEN = st.dictionaries(st.sampled_from(["ours", "a", "b", "c"]), st.sets(st.sampled_from("xyzw"), min_size=1))
NAMED = st.lists(st.sampled_from(["a", "b", "c"]), unique=True)


@given(WRITTEN, NAMED, st.booleans(), st.booleans())
def test_it_is_one_of_other_topics_whenever_there_is_one(
    written: dict[str, set[str]], others: list[str], begun: bool, rows: bool
) -> None:
    found = which(written, others, "ours", TOPICS, begun=begun, holds_rows=lambda: rows)
    strangers = {name for name, theirs in written.items() if name != "ours" and not theirs & TOPICS}
    if found is not None and written:
        assert found in strangers
    if begun:
        assert (found is not None) == bool(strangers & {*others})
    elif written:
        assert (found is not None) == (strangers == written.keys()), "all are of other topics"
    else:
        assert (found is not None) == (bool(others) and rows)


@given(st.lists(st.text(min_size=1), unique=True))
def test_a_property_says_whose_it_is(names: list[str]) -> None:
    names = [name.encode(errors="replace").decode() for name in names]
    properties = {Shape(name).name: "" for name in names}
    found = pipelines({"delta.appendOnly": "false", **properties, "lakelock.shape.x": ""})
    assert found == list(dict.fromkeys(names))


def test_a_log_that_was_replaced_does_not_count() -> None:
    table = Position(1, Offsets.from_dict({"x": {"0": 1}}))
    log = Position(10, Offsets.from_dict({"x": {"0": 10}}))
    assert Standing(table, log).goes_on
    replaced = Standing(table, replace(log, replaced="version 11, WRITE (overwrite)"))
    assert not replaced.goes_on
    assert replaced.given_up == 9
    assert replaced.position == replace(table, epoch=10), "their records are read again, under new numbers"
