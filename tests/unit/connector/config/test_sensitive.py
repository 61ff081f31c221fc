"""``sensitive:`` keeps values out of everything but the table: what would show them is refused, with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.config.sensitive import is_sensitive, is_sensitive_in_table
from sinks.errors import ConfigurationError

UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id"}
TABLES = {"by": "type", "sink": {**UPSERT, "path": "lake/{route}"}}
ROUTE: dict[str, Any] = {"route": TABLES, "coordinator": {"path": "lake/log"}}
MASK = {"mask": "email", "salt": "${env:MASK_SALT}"}
LETTERS: dict[str, Any] = {"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/dead"}}


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SALT", "a salt of the tests")


def config(sink: dict[str, Any] = UPSERT, **changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "id INT, email STRING"},
            "sensitive": ["email", "person"],
            **({} if "route" in changes else {"sinks": [sink]}),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (LETTERS, "a dead letter holds its whole record, also the values of email, person. Write sensitive: allow"),
        ({"sink": {**UPSERT, "key": ["id", "email"]}}, r"email is in sinks\[0\].key, and errors and verify name rows"),
        ({"sink": {**UPSERT, "key": "mail"}, "steps": [{"rename": {"email": "mail"}}]}, "mail is in .*Mask it"),
        ({"sink": {**UPSERT, "partition_by": "person"}}, "its values become names of folders"),
        ({"sink": {"type": "delta_aggregate", "path": "a", "group_by": "email", "aggregates": {"n": "count(*)"}}},
         "verify names groups by it"),
        ({"route": {"by": "lower(email)", "sink": {**UPSERT, "path": "lake/{route}"}},
          "coordinator": {"path": "lake/log"}}, "email is in route.by, and names tables"),
        ({"event_time": "at", "steps": [{"rename": {"person": "at"}}]}, "at is the event time, which commits"),
        ({**ROUTE, "steps": [MASK], "route": {**TABLES, "by": "`Email`"}}, "names tables: steps mask columns after it"),
        ({**ROUTE, "steps": [{"rename": {"email": "mail"}}],
          "route": {**TABLES, "overrides": {"refund": {"sink": {"key": "mail"}}}}},
         r"mail is in route.overrides.refund.sink.key, and"),
        ({**ROUTE, "route": {**TABLES, "overrides": {"refund": {"sink": {"partition_by": "email"}}}}},
         r"email is in route.overrides.refund.sink.partition_by, and"),
        ({"sensitive": [], **LETTERS, "dead_letters": {"path": "lake/dead", "sensitive": "allow"}}, "is never used"),
    ],
)  # fmt: skip
def test_what_would_show_a_sensitive_value_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(**options)


def test_what_shows_no_sensitive_value_is_taken() -> None:
    assert config().sensitive == ("email", "person")
    config({**UPSERT, "key": "email"}, steps=[MASK])
    config(**{**LETTERS, "dead_letters": {"path": "lake/dead", "sensitive": "allow"}})


def test_a_route_names_tables_by_the_columns_before_the_steps() -> None:
    config(**{**ROUTE, "steps": [{"rename": {"type": "x", "email": "type"}}]})


def test_a_function_in_route_by_is_no_column_of_that_name() -> None:
    config(**{**ROUTE, "route": {**TABLES, "by": "lower(type)"}, "sensitive": ["lower"]})


def test_a_fault_of_all_tables_of_a_route_is_told_once() -> None:
    overrides = {"refund": {"sink": {"tombstone_retention": "1 day"}}}
    with pytest.raises(ConfigurationError, match=r"has 1 fault.*\n.*route.sink.key"):
        config(**ROUTE | {"route": {**TABLES, "sink": {**TABLES["sink"], "key": "email"}, "overrides": overrides}})


def test_a_column_stays_sensitive_under_another_name_until_it_is_masked() -> None:
    steps = [
        {"flatten": "person"}, {"rename": {"email": "a", "person_name": "b", "id": "email"}},
        {"cast": {"person_age": "INT"}}, {"add": {"c": 1}}, {**MASK, "mask": "a"},
    ]  # fmt: skip
    made = config({**UPSERT, "key": "email"}, steps=steps)
    columns = ("a", "b", "c", "email", "person_age", "other")
    assert [column for column in columns if is_sensitive(made, column)] == ["b", "person_age"]


def test_names_have_no_case_and_a_column_may_be_called_as_a_field_that_is_flattened() -> None:
    made = config(steps=[{"flatten": "person"}], sensitive=["EMAIL", "person_age"])
    columns = ("Email", "person_age", "Person_Age", "person_name")
    assert [column for column in columns if is_sensitive(made, column)] == ["Email", "person_age", "Person_Age"]


HISTORY = {"type": "delta_history", "path": "lake/t", "key": "id"}
SUMS = {
    "type": "delta_aggregate", "path": "a", "group_by": "id",
    "aggregates": {"n": "count(*)", "newest": "max(`Email`)", "oldest": "min(person.age)"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "hidden"),
    [
        (UPSERT, ["EMAIL", "person"]),
        ({**UPSERT, "sequence_by": "person.changed_at"}, ["EMAIL", "person", "_sequence", "_columns"]),
        ({**UPSERT, "sequence_by": "_timestamp"}, ["EMAIL", "person"]),
        (HISTORY, ["EMAIL", "person", "_state"]),
        ({**HISTORY, "sequence_by": "person.at"}, ["EMAIL", "person", "_sequence", "_state", "__START_AT", "__END_AT"]),
        (
            {**HISTORY, "stored_as_scd_type": "bitemporal", "sequence_by": "id", "system_sequence_by": "person.at"},
            ["EMAIL", "person", "_state", "__SYSTEM_START_AT", "__SYSTEM_END_AT"],
        ),
        (SUMS, ["_state", "newest", "oldest"]),
    ],
)
def test_a_column_that_a_table_makes_of_a_sensitive_one_is_sensitive(sink: dict[str, Any], hidden: list[str]) -> None:
    columns = {
        "delta_upsert": ["id", "EMAIL", "person", "_offset", "_sequence", "_columns"],
        "delta_history": [
            "id",
            "EMAIL",
            "person",
            "_offset",
            "_sequence",
            "_state",
            "__START_AT",
            "__END_AT",
            "__SYSTEM_START_AT",
            "__SYSTEM_END_AT",
        ],
        "delta_aggregate": ["id", "_state", "_applied", "n", "newest", "oldest"],
    }[sink["type"]]
    of = config(sink)
    assert [name for name in columns if is_sensitive_in_table(of, of.sinks[0], name)] == hidden
    none = config(sink, sensitive=[])
    assert not [name for name in columns if is_sensitive_in_table(none, none.sinks[0], name)]
