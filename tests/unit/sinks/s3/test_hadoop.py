"""What the driver makes of S3A's settings, and how it finds out whether a store is safe: moto, and no JVM."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Store

from connector.lab.bench.s3proxy import Odds, Request, S3Proxy, unconditional
from sinks.errors import ConfigurationError, SinkError, UnsafeStore
from sinks.s3 import at_start
from sinks.s3 import hadoop as s3a
from sinks.spark.files import folders, remove

LOG_STORE = "spark.delta.logStore.s3a.impl"


class Conf:
    """A session's settings, and those of Spark's start; as a session."""

    def __init__(self, hadoop: str = "3.4.2", start: dict[str, str] | None = None, **settings: str) -> None:
        self.start = start or {}
        self.settings = {**self.start, **settings}
        self.hadoop = hadoop
        self.conf = self

    def sql(self, text: str) -> Any:
        """The version of Hadoop: the one question that is asked."""
        assert "VersionInfo" in text
        return self

    def first(self) -> dict[str, str]:
        return {"version": self.hadoop}

    def get(self, key: str, default: str | None) -> str | None:
        return self.settings.get(key, default)


@pytest.fixture(autouse=True)
def _started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3a, "at_start", lambda spark: spark.start)


def session(s3: Store, changes: dict[str, str] | None = None, start: dict[str, str] | None = None) -> Any:
    settings = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
    }
    return Conf(start={LOG_STORE: s3a.LOG_STORES[0], **(start or {})}, **{**settings, **(changes or {})})


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3a://b/a/t/", ("b", "a/t")),
        ("s3://b", ("b", "")),
        ("s3a://b/a b%20#?/t", ("b", "a b%20#?/t")),
        ("/a/b", None),
        ("file:///a", None),
        ("", None),
    ],
)
def test_a_place_is_a_bucket_and_a_key_as_they_are_written(url: str, found: tuple[str, str] | None) -> None:
    assert s3a.place(url) == found


def test_a_buckets_own_setting_counts_before_the_general_one_and_a_sessions_before_that_of_the_start() -> None:
    def endpoint(start: dict[str, str] | None = None, **settings: str) -> str:
        keys = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.endpoint.region": "eu-west-1"}
        found = s3a.client(Conf(start=start, **{**keys, **settings}), "b")  # type: ignore[arg-type]
        return str(found.meta.endpoint_url)

    general, now = {"spark.hadoop.fs.s3a.endpoint": "http://start"}, {"fs.s3a.endpoint": "http://now"}
    assert endpoint(general) == "http://start"
    assert endpoint(general, **now) == "http://now"
    own = {"spark.hadoop.fs.s3a.bucket.b.endpoint": "http://own"}
    assert endpoint({**general, **own}, **now, **{"fs.s3a.bucket.c.endpoint": "http://other"}) == "http://own"
    # In a session that is there, Spark takes the prefix off no setting.
    assert endpoint(general, **{"spark.hadoop.fs.s3a.endpoint": "http://without effect"}) == "http://start"
    assert endpoint(**{"fs.s3a.endpoint": "store:9000"}) == "https://store:9000"
    assert (
        endpoint(**{"fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false"}) == "http://store:9000"
    )
    assert endpoint() == "https://s3.eu-west-1.amazonaws.com"


def test_folders_are_listed_and_removed_over_many_pages(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    client, spark = s3.client, session(s3)
    for number in range(10):
        client.put_object(Bucket=s3.bucket, Key=f"t/one/{number}", Body=b"")
    for key in ("t/one/deep/x", "t/two/", "t/two-and-a-half/x", "t/file", "t-other/x"):
        client.put_object(Bucket=s3.bucket, Key=key, Body=b"")
    assert folders(spark, f"s3a://{s3.bucket}/t") == ["one", "two", "two-and-a-half"]
    assert folders(spark, f"s3://{s3.bucket}/nothing") == []
    remove(spark, f"s3a://{s3.bucket}/t/one")
    remove(spark, f"s3a://{s3.bucket}/t/two/")
    remove(spark, f"s3a://{s3.bucket}/t/never-was")
    assert s3.objects() == ["t-other/x", "t/file", "t/two-and-a-half/x"]
    with pytest.raises(ValueError, match="whole bucket"):
        remove(spark, f"s3a://{s3.bucket}/")


def test_a_store_with_conditional_writes_passes_and_nothing_is_left_in_it(s3: Store) -> None:
    s3a.require_conditional_writes(session(s3), f"s3a://{s3.bucket}/t")
    s3a.require_conditional_writes(session(s3), f"s3a://{s3.bucket}")
    assert s3.objects() == []


def test_a_store_that_takes_a_second_write_is_refused_and_nothing_is_left_in_it(s3: Store) -> None:
    with S3Proxy(s3.endpoint, change=unconditional) as proxy:
        with pytest.raises(UnsafeStore, match="accepted a second write") as error:
            s3a.require_conditional_writes(session(s3, {"fs.s3a.endpoint": proxy.endpoint}), f"s3a://{s3.bucket}/t")
    assert "S3DynamoDBLogStore" in error.value.hint
    assert s3.objects() == []


def test_a_store_that_doesnt_know_the_condition_is_refused(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    said = {"Error": {"Code": "NotImplemented", "Message": "a header"}, "ResponseMetadata": {"HTTPStatusCode": 501}}

    class Old:
        def put_object(self, **_: object) -> None:
            raise ClientError(said, "PutObject")  # type: ignore[arg-type]

        def delete_object(self, **_: object) -> None:
            pass

    monkeypatch.setattr(s3a, "client", lambda *_: Old())
    with pytest.raises(UnsafeStore, match="NotImplemented"):
        s3a.require_conditional_writes(session(s3), f"s3a://{s3.bucket}/t")


@pytest.mark.parametrize("where", ["fs.s3a.", "spark.hadoop.fs.s3a.", "bucket"])
def test_conditional_writes_that_are_switched_off_are_refused(where: str, s3: Store) -> None:
    prefix = f"fs.s3a.bucket.{s3.bucket}." if where == "bucket" else where
    off = {f"{prefix}create.conditional.enabled": "false"}
    spark = session(s3, start=off) if where.startswith("spark.") else session(s3, off)
    with pytest.raises(UnsafeStore, match="is false"):
        s3a.require_conditional_writes(spark, f"s3a://{s3.bucket}/t")


def test_deltas_own_log_store_for_one_driver_is_refused(s3: Store) -> None:
    for settings in ({}, {LOG_STORE: "io.delta.storage.S3SingleDriverLogStore"}, {LOG_STORE: "a.Strangers"}):
        with pytest.raises(UnsafeStore, match="without conditional writes"):
            s3a.require_conditional_writes(Conf(start=settings), f"s3a://{s3.bucket}/t")  # type: ignore[arg-type]
    with pytest.raises(UnsafeStore, match="s3://"):
        s3a.require_conditional_writes(session(s3), f"s3://{s3.bucket}/t")


def test_a_log_store_that_only_the_session_names_isnt_deltas() -> None:
    for key in (LOG_STORE, "spark.delta.logStore.class"):
        for log_store in s3a.LOG_STORES:
            for start in ({}, {LOG_STORE: "io.delta.storage.S3SingleDriverLogStore"}):
                spark: Any = Conf(start=start, **{key: log_store})
                with pytest.raises(UnsafeStore, match="S3SingleDriverLogStore") as error:
                    s3a.require_conditional_writes(spark, "s3a://no-such-bucket/t")
                assert "has no effect" in error.value.hint


def test_a_server_that_doesnt_tell_what_it_was_started_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkException

    monkeypatch.setattr(s3a, "at_start", at_start.at_start)

    class Clone(Conf):
        client: Any = type("Client", (), {"release_session": lambda _: None, "close": lambda _: None})()

        def sql(self, text: str) -> Any:
            if "VersionInfo" in text:
                return self
            assert text == "RESET"
            if not self.start:
                raise PySparkException("refused")
            self.settings = self.start

        @property
        def getAll(self) -> Any:
            return self.settings

    class Client(Conf):
        __module__ = "pyspark.sql.connect.session"

        def cloneSession(self) -> Any:
            return Clone(start=self.start, **self.settings)

    for start, store in ({}, "the default"), ({LOG_STORE: "a.Strangers"}, "a.Strangers"):
        spark: Any = Client(start=start, **{LOG_STORE: s3a.LOG_STORES[1]})
        with pytest.raises(UnsafeStore, match=store) as error:
            s3a.require_conditional_writes(spark, "s3a://b/t")
        assert "the Spark Connect server" in error.value.hint
    told: Any = Client(start={LOG_STORE: s3a.LOG_STORES[1]})
    s3a.require_conditional_writes(told, "s3a://b/t")


def test_with_dynamodb_keeping_commits_apart_the_store_isnt_asked() -> None:
    spark: Any = Conf(start={LOG_STORE: "io.delta.storage.S3DynamoDBLogStore"})
    s3a.require_conditional_writes(spark, "s3a://no-such-bucket/t")


@pytest.mark.parametrize(
    "url", ["/a/t", "/a/s3a:b", "file:///a", "file:/a", "hdfs://n/a", "gs://b/a", "abfss://c@a/t", "dbfs:/a", ""]
)
def test_file_systems_that_refuse_by_themselves_arent_asked(url: str) -> None:
    s3a.require_conditional_writes(Conf(), url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["oss://b/t", "cosn://b/t", "s3n://b/t", "S3A://b/t", "cos://b.service/t", "oci://b@n/t"]
)
def test_a_file_system_that_nobody_knows_needs_a_log_store_of_its_own(url: str) -> None:
    key = f"spark.delta.logStore.{url.partition(':')[0].lower()}.impl"
    of_delta = "org.apache.spark.sql.delta.storage.HDFSLogStore"
    for start in (
        {},
        {LOG_STORE.replace("s3a", "other"): "a.Strangers"},
        {key: "io.delta.storage.HDFSLogStore"},
        {"spark.delta.logStore.class": of_delta},
    ):
        unknown: Any = Conf(start=start, **{key: "a.Strangers"})  # what the session has doesn't count
        with pytest.raises(UnsafeStore, match="HDFSLogStore") as error:
            s3a.require_conditional_writes(unknown, url)
        assert key in error.value.hint
    for key_of_one in (key, "spark.delta.logStore.class"):
        s3a.require_conditional_writes(Conf(start={key_of_one: "a.Strangers"}), url)  # type: ignore[arg-type]


def test_a_bucket_that_isnt_there_is_an_error_of_another_kind(s3: Store) -> None:
    with pytest.raises(SinkError, match="NoSuchBucket") as error:
        s3a.require_conditional_writes(session(s3), "s3a://no-such-bucket/t")
    assert not isinstance(error.value, UnsafeStore)


def test_an_answer_lost_on_the_way_isnt_taken_for_a_refusal_of_the_probe(s3: Store) -> None:
    def puts(request: Request) -> bool:
        return request.method == "PUT" and not proxy.happened

    with S3Proxy(s3.endpoint, Odds(lost_answer=1.0), strikes=puts) as proxy:
        s3a.require_conditional_writes(session(s3, {"fs.s3a.endpoint": proxy.endpoint}), f"s3a://{s3.bucket}/t")
    assert proxy.happened["lost_answer"] == 1
    assert s3.objects() == []


def test_keys_are_never_in_an_error(s3: Store) -> None:
    changes = {"fs.s3a.access.key": "AKIDSECRET", "fs.s3a.secret.key": "verysecret"}
    with pytest.raises(SinkError) as error:
        s3a.require_conditional_writes(session(s3, changes), "s3a://no-such-bucket/t")
    assert "secret" not in (error.value.message + error.value.hint).lower()


def test_without_boto3_the_way_out_is_said(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigurationError, match="boto3") as error:
        s3a.client(session(s3), "b")
    assert "lakelock[s3]" in error.value.hint


@pytest.mark.parametrize(
    ("hadoop", "old"), [("3.3.4", True), ("3.4.1-amzn-2", True), ("3.4.2", False), ("3.10.0", False)]
)
def test_a_hadoop_without_conditional_writes_is_refused_before_the_store_is_asked(
    s3: Store, hadoop: str, old: bool
) -> None:
    spark = session(s3)
    spark.hadoop = hadoop
    if old:
        with pytest.raises(UnsafeStore, match=f"Hadoop {hadoop}"):
            s3a.require_conditional_writes(spark, "s3a://no-such-bucket/t")
    else:
        s3a.require_conditional_writes(spark, f"s3a://{s3.bucket}/t")
