"""Which schemas of a registry read an epoch of a route again, as the coordinator log says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from connector.config import PipelineConfig, parse
from connector.decode.registry.newest import NewestSchemas
from connector.decode.registry.registry import Registry, WriterSchema
from connector.engine.coordinator_log import Log
from connector.engine.pinned_schemas import pinned_schemas
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.row_shape import differences, made_by, makes_the_same, schemas_in, with_schemas, with_settings
from sinks.contract import Epoch
from sinks.errors import UnknownSchema
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


IDS = {"value of events": "12", "value of events, a": "15"}


def test_an_epoch_in_doubt_pins_the_schemas_of_its_decision() -> None:
    config = routed()
    decided = with_schemas(f"{config.shape}-America/Port-au-Prince-true", IDS)
    assert pinned_schemas(config, log(State.DECIDED, decided)) == IDS
    assert pinned_schemas(config, log(State.DONE, decided)) == {}
    assert pinned_schemas(config, cast(Log, Held(LogHeld()))) == {}
    assert pinned_schemas(config, None) == {}


def test_what_another_file_has_decided_pins_nothing() -> None:
    config, other = routed(), routed({**OWN, "b": {"value": {"subject": "B"}}})
    assert pinned_schemas(config, log(State.DECIDED, with_schemas(f"{other.shape}-UTC-true", IDS))) == {}
    assert pinned_schemas(config, log(State.DECIDED, f"{config.shape}-UTC-true")) == {}


def test_the_log_of_a_pipeline_without_a_registry_is_not_read() -> None:
    plain = {"value": {"format": "string"}, "together": "atomic"}
    sinks = [{"type": "delta_append", "path": "lake/a"}, {"type": "delta_append", "path": "lake/b"}]
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}
    config = parse({"name": "p", "source": source, "sinks": sinks, "coordinator": {"path": "lake/_log"}, **plain})
    assert pinned_schemas(config, cast(Log, object())) == {}


@pytest.mark.parametrize("ids", [{}, {"value of t": "7"}, {"value of t": "0b-1", "key of t": "7", "value of t, é": ""}])
def test_the_log_keeps_the_schemas_and_where_there_are_none_what_it_kept_before(ids: dict[str, str]) -> None:
    kept = with_schemas("0123-UTC-true", ids)
    assert schemas_in(kept) == ids
    assert ids or kept == "0123-UTC-true"
    assert kept.isascii()


def test_rows_are_the_same_while_no_schema_and_no_option_is_another() -> None:
    kept = with_schemas("0123-UTC-true", IDS)
    assert makes_the_same(kept, kept)
    assert makes_the_same("0123-UTC-true", kept), "a version that kept no schemas"
    assert makes_the_same(kept, with_schemas("0123-UTC-true", {**IDS, "value of new": "1"}))
    assert not makes_the_same(kept, with_schemas("0123-UTC-true", {**IDS, "value of events": "13"}))
    assert not makes_the_same(kept, with_schemas("4567-UTC-true", IDS))
    assert not makes_the_same("4567-UTC-true", kept)


class Growing:
    """A registry whose subjects get a newer schema at each question. A schema is its own ID."""

    wire = None
    newest = 10

    def latest(self, topic: str, part: str) -> WriterSchema[str]:
        self.newest += 1
        return self.schema(str(self.newest))

    def schema(self, schema_id: str) -> WriterSchema[str]:
        return WriterSchema(schema_id, schema_id)


def test_a_run_takes_the_pinned_schemas_for_the_newest_ones_and_notes_all() -> None:
    registry = cast(Registry[str], Growing())
    first = NewestSchemas()
    taken = [first.through(registry).latest("t", "value"), first.through(registry, "a").latest("t", "value")]
    assert [each.schema for each in taken] == ["11", "12"]
    assert first.ids == {"value of t": "11", "value of t, a": "12"}
    again = NewestSchemas(first.ids)
    assert not again.outdated
    assert again.through(registry, "a").latest("t", "value").schema == "12"
    assert again.through(registry).latest("t", "value").schema == "11"
    of_key = again.through(registry).latest("t", "key").schema
    assert of_key == str(registry.newest), "of a part that had no registry before"  # type: ignore[attr-defined]
    assert again.outdated
    assert not first.outdated
    assert again.ids == {**first.ids, "key of t": str(registry.newest)}  # type: ignore[attr-defined]


class Lacking(Growing):
    """A registry that lacks schemas, and maybe the subject."""

    versions = ("10", "12", "13")

    def __init__(self, *gone: str, subject: bool = True) -> None:
        self.gone, self.subject = gone, subject

    def latest(self, topic: str, part: str) -> WriterSchema[str]:
        if not self.subject:
            raise UnknownSchema("no such subject")
        return self.schema("13")

    def known(self, topic: str, part: str) -> Mapping[str, WriterSchema[str]]:
        return {each: self.schema(each) for each in self.versions if each not in self.gone}

    def schema(self, schema_id: str) -> WriterSchema[str]:
        if schema_id in self.gone:
            raise UnknownSchema("no such schema")
        return super().schema(schema_id)


def test_a_schema_that_was_deleted_gives_way_to_the_newest_which_is_noted() -> None:
    """An epoch that needn't be read again is settled all the same; another one is refused, and the ID is named."""
    newest = NewestSchemas({"value of t": "12"})
    assert newest.through(cast(Registry[str], Lacking("12"))).latest("t", "value").schema == "13"
    assert not newest.outdated, "this run goes on by the newest one"
    assert newest.ids == {"value of t": "13"}
    told = differences(with_schemas("0-UTC-true", {"value of t": "12"}), with_schemas("0-UTC-true", newest.ids))
    assert told == ["the newest schema of the value of t (12 then, 13 now)"]
    with pytest.raises(UnknownSchema, match="subject"):
        NewestSchemas({"value of t": "12"}).through(cast(Registry[str], Lacking("12", subject=False))).latest(
            "t", "value"
        )


