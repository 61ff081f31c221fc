"""Which flow reads a topic, whose options an error names, and who is asked for a schema. What is decoded is tested with
a broker: test_flows.py in tests/integration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.flows import OfFlow
from connector.decode.flows import FlowDecoder, FlowsDecoder, decoder_of, told_of
from connector.decode.format import Format
from connector.decode.records import RecordDecoder
from sinks.errors import ConfigurationError, TopicMissing

NAMES = st.sampled_from("abcdefgh")


def flows(*topics: tuple[str, ...]) -> FlowsDecoder:
    decoder = RecordDecoder(cast(Format, object()))
    rest = FlowDecoder(None, tuple(topic for each in topics for topic in each), others=True, decode=decoder)
    named = (
        FlowDecoder(OfFlow(f"flows[{n}]", frozenset()), each, False, replace(decoder, asks_as=f"flows[{n}]."))
        for n, each in enumerate(topics)
    )
    return FlowsDecoder((rest, *named))


@given(st.lists(NAMES, unique=True, max_size=6), st.data())
def test_every_topic_has_one_flow(topics: list[str], data: Any) -> None:
    """Also one that has left the pipeline: its dead letters are decoded by some flow, and none is lost."""
    cut = data.draw(st.integers(0, len(topics)))
    made = flows(*filter(None, (tuple(topics[:cut]), tuple(topics[cut:]))))
    for topic in "abcdefgh":
        (flow,) = (flow for flow in made.flows if flow.reads(topic))
        assert (flow.flow is None) is (topic not in topics)
        assert decoder_of(made, topic) is flow.decode


class Asked:
    """A format that notes which schemas it is asked for."""

    def __init__(self) -> None:
        self.type: object = None
        self.ids: list[str] = []

    def resolve(self, ids: list[str], _: object) -> None:
        self.ids += ids


class NoRecords:
    def where(self, _: str) -> NoRecords:
        return self

    def selectExpr(self, *_: str) -> NoRecords:
        return self


def test_the_flow_that_lacks_a_schema_is_asked() -> None:
    formats = [(Asked(), Asked()) for _ in range(3)]
    made = FlowsDecoder(
        tuple(
            replace(flow, decode=replace(flow.decode, value=cast(Format, value), key=cast(Format, key)))
            for flow, (value, key) in zip(flows(("a",), ("b",)).flows, formats, strict=True)
        )
    )
    for number, part in enumerate(("value", "flows[0].key", "flows[1].value")):
        made.resolve(part, str(number), cast(Any, NoRecords()))
    assert [[each.ids for each in pair] for pair in formats] == [[["0"], []], [[], ["1"]], [["2"], []]]


def test_an_error_names_the_option_where_the_file_has_it() -> None:
    flow = OfFlow("flows[1]", frozenset({"value", "steps"}))
    for said, told in (
        ("value.schema: not a Spark schema", "flows[1].value.schema: not a Spark schema"),
        ("steps[0].cast: no", "flows[1].steps[0].cast: no"),
        ("require: no", "require: no"),
        ("values: no", "values: no"),
    ):
        with pytest.raises(ConfigurationError) as caught, told_of(flow):
            raise ConfigurationError(said, hint="Do this.")
        assert (caught.value.message, caught.value.hint) == (told, "Do this.")
    with pytest.raises(TopicMissing, match="of a topic"), told_of(flow):
        raise TopicMissing("value of a topic")
