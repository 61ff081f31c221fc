"""Aggregates as people write them, and what they are told when they write something else."""

import pytest

from connector.state import NAMES, Monoid, aggregate
from connector.state.values import Count, First, Max, Min


class Longest(Monoid):
    def __init__(self, text: str) -> None:
        super().__init__(text)

    def lift(self) -> str:
        return self.arguments[0]

    def plus(self, left: str, right: str) -> str:
        return f"{left} + {right}"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("count(*)", "count", ("*",)),
        ("sum(dep_delay)", "sum", ("dep_delay",)),
        (" SUM ( a + b ) ", "sum", ("a + b",)),
        ("first(x, y)", "first", ("x", "y")),
        ("first(x)", "first", ("x", "_timestamp")),
        ("min_by(x,y)", "min_by", ("x", "y")),
        ("max(coalesce(a, greatest(b, 1)))", "max", ("coalesce(a, greatest(b, 1))",)),
        ("last(concat(a, ', (', 'it\\'s)'), `odd, (name`)", "last", ("concat(a, ', (', 'it\\'s)')", "`odd, (name`")),
        ('max("a, b)")', "max", ('"a, b)"',)),
        ("max(array(1, 2)[size(array(1, 2)) - 1])", "max", ("array(1, 2)[size(array(1, 2)) - 1]",)),
        ("sum(CAST(x AS DECIMAL(10, 2)))", "sum", ("CAST(x AS DECIMAL(10, 2))",)),
        ("collect_set(x, 10)", "collect_set", ("x", "10")),
        ("quantile(x, 0.95)", "quantile", ("x", "0.95")),
        ("max('')", "max", ("''",)),
    ],
)
def test_the_name_and_the_arguments_are_read(text: str, name: str, arguments: tuple[str, ...]) -> None:
    monoid = aggregate(text)
    assert isinstance(monoid, NAMES[name])
    assert (monoid.name, monoid.arguments) == (name, arguments)
    assert str(aggregate(str(monoid))) == str(monoid)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write name(argument)"),
        ("dep_delay", "write name(argument)"),
        ("1 + count(*)", "write name(argument)"),
        ("sum(x) / count(*)", "one function per column, and here '/ count(*)' follows it"),
        ("sum(x) + 1", "one function per column"),
        ("sum(x) FILTER (WHERE y)", "instead of FILTER write sum(CASE WHEN"),
        ("sum(x", "a parenthesis isn't closed"),
        ("sum('x)", "the ' has no counterpart"),
        ("sum(x -- y\n)", "no comments"),
        ("smu(x)", "there is no aggregate 'smu'. Do you mean sum? Known are count, sum"),
        ("blurp(x)", "there is no aggregate 'blurp'. Known are count, sum"),
        ("median(x)", "Use approx_percentile(x, 0.5)"),
        ("collect_list(x)", "top_n(x, n)"),
        ("count(DISTINCT x)", "Use approx_count_distinct(x), or collect_set(x, n)"),
        ("count(distinct(x))", "Use approx_count_distinct((x)), or"),
        ("sum()", "it is written sum(x)"),
        ("sum(x, y)", "it is written sum(x)"),
        ("first()", "it is written first(x, order = _timestamp)"),
        ("collect_set(x)", "it is written collect_set(x, n)"),
        ("collect_set(x, many)", "a whole number from 1 on, not 'many'"),
        ("top_n(x, 0)", "a whole number from 1 on, not '0'"),
        ("approx_percentile(x, 95)", "p is a number from 0 to 1, such as 0.95, not '95'"),
        ("approx_percentile(x, 1/2)", "p is a number from 0 to 1"),
        ("first(x, )", "an argument is empty"),
        ("sum(*)", "* goes with count only"),
    ],
)
def test_a_mistake_is_named_with_what_to_write_instead(text: str, told: str) -> None:
    with pytest.raises(ValueError) as error:
        aggregate(text)
    assert told in str(error.value)
    assert repr(text) in str(error.value)


def test_a_column_may_begin_like_distinct() -> None:
    assert aggregate("count(distinct_id)").arguments == ("distinct_id",)


def test_monoids_of_ones_own_are_known_by_name_and_go_first() -> None:
    own = {"longest": Longest, "MAX": Longest}
    assert isinstance(aggregate("Longest(s)", own), Longest)
    assert isinstance(aggregate("max(s)", own), Longest)
    assert isinstance(aggregate("min(s)", own), Min)
    with pytest.raises(ValueError, match=r"Do you mean longest\?"):
        aggregate("longst(s)", own)
    with pytest.raises(ValueError, match=r"it is written longest\(text\)"):
        aggregate("longest(s, 2)", own)


def test_it_prints_as_it_was_written() -> None:
    assert str(Longest("s")) == "Longest(s)"
    assert str(aggregate("Mean( x )")) == "mean(x)"
    assert str(First("a", "b")) == "First(a, b)"


def test_the_sql_of_a_simple_one_is_simple() -> None:
    assert Max("a").plus("t.a", "s.a") == "greatest(t.a, s.a)"
    assert Count("*").gather() == "count(*)"


def test_a_monoid_without_types_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"pass it through bound\(\) first"):
        Longest("s").gather()
    with pytest.raises(RuntimeError, match=r"pass it through bound\(\) first"):
        aggregate("sum(x)").lift()


@pytest.mark.parametrize("text", ["sum(ssn)", "avg(ssn)", "approx_percentile(ssn, 0.5)", "variance(ssn)"])
@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(38,0)"])
def test_a_value_that_can_not_be_added_up_is_not_shown(text: str, kind: str) -> None:
    """Spark logs what a query fails with, and the column may be sensitive."""
    monoid = aggregate(text).typed(lambda _: kind)
    assert "'value'" not in monoid.lift()
