"""What a table remembers of the options that shape its rows, and which other options are refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from sinks.delta.shape import ZONE, Shape, Text, _packed, _unpacked, canonical
from sinks.errors import SchemaMismatch

TEXTS = st.dictionaries(
    st.sampled_from(["key", "group_by", "sequence_by", "aggregates.total", "aggregates.token", "window.size", ZONE]),
    st.none() | st.text() | st.lists(st.text()),
)


def differences(kept: Mapping[str, Text], now: Mapping[str, Text]) -> Mapping[str, tuple[Text, Text]]:
    return Shape("p", str, now).differences(kept)


@given(TEXTS)
def test_a_table_remembers_any_text_and_nothing_of_it_looks_like_a_secret(texts: dict[str, Text]) -> None:
    assert _unpacked(_packed(texts)) == texts
    assert differences(_unpacked(_packed(texts)), texts) == {}
    assert set(_packed(texts)) <= set("0123456789abcdef")


def test_the_property_is_named_after_the_pipeline_which_may_look_like_a_secret() -> None:
    ours, theirs = (Shape(pipeline, str, {"key": ["a"]}) for pipeline in ("access_tokens", "orders"))
    assert ours.properties.keys() != theirs.properties.keys()
    assert "token" not in ours.name


@pytest.mark.parametrize("text", ["", "7b", "zz", "true", b"[]".hex(), b"nonsense".hex()])
def test_what_cannot_be_read_is_not_known(text: str) -> None:
    assert differences(_unpacked(text), {"key": ["a"]}) == {}


@pytest.mark.parametrize(
    ("option", "was", "now"),
    [
        ("aggregates.total", "sum(amount)", "sum(amount_cents)"),
        ("aggregates.p", "approx_percentile(x, 0.5)", "approx_percentile(x, 0.9)"),
        ("aggregates.n", "count(*)", "count(x)"),
        ("aggregates.n", "count_if(x = 'A')", "count_if(x = 'a')"),
        ("aggregates.n", "count_if(x = 'a b')", "count_if(x = 'a  b')"),
        ("aggregates.n", "count_if(x = 'it\\'s A')", "count_if(x = 'it\\'s a')"),
        ("aggregates.n", "sum(`A b`)", "sum(`A  b`)"),
        ("sequence_by", "_ts_ms", "version"),
        ("key", ["a", "b"], ["a"]),
        ("key", ["a"], ["A, b"]),
        ("group_by", ["a"], []),
        ("window.size", "1 hour", "2 hours"),
        ("window.time", "_timestamp", "at"),
        ("track_history_column_list", ["a"], None),
        ("track_history_except_column_list", None, ["a"]),
        (ZONE, "UTC", "Europe/Berlin"),
    ],
)
def test_another_text_is_a_difference_and_both_are_told(option: str, was: Text, now: Text) -> None:
    assert differences({option: was}, {option: now}) == {option: (was, now)}
    assert differences({option: now}, {option: was}) == {option: (now, was)}


@pytest.mark.parametrize(
    ("option", "was", "now"),
    [
        ("aggregates.total", "sum(amount)", " SUM( amount )\n"),
        ("aggregates.n", "count_if(x = 'A')", "COUNT_IF(x='A')"),
        ("key", ["a", "b"], ["b", "a"]),
        ("track_history_column_list", None, None),
    ],
)
def test_a_text_that_means_the_same_is_none(option: str, was: Text, now: Text) -> None:
    assert differences({option: was}, {option: now}) == {}


def test_words_stay_apart() -> None:
    assert differences({"sequence_by": "CASE a END"}, {"sequence_by": "CASEa END"})


def test_what_a_table_does_not_remember_is_not_known() -> None:
    assert differences({}, {"key": ["a"], "aggregates.n": "count(*)", ZONE: "UTC"}) == {}


def test_an_aggregate_or_a_window_that_is_left_out_is_a_difference() -> None:
    """The rows keep it, and would go on without the records that come meanwhile if it came back."""
    kept = {"aggregates.n": "count(*)", "aggregates.s": "sum(n)", "window.size": "1 hour"}
    assert differences(kept, {"aggregates.n": "count(*)", "window.gap": "1 hour"}) == {
        "aggregates.s": ("sum(n)", None),
        "window.size": ("1 hour", None),
    }


def test_what_else_is_left_out_is_none() -> None:
    """A zone matters no more if no record has a time; the two orders of changes have a rule of their own; and a later
    release may have remembered more."""
    assert differences({ZONE: "UTC", "sequence_by": "n", "of_a_later_release": "x"}, {"key": ["a"]}) == {}


@given(TEXTS, TEXTS)
def test_a_run_that_is_let_in_has_the_table_forget_nothing_that_it_did_not_compare(
    kept: dict[str, Text], now: dict[str, Text]
) -> None:
    shape = Shape("p", str, now)
    after = shape.over(kept)
    assert shape.differences(after) == {}, "and the next run of the same file is let in"
    assert now.items() <= after.items()
    if not shape.differences(kept):
        assert kept.keys() - after.keys() <= {"sequence_by"}
        for name in kept.keys() - {"sequence_by"}:
            assert canonical(after[name]) == canonical(kept[name])


def test_rows_that_are_no_longer_ordered_by_a_sequence_take_another_one_later() -> None:
    """`sinks.delta.order` lets the option go only where no row is ordered by it."""
    assert Shape("p", str, {"key": ["a"]}).over({"key": ["a"], "sequence_by": "n"}) == {"key": ["a"]}


def test_a_history_may_compare_one_column_more_and_none_less() -> None:
    """A late record would have versions read again that differ in that column alone, and merge them into one."""
    assert differences({"tracked": ["a", "b"]}, {"tracked": ["A"]}) == {"tracked": (["a", "b"], ["A"])}
    assert differences({"tracked": ["a", "b"]}, {"tracked": ["c", "a"]}) == {"tracked": (["a", "b"], ["c", "a"])}
    assert differences({"tracked": ["a", "B"]}, {"tracked": ["b", "A", "c"]}) == {}
    assert differences({"type": "delta_history"}, {"tracked": ["a"]}) == {}, "a table of an earlier release doesn't say"
    assert Shape("p", str, {"tracked": ["a", "c"]}).over({"tracked": ["a"]}) == {"tracked": ["a", "c"]}


def test_the_refusal_names_the_column_that_a_history_has_compared() -> None:
    properties = dict(Shape("p", str, {"tracked": ["a", "Reason"]}).properties)
    detail = SimpleNamespace(properties=properties)
    table: Any = SimpleNamespace(label="lake/t", sql="delta.`lake/t`", detail=lambda: detail)
    now = Shape("p", lambda _: "the versions of sinks[0] were told apart by", {"tracked": ["a"]})
    with pytest.raises(SchemaMismatch, match=r"the versions of sinks\[0\] were told apart by Reason too,") as refused:
        now.check(table, begun=lambda: True)
    assert "column_list" in refused.value.hint
    assert "UNSET TBLPROPERTIES" in refused.value.hint
    properties.clear()  # as the hint says
    now.check(table, begun=lambda: True)


@pytest.mark.parametrize("option", ["key", "group_by"])
def test_what_rows_belong_together_by_cannot_be_left_out(option: str) -> None:
    assert differences({option: ["a"]}, {"type": "delta_append"}) == {option: (["a"], None)}


def test_a_key_is_not_widened_from_float_to_double() -> None:
    """The row of 0.1 would have another key than the records of 0.1, and get no update and no delete any more."""
    kinds = [("k", T.FloatType(), T.DoubleType()), ("n", T.IntegerType(), T.LongType())]
    kinds += [("part", *(T.StructType([T.StructField("f", each)]) for each in (T.FloatType(), T.DoubleType())))]
    there, wanted = (T.StructType([T.StructField(each[0], each[at]) for each in kinds]) for at in (1, 2))

    def found(**texts: Text) -> list[str]:
        return [fault.split()[1] for fault in Shape(texts=texts).rounded_keys(there, wanted)]

    assert found(key=["K", "n"]) == ["k"]
    assert found(group_by=["n", "part"]) == ["part.f"]
    assert found(key=["n"]) == found() == []
    assert Shape(texts={"key": ["k"]}).rounded_keys(wanted, wanted) == []
    assert Shape(texts={"key": ["k"]}).rounded_keys(wanted, there) == []


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize("option", ["key", "group_by"])
def test_a_key_has_the_same_fields_in_the_table_and_in_the_rows(option: str) -> None:
    """{1, EU} and {1, US} aren't the row of {1}, and the row of {1, EU} isn't that of {1, null}."""
    text, number = T.StringType(), T.LongType()
    less, more = struct(id=number), struct(ID=number, region=text)
    shape = Shape(texts={option: ["_Key"]})
    one, other = struct(_key=less, at=less), struct(_key=more, at=more)
    assert shape.other_fields(one, other) == ["the table has no _key.region"]
    assert shape.other_fields(other, one) == ["the records have no _key.region"]
    assert shape.other_fields(other, other) == shape.other_fields(one, one) == []
    assert Shape(texts={option: ["id", "at"]}).other_fields(one, struct(_key=more, at=less, id=number)) == []
    assert Shape(texts={"type": "delta_append"}).other_fields(one, other) == []
    deep = [struct(k=struct(parts=T.ArrayType(each))) for each in (less, more)]
    assert Shape(texts={option: ["k"]}).other_fields(*deep) == ["the table has no k.parts.element.region"]
    dotted = T.StructType([*struct(user=number), T.StructField("user.id", number)])
    assert Shape(texts={option: ["user"]}).other_fields(struct(user=number), dotted) == [], "a column of that name"


def test_a_key_with_other_fields_is_refused_by_the_option_that_names_it() -> None:
    there = struct(_key=struct(id=T.LongType(), region=T.StringType()))
    shape = Shape("p", "sinks.{}".format, {"key": ["_key"]})
    shape.check_fields("lake/t", there, there)
    with pytest.raises(SchemaMismatch, match=r"the records have no _key\.region") as refused:
        shape.check_fields("lake/t", there, struct(_key=struct(id=T.LongType())))
    assert "sinks.key" in str(refused.value.hint)
    assert "lakelock replay" in str(refused.value.hint)
