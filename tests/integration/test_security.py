"""A broker that is locked down: every way to log in, the rights that are needed, and what is said where they aren't."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Lake, Topic
from pyspark.sql.types import StructType
from secured import MARK, PASSWORD, PLAIN_USER, VARIABLE, Secured, quoted, secured

from connector import Pipeline
from connector.audit import audit
from connector.config import Source, load
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.source import columnar
from connector.source.columnar import PLAIN, PlainValues
from connector.source.reader import Reader
from connector.source.topics import KafkaSource
from sinks.errors import AuthenticationFailed, BrokerUnreachable, LakelockError, NotAuthorized, TlsFailed
from sinks.offsets import OffsetRange, Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRONG = "WRONG_PASSWORD"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch, secured(tmp_path_factory.mktemp("secured")) as made:
        patch.setenv(VARIABLE, PASSWORD)
        patch.setenv(WRONG, "not-" + PASSWORD)
        yield made


@pytest.fixture
def locked(place: Secured) -> Topic:
    name = f"t-{uuid.uuid4().hex[:12]}"
    place.broker.create_topic(name, 2)
    topic = Topic(place.broker, name)
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    return topic


@pytest.fixture
def locked_lake(tmp_path: Path, locked: Topic, spark: SparkSession) -> Lake:
    return Lake(tmp_path, locked, spark)


def without_password(**others: str) -> dict[str, str]:
    return {"sasl_mechanism": "", "sasl_username": "", "sasl_password": "", **others}


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["transactional", "manual_commit"])
def test_a_pipeline_needs_to_read_its_topic_and_as_a_member_its_group_and_nothing_else(
    delivery: str, locked_lake: Lake, place: Secured
) -> None:
    name = locked_lake.topic.name
    member = [("READ", "GROUP", name)] if delivery == "manual_commit" else []
    kafka = place.kafka(place.user(("READ", "TOPIC", name), *member), group_id=name)
    options: dict[str, Any] = {"delivery": delivery, "source": {"kafka": kafka}}
    locked_lake.pipeline(**options).run()
    assert locked_lake.rows() == [("a", 1), ("b", 2)]
    assert audit(load(locked_lake.file(**options, spark={}))).ok


def certificate(place: Secured, user: str, **changes: str) -> dict[str, str]:
    """A login by TLS itself."""
    address = place.broker.address("MTLS")
    return place.kafka(user, **without_password(security_protocol="SSL", bootstrap_servers=address), **changes)


def by_certificate(place: Secured, user: str, _: pytest.MonkeyPatch) -> dict[str, str]:
    return certificate(
        place, user, ssl_keystore_type="PEM", ssl_keystore_location=str(place.trusted.issue(user, password=PASSWORD)),
        ssl_key_password=f"${{env:{VARIABLE}}}",
    )  # fmt: skip


def by_texts(place: Secured, user: str, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """No file that an executor would need."""
    own = place.trusted.issue(user).read_text()
    cut = own.index("-----BEGIN CERTIFICATE")
    patch.setenv("OWN_KEY", own[:cut])
    return certificate(
        place, user, ssl_keystore_type="PEM", ssl_keystore_key="${env:OWN_KEY}",
        ssl_keystore_certificate_chain=own[cut:], ssl_truststore_location="",
        ssl_truststore_certificates=f"${{file:{place.trusted.ca}}}",
    )  # fmt: skip


def by_jaas(place: Secured, user: str, patch: pytest.MonkeyPatch) -> dict[str, str]:
    patch.setenv("ESCAPED", quoted(PASSWORD))
    jaas = (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username={user} password="${{env:ESCAPED}}";'
    )
    return place.kafka(user, **without_password(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas))


def by_token(place: Secured, user: str, patch: pytest.MonkeyPatch) -> dict[str, str]:
    return place.kafka(
        user,
        **without_password(sasl_mechanism="OAUTHBEARER"),
        sasl_oauthbearer_token_endpoint_url=place.token_endpoint,
        sasl_oauthbearer_client_credentials_client_id=user,
        sasl_oauthbearer_client_credentials_client_secret=f"${{env:{VARIABLE}}}",
        sasl_oauthbearer_scope="kafka",
    )


def by_plain(place: Secured, _user: str, __: pytest.MonkeyPatch) -> dict[str, str]:
    return place.kafka(PLAIN_USER, sasl_mechanism="PLAIN")


@pytest.mark.parametrize("login", [by_plain, by_jaas, by_certificate, by_texts, by_token])
def test_both_clients_log_in_by_the_same_options(
    login: Callable[[Secured, str, pytest.MonkeyPatch], dict[str, str]],
    locked: Topic,
    place: Secured,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    user = place.user(("READ", "TOPIC", locked.name), name=PLAIN_USER if login is by_plain else None)
    kafka = login(place, user, monkeypatch)
    with source(locked, kafka) as found:
        assert found.look().ends == Offsets({TopicPartition(locked.name, 0): 2, TopicPartition(locked.name, 1): 0})
    reader = Reader(options(locked, kafka), spark)
    anything = PlainValues(StructType(), refuse_unknown=False, keep_odd=True)
    for values in [None, anything] if columnar.is_here(spark) else [None]:
        records = reader([OffsetRange(locked.name, 0, 0, 2)], values)
        assert (PLAIN in records.columns) is (values is not None)
        assert records.count() == 2
        # As in a session that the user has made, and knows nothing of what we hide.
        with hidden(spark, "nothing"):
            records.explain("extended")
    assert MARK not in capsys.readouterr().out


@contextmanager
def hidden(spark: SparkSession, names: str) -> Iterator[None]:
    option = "spark.sql.redaction.options.regex"
    before = spark.conf.get(option)
    spark.conf.set(option, names)
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(option, before)


def options(topic: Topic, kafka: dict[str, str]) -> Source:
    return Lake(Path("nowhere"), topic).pipeline(source={"kafka": kafka}).config.source


@contextmanager
def source(topic: Topic, kafka: dict[str, str]) -> Iterator[KafkaSource]:
    found = KafkaSource(options(topic, kafka))
    try:
        yield found
    finally:
        found.close()


PLAINTEXT = {"ssl_truststore_type": "", "ssl_truststore_location": ""}


@pytest.mark.parametrize(
    ("changes", "listener", "meant", "said"),
    [
        ({"sasl_password": f"${{env:{WRONG}}}"}, "", AuthenticationFailed, "sasl.password"),
        ({"sasl_username": "nobody"}, "", AuthenticationFailed, "sasl.username"),
        (without_password(sasl_mechanism="AWS_MSK_IAM"), "", AuthenticationFailed, "sasl.mechanism"),
        ({}, "EXPIRED", TlsFailed, "certificate has expired"),
        ({"ssl_truststore_location": "other-ca.pem"}, "", TlsFailed, "ssl.truststore.location"),
        (without_password(security_protocol="PLAINTEXT", **PLAINTEXT), "", TlsFailed, "security.protocol: SSL"),
        (dict(security_protocol="SASL_PLAINTEXT", **PLAINTEXT), "", TlsFailed, "security.protocol: SASL_SSL"),
        (without_password(security_protocol="SSL"), "MTLS", TlsFailed, "ssl.keystore.location"),
        (without_password(security_protocol="SSL"), "", BrokerUnreachable, "require a login"),
        ({}, "PLAINTEXT", BrokerUnreachable, "needs a port with TLS"),
        ({}, "", NotAuthorized, "READ and DESCRIBE"),
    ],
)  # fmt: skip
def test_what_keeps_a_client_out_is_told_at_once(
    changes: dict[str, str], listener: str, meant: type[LakelockError], said: str, locked: Topic, place: Secured
) -> None:
    """By kafka-python, which looks first. 10 seconds is what it takes to find out that nothing answers."""
    kafka = place.kafka(place.user(), bootstrap_timeout_ms="3000", **changes)
    if listener:
        kafka["bootstrap.servers"] = (
            place.broker.bootstrap if listener == "PLAINTEXT" else place.broker.address(listener)
        )
    if changes.get("ssl_truststore_location"):
        kafka["ssl.truststore.location"] = str(place.untrusted.ca)
    start = time.monotonic()
    with pytest.raises(meant) as error, source(locked, kafka) as found:
        found.look()
    assert type(error.value) is meant
    assert said in error.value.message + error.value.hint
    assert PASSWORD not in error.value.message + error.value.hint + repr(error.value.__cause__)
    assert time.monotonic() - start < 10


def test_a_member_without_rights_on_its_group_is_told_so(locked_lake: Lake, place: Secured) -> None:
    kafka = place.kafka(place.user(("READ", "TOPIC", locked_lake.topic.name)), group_id="theirs")
    with pytest.raises(NotAuthorized, match="consumer group 'theirs'") as error:
        locked_lake.pipeline(delivery="manual_commit", source={"kafka": kafka}).run()
    assert "READ" in error.value.hint


def test_what_only_sparks_reader_meets_is_told_as_well(locked_lake: Lake, place: Secured) -> None:
    """To describe a topic is enough for a look at it."""
    user = place.user(("DESCRIBE", "TOPIC", locked_lake.topic.name))
    with pytest.raises(NotAuthorized, match="a topic"):
        locked_lake.pipeline(source={"kafka": place.kafka(user)}).run()
    assert not locked_lake.path().exists() or locked_lake.rows() == []


def command(*words: object, folder: Path) -> str:
    """What it printed; the exit code is in it, too."""
    line = [sys.executable, "-m", "connector", *map(str, words), "--debug"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=folder)
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


@pytest.mark.classic("its runs are processes of their own")
def test_no_secret_is_printed_or_written_anywhere(locked_lake: Lake, place: Secured) -> None:
    topic, folder = locked_lake.topic, locked_lake.folder
    kafka = place.kafka(place.user(("READ", "TOPIC", topic.name)))
    (folder / "events").mkdir()
    spark = {
        **SHORT_LIVED,
        # All that the UI of Spark can show.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.hadoop.fs.s3a.secret.key": f"${{env:{VARIABLE}}}",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net": f"${{env:{VARIABLE}}}",
    }
    topic.send(("a", b"broken"), partition=0)  # behind two that are right
    file = locked_lake.file(source={"kafka": kafka}, spark=spark, epoch={"max_records": 1})
    said = [command("run", file, folder=folder)]
    assert "exit code 1" in said[0]
    assert locked_lake.rows(), "an epoch was committed, and then one failed"
    wrong = locked_lake.file(source={"kafka": {**kafka, "sasl.password": f"${{env:{WRONG}}}"}}, spark=spark)
    said.append(command("check", wrong, folder=folder))
    assert "AuthenticationFailed" in said[-1]
    said += [place.broker.data.joinpath("broker.log").read_text()]
    pipeline = Pipeline.from_file(file)
    config = pipeline.config
    said += [repr(each) for each in (pipeline, vars(pipeline), config, config.source, config.model_dump())]
    said += [str(config), config.model_dump_json(), config.shape]
    assert not [text for text in said if MARK in text]
    written = [each for each in folder.rglob("*") if each.is_file()]
    assert {".json", ".parquet", ".yaml"} <= {each.suffix for each in written}
    assert any(each.is_relative_to(folder / "events") for each in written)
    assert [each for each in written if MARK.encode() in each.read_bytes()] == []


IN_A_PROCESS = """
import os, sys, pathlib
from connector.spark.session import session