def test_a_run_does_not_go_on_by_a_pinned_schema_whose_subject_is_gone() -> None:
    newest = NewestSchemas({"value of t": "12"})
    assert newest.through(cast(Registry[str], Lacking(subject=False))).latest("t", "value").schema == "12"
    assert newest.outdated


def test_a_pinned_schema_has_only_the_older_ones_beside_it() -> None:
    """A field of a newer one, for which a table has a column, would be read by the second read alone."""
    pinned = NewestSchemas({"value of t, a": "12"})
    registry = cast(Registry[str], Lacking())
    assert [*pinned.through(registry, "a").known("t", "value")] == ["10", "12"]
    assert [*pinned.through(registry).known("t", "value")] == ["10", "12", "13"], "of records without a pinned one"
    gone = cast(Registry[str], Lacking("12"))
    assert [*pinned.through(gone, "a").known("t", "value")] == ["10", "13"]


def test_the_log_keeps_the_settings_that_change_rows_and_says_which_differ() -> None:
    others = {"spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.caseSensitive": "true"}
    plain = with_settings("0123", "America/Port-au-Prince", "true", {})
    assert plain == "0123-America/Port-au-Prince-true", "as versions that noted no others"
    kept = with_settings("0123", "America/Port-au-Prince", "true", others)
    assert made_by(with_schemas(kept, IDS), "0123")
    assert schemas_in(with_schemas(kept, IDS)) == IDS
    assert makes_the_same(with_schemas(kept, IDS), with_schemas(kept, IDS))
    assert differences(kept, plain) == ["Spark's spark.sql.caseSensitive", "Spark's spark.sql.legacy.timeParserPolicy"]
    assert differences(plain, kept) == differences(kept, plain)
    other = with_settings("0123", "UTC", "false", {**others, "spark.sql.caseSensitive": "false"})
    names = ["session.timeZone", "ansi.enabled", "caseSensitive"]
    assert differences(kept, other) == [f"Spark's spark.sql.{name}" for name in names]
    assert differences(kept, with_settings("4567", "UTC", "true", others)) == ["the pipeline file"]


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_how_files_stored_dates_before_every_run_set_it_leaves_no_epoch_in_doubt(mode: str) -> None:
    """A version that noted the mode left the epoch. Now nobody could bring the mode back."""
    kept = with_settings("0123", "UTC", "true", {"spark.sql.parquet.datetimeRebaseModeInWrite": mode})
    assert makes_the_same(kept, with_settings("0123", "UTC", "true", {}))
    assert differences(kept, with_settings("0123", "UTC", "false", {})) == ["Spark's spark.sql.ansi.enabled"]
