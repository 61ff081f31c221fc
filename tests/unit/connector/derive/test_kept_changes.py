"""What the changes of a log mean is told by the log: no JVM is needed to see that the file has no say."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.config import COORDINATES
from connector.derive.aggregate import _kept as kept_totals
from connector.derive.kept_changes import Options, kept, options_of, read_options
from connector.derive.net_change import net_of
from connector.derive.reduction import Reduction
from sinks.delta.meaning import Meaning
from sinks.delta.upsert_rule import UpsertRule
from sinks.errors import SchemaMismatch

NAMES = st.lists(st.text(min_size=1), unique=True, max_size=3).map(tuple)
RULES = st.builds(
    UpsertRule,
    NAMES,
    sequenced=st.booleans(),
    soft=st.booleans(),
    ignore_nulls=NAMES,
    keeps=NAMES,
    guarded=st.booleans(),
    by_offset=st.booleans(),
)
OWN = [*COORDINATES, "_delete", "_truncate"]


def columns(*names: str) -> StructType:
    return StructType([StructField(name, LongType() if name == "_offset" else StringType()) for name in names])


def meaning(*names: str, options: str = "", **rule: Any) -> Meaning:
    of = UpsertRule(("k",), **rule)
    merging: Any = of
    text = options or options_of(of, ties=False)
    return Meaning(lambda: columns(*names, *OWN), lambda: text, net_of([*names, *OWN], of), merging, ("k",))


def of_log(now: Meaning, options: str, *names: str, table: tuple[str, ...] = ("k", "doc", "note")) -> Meaning:
    there: Any = SimpleNamespace(label="lake/t", sql="delta.`lake/t`", schema=columns(*table, *COORDINATES))
    merging: Any = lambda rule, *_: rule  # noqa: E731
    sequenced = read_options(now.options()).rule.sequenced
    return kept(there, lambda: now, merging, columns(*names, *OWN), options, sequenced=sequenced)


@given(rule=RULES, ties=st.booleans())
def test_the_text_holds_the_whole_rule(rule: UpsertRule, ties: bool) -> None:
    assert read_options(options_of(rule, ties=ties)) == Options(rule, ties)
    assert read_options(options_of(rule, ties=ties, gone=["a"])) == Options(rule, ties, ("a",))
    late = not (rule.sequenced or rule.soft)
    assert read_options(options_of(rule, ties=ties, letters=True)) == Options(rule, ties, letters=late)
    assert not {"gone", "letters"} & {*json.loads(options_of(rule, ties=ties))}, "older releases don't know the words"


def test_a_log_that_may_hold_retried_letters_is_folded_beside_the_deletes_whatever_the_file_says() -> None:
    """Else a letter's row would come back after its delete, once ``dead_letters`` is taken out of the file."""
    there: Any = SimpleNamespace(label="lake/t", schema=columns("k", "doc", *COORDINATES))
    merging: Any = lambda _rule, _gone, letters: letters  # noqa: E731
    options = [options_of(UpsertRule(("k",)), ties=False, letters=letters) for letters in (True, False)]
    assert options[0] != options[1], "so a run folds before it appends with the file that has none"
    now = meaning("k", "doc", options=options[1])
    for letters, kept_by_the_log in zip((True, False), options, strict=True):
        found = kept(there, lambda: now, merging, columns("k", "doc", *OWN), kept_by_the_log, sequenced=False)
        assert found.table == letters


def test_a_fold_takes_the_columns_of_the_log_by_the_rule_of_the_log() -> None:
    before = UpsertRule(("k",), keeps=("doc",), ignore_nulls=("note",))
    found = of_log(meaning("k", "doc"), options_of(before, ties=True), "k", "doc", "note", "_unavailable")
    expected = net_of(["k", "doc", "note", *OWN, "_unavailable"], before, ties=True)
    assert found.reduce == expected
    assert found.table == before
    assert isinstance(found.reduce, Reduction)
    assert "note" in found.reduce.aggregates["latest"]


def test_a_column_that_is_gone_was_so_when_the_log_was_started_or_not() -> None:
    """What the table remembers meanwhile, as of a column that the file names since, has no say in its epochs."""
    there: Any = SimpleNamespace(label="lake/t", sql="delta.`lake/t`", schema=columns("k", "doc", "note", *COORDINATES))
    merging: Any = lambda _rule, gone, _letters: gone  # noqa: E731
    now = meaning("k", "doc", "note")
    rule = UpsertRule(("k",))
    for gone in ((), ("note",)):
        options = options_of(rule, ties=False, gone=gone)
        found = kept(there, lambda: now, merging, columns("k", "doc", *OWN), options, sequenced=False)
        assert found.table == gone


def test_what_the_file_says_is_asked_only_for_a_log_without_options() -> None:
    """A read then needs neither a decoder nor a registry."""

    def asked() -> Meaning:
        raise AssertionError("the log says it all")

    same = meaning("k", "note")
    there: Any = SimpleNamespace(label="lake/t", schema=columns("k", "note", *COORDINATES))
    merging: Any = lambda rule, *_: rule  # noqa: E731
    found = kept(there, asked, merging, columns("k", "note", *OWN), same.options(), sequenced=False)
    assert (found.reduce, found.table, found.key) == (same.reduce, same.table, same.key)
    assert (found.options(), found.columns()) == (same.options(), same.columns())


def test_a_column_that_the_table_has_lost_is_named() -> None:
    now = meaning("k", "doc")
    with pytest.raises(SchemaMismatch, match="has changes with note, and the table has no such column"):
        of_log(now, now.options(), "k", "doc", "note", table=("k", "doc"))


def test_a_log_of_an_older_release_is_folded_as_the_file_says_if_it_has_its_columns() -> None:
    now = meaning("k", "doc")
    assert of_log(now, "", "doc", "K") is now
    with pytest.raises(SchemaMismatch, match="An older release has started the change log of 'lake/t'"):
        of_log(now, "", "k", "doc", "note")


@pytest.mark.parametrize("was", [False, True])
def test_changes_of_another_order_are_not_folded(was: bool) -> None:
    """By the log's rule a row would keep the sequence that it had, with the values of a newer change."""
    now = meaning("k", "doc", "_sequence", sequenced=not was)
    names = ("k", "doc", "_sequence") if was else ("k", "doc")
    options = options_of(UpsertRule(("k",), sequenced=was), ties=False)
    with pytest.raises(SchemaMismatch, match="are ordered") as raised:
        of_log(now, options, *names, table=("k", "doc", "_sequence"))
    assert "run `lakelock fold` with the pipeline file as it was" in raised.value.hint
    assert ("ALTER TABLE delta.`lake/t`" in raised.value.hint) is not was


@pytest.mark.parametrize("options", ['{"key": ["k"], "brand_new": 1}', "no JSON"])
def test_options_of_a_newer_release_are_not_guessed(options: str) -> None:
    with pytest.raises(SchemaMismatch, match="A newer release has started the change log"):
        of_log(meaning("k", "doc"), options, "k", "doc")


def test_sums_are_folded_by_the_aggregates_that_made_them() -> None:
    table: Any = SimpleNamespace(label="lake/t")
    now = meaning("k", options='{"aggregates": {"n": "max(n)"}}')
    assert kept_totals(table, now, columns("k"), now.options()) is now
    with pytest.raises(SchemaMismatch, match=r"(?s)started with other aggregates \(.*min\(n\).*Run `lakelock fold`"):
        kept_totals(table, now, columns("k"), '{"aggregates": {"n": "min(n)"}}')