def read_by_others():
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            for name in ("cmdline", "environ"):
                try:
                    yield (process / name).read_bytes()
                except OSError:
                    pass

secret, log = sys.stdin.read().split()
options = {
    "spark.hadoop.fs.s3a.secret.key": secret, "spark.hadoop.fs.s3a.access.key": "AKIA = 1#", "spark.master": "local[1]",
    "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": log,
    "spark.sql.shuffle.partitions": "3", "spark.redaction.regex": "mine",
}
for again in range(2):
    with session(options, name="secret") as spark:
        assert spark.range(3).count() == 3
        hadoop = spark.sparkContext.getConf()
        assert hadoop.get("spark.hadoop.fs.s3a.secret.key") == secret
        assert hadoop.get("spark.hadoop.fs.s3a.access.key") == "AKIA = 1#"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.lakelock.theirs") == "yes"
        print(sum(secret.encode() in text for text in read_by_others()))
"""


@pytest.mark.breadth
def test_no_other_user_of_the_machine_reads_the_settings_of_the_jvm(tmp_path: Path) -> None:
    secret = f"hunter2-{uuid.uuid4().hex}"
    (tmp_path / "log").mkdir()
    (tmp_path / "theirs.conf").write_text("spark.sql.session.timeZone Asia/Tokyo\nspark.lakelock.theirs yes\n")
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS], input=f"{secret} {tmp_path / 'log'}", capture_output=True, text=True,
        check=False, env={
            **os.environ, "TMPDIR": str(tmp_path),
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {tmp_path / 'theirs.conf'} pyspark-shell",
        },
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.split()) == (0, ["0", "0"]), ran.stderr
    logs = [file.read_text(errors="replace") for file in (tmp_path / "log").rglob("*") if file.is_file()]
    assert any("spark.hadoop.fs.s3a.secret.key" in text for text in logs)
    assert not any(secret in text for text in (*logs, ran.stderr))
    assert not list(tmp_path.rglob("spark.properties"))
