"""Which settings of a session lose something, and what is set instead."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from connector.config import parse
from connector.engine.assembly import Assembly
from connector.engine.first_run import refuse_first_without_zone
from connector.engine.outputs import Other
from connector.engine.routed_table import Split
from connector.operations.session import given_or_new
from connector.spark import session as sessions
from connector.spark.session import isolated, refuse_lossy
from connector.streaming.foreach_batch import _Batches
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, SchemaMismatch
from sinks.spark.cached import merging
from sinks.spark.settings import AS_WRITTEN, as_written, lossless, with_settings

MISSING, CORRUPT = "spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"
TIMES = "spark.sql.parquet.outputTimestampType"
STALE = "spark.databricks.delta.stalenessLimit"
APP, NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
SUBSTITUTE = "spark.sql.variable.substitute"
REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class Settings(dict[str, str]):
    """A session's ``conf`` that can be changed, except for the settings that the platform refuses."""

    def __init__(self, *, refused: tuple[str, ...] = (), **settings: str) -> None:
        super().__init__(settings)
        self.refused = refused

    def set(self, name: str, value: str) -> None:
        if name in self.refused:
            raise PySparkException(f"CONFIG_NOT_AVAILABLE: {name}")
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


def session(**settings: str) -> Any:
    names = {"missing": MISSING, "corrupt": CORRUPT, "times": TIMES, "stale": STALE}
    named = {names[name]: value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: named.get(name, default)))


def test_what_loses_rows_or_parts_of_values_is_set_otherwise_and_nothing_else() -> None:
    assert lossless(session()) == {}
    assert lossless(session(missing="false", corrupt="FALSE", times="INT96")) == {}
    assert lossless(session(times="timestamp_micros")) == {}
    assert lossless(session(missing="true", corrupt=" True", times="timestamp_millis")) == {
        MISSING: "false",
        CORRUPT: "false",
        TIMES: "TIMESTAMP_MICROS",
    }


def test_a_session_that_is_given_is_refused_with_the_setting_and_the_fix() -> None:
    refuse_lossy(session(missing="false", times="INT96"))
    for given, name, instead in (
        (session(missing="true"), MISSING, "'false'"),
        (session(corrupt="true"), CORRUPT, "'false'"),
        (session(times="TIMESTAMP_MILLIS"), TIMES, "'TIMESTAMP_MICROS'"),
    ):
        with pytest.raises(ConfigurationError, match=f"The session has {name} = ") as caught:
            refuse_lossy(given)
        assert f"spark.conf.set({name!r}, {instead})" in (caught.value.hint or "")


@pytest.mark.parametrize("limit", ["1h", "3600000", "10 ms", "05s"])
def test_a_table_is_not_read_as_it_was_before_the_commits_of_another_process(limit: str) -> None:
    assert lossless(session(stale=limit)) == {STALE: "0"}
    with pytest.raises(ConfigurationError, match=f"The session has {STALE} = {limit}: .* newer commits"):
        refuse_lossy(session(stale=limit))


@pytest.mark.parametrize("limit", ["0", "0s", "00 ms", " 0H "])
def test_a_limit_of_no_time_is_none(limit: str) -> None:
    assert lossless(session(stale=limit)) == {}


def test_a_platform_that_does_not_tell_a_setting_stops_nothing() -> None:
    """Serverless clusters answer for few settings."""

    def get(name: str, default: object = None) -> object:
        raise PySparkException(f"CONFIG_NOT_AVAILABLE: {name}, {default}")

    serverless: Any = SimpleNamespace(conf=SimpleNamespace(get=get))
    assert lossless(serverless) == {}
    refuse_lossy(serverless)


def test_statements_are_never_skipped_as_those_of_a_transaction_of_the_users() -> None:
    """With its number in the session, Delta skips the second statement on a table without a word: letters, and notes
    of deletes."""
    numbered: Any = SimpleNamespace(conf=Settings(**{APP: "job", NUMBER: "7", METADATA: "theirs"}))
    assert lossless(numbered) == {APP: None, NUMBER: None}
    with pytest.raises(ConfigurationError, match=f"The session has {APP} = job: Spark would skip statements") as caught:
        refuse_lossy(numbered)
    assert f"spark.conf.unset({APP!r})" in (caught.value.hint or "")


def test_a_clone_of_a_session_of_spark_connect_has_nothing_of_the_users_own_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {APP: "job", NUMBER: "7", METADATA: "theirs", MISSING: "true"}
    monkeypatch.setattr(sessions, "is_connect", lambda _: True)
    for refused in ((), (SUBSTITUTE,)):
        own: Any = SimpleNamespace(
            conf=Settings(refused=refused, **theirs),
            client=SimpleNamespace(release_session=lambda: None, close=lambda: None),
        )
        active: Any = SimpleNamespace(conf=Settings(**theirs), cloneSession=lambda own=own: own)
        with isolated(active) as clone:
            left = dict(clone.conf)
        assert not left.keys() & {APP, NUMBER, METADATA}
        assert left[MISSING] == "false"  # also where the platform refuses another one
        assert active.conf == theirs


def test_a_batch_function_s_own_transaction_is_put_aside_while_lakelock_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {APP: "job", NUMBER: "7", METADATA: "theirs"}
    conf = Settings(**theirs)
    seen: list[dict[str, str]] = []
    query = SimpleNamespace(commit=lambda *_: seen.append(dict(conf)))
    monkeypatch.setattr(_Batches, "_of", lambda *_: query)
    config: Any = SimpleNamespace(notify=None, name="p")
    rows: Any = SimpleNamespace(sparkSession=SimpleNamespace(conf=conf))
    _Batches(config, "", ())(rows, 7)
    assert [each.get(APP) or each.get(NUMBER) for each in seen] == [None]
    assert {name: conf.get(name) for name in theirs} == theirs


def test_settings_are_as_they_were_after_the_block() -> None:
    conf = Settings(a="1", b="2")
    spark: Any = SimpleNamespace(conf=conf)
    with with_settings(spark, {"a": None, "b": "3", "c": "4"}):
        assert conf == {"b": "3", "c": "4"}
    assert conf == {"a": "1", "b": "2"}


def test_dates_and_statements_are_taken_as_they_are_written_in_a_session_that_is_given() -> None:
    """Also in one with Spark 3.5's modes, which refuse old dates or shift them."""
    for theirs in ({}, {SUBSTITUTE: "true", REBASE: "LEGACY"}, {**AS_WRITTEN}):
        conf = Settings(**theirs)
        given: Any = SimpleNamespace(conf=conf)
        config = parse(
            {
                "name": "p",
                "source": {"kafka": {"bootstrap.servers": "b:9092"}, "topics": ["t"]},
                "value": {"format": "json", "schema": "k STRING"},
                "sinks": [{"type": "delta_append", "path": "/t"}],
            }
        )
        with given_or_new(given, config, "p") as spark:
            assert spark is given
            assert conf == {
                SUBSTITUTE: "false", REBASE: "CORRECTED", "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
            }  # fmt: skip
        assert conf == theirs


def test_a_platform_that_refuses_one_of_them_keeps_its_own_and_takes_the_others() -> None:
    conf = Settings(refused=(SUBSTITUTE,), **{REBASE: "EXCEPTION"})
    serverless: Any = SimpleNamespace(conf=conf)
    with as_written(serverless):
        assert SUBSTITUTE not in conf
        assert conf[REBASE] == "CORRECTED"
    assert conf == {REBASE: "EXCEPTION"}


@pytest.mark.parametrize(("made", "kind", "refused"), [
    ([], "timestamp_ntz", True), ([False, False], "TIMESTAMP_NTZ", True), ([False], "TIMESTAMP_LTZ", False),
    ([False], None, False), ([True, False], "TIMESTAMP_NTZ", False),
])  # fmt: skip
def test_no_first_table_is_made_where_timestamp_means_another_type(
    monkeypatch: pytest.MonkeyPatch, made: list[bool], kind: str | None, refused: bool
) -> None:
    """Tables that were made there go on, and so does the new sink or route beside them."""

    class Went(Exception):
        pass

    class Checked:
        @property
        def declared(self) -> bool:
            raise Went

    monkeypatch.setattr(Assembly, "refuse_unfit_select", lambda _: None)
    run = Assembly.__new__(Assembly)
    conf = Settings(**({"spark.sql.timestampType": kind} if kind else {}))
    outputs = [SimpleNamespace(exists=there) for there in made]
    run.__dict__.update(spark=SimpleNamespace(conf=conf), outputs=outputs, log=None, field_check=Checked())
    with pytest.raises(ConfigurationError if refused else Went, match="timestampType" if refused else "") as caught:
        run._make_ready()
    if isinstance(caught.value, ConfigurationError):
        assert "TIMESTAMP_LTZ" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("made", "decided", "refused"),
    [([], None, True), ([], "epoch 1", False), ([False], None, True), ([True], None, False)],
)
def test_a_route_and_sinks_without_a_table_have_begun_only_by_the_log(
    made: list[bool], decided: str | None, refused: bool
) -> None:
    """They say of themselves that they are there: nothing has to be made for them."""
    other: Any = Other.__new__(Other)
    split: Any = Split.__new__(Split)
    log: Any = SimpleNamespace(read=lambda: SimpleNamespace(decided=decided))
    tables: list[Any] = [SimpleNamespace(exists=there) for there in made]
    spark: Any = SimpleNamespace(conf=Settings(**{"spark.sql.timestampType": "TIMESTAMP_NTZ"}))
    for outputs in ([other, *tables], [split, *tables]):
        with pytest.raises(ConfigurationError, match="timestampType") if refused else nullcontext():
            refuse_first_without_zone(spark, outputs, log)


@pytest.mark.parametrize(("kind", "named"), [("TIMESTAMP_NTZ", True), ("TIMESTAMP_LTZ", False)])
def test_a_table_of_another_session_names_the_setting_that_differs(
    monkeypatch: pytest.MonkeyPatch, kind: str, named: bool
) -> None:
    there, made = (StructType([StructField("at", each)]) for each in (TimestampType(), TimestampNTZType()))
    monkeypatch.setattr(DeltaTable, "schema", there)
    session: Any = SimpleNamespace(conf=Settings(**{"spark.sql.timestampType": kind}))
    detail: Any = SimpleNamespace(properties={}, generated={}, identities={})
    with pytest.raises(SchemaMismatch, match="timestamp_ntz in the pipeline") as caught:
        DeltaTable(session, path="lake/t").check(detail, made)
    assert ("spark.sql.timestampType" in (caught.value.hint or "")) is named


@pytest.mark.parametrize("setting", ["none", "NONE", "None"])
def test_the_source_of_a_merge_is_put_aside_however_the_session_spells_that_it_is_not(setting: str) -> None:
    conf = Settings(**{"spark.databricks.delta.merge.materializeSource": setting})
    spark: Any = SimpleNamespace(conf=conf)
    merging(spark, staged=False)
    assert set(conf.values()) == {"auto"}
