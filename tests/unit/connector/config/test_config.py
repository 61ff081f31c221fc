"""The pipeline file: every fault at once, each with its option and what to write instead."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from golden_files import GOLDEN, assert_golden
from pydantic import SecretStr

from connector.config import (
    DeltaUpsertSink,
    FromTimestamp,
    Interval,
    PipelineConfig,
    Several,
    Template,
    checked_elsewhere,
    load,
    load_any,
    parse,
)
from sinks.errors import ConfigurationError

SMALLEST = """
name: p
source: {topics: [t], kafka: {bootstrap.servers: "127.0.0.1:9092"}}
value: {format: json, schema: "a INT"}
sinks: [{type: delta_append, path: lake/p}]
"""


def options(**changes: object) -> dict[str, object]:
    return yaml.safe_load(SMALLEST) | changes


def fault(**changes: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(options(**changes))
    assert caught.value.exit_code == 2
    return str(caught.value)


def fits_or_says(said: str | None, **changes: object) -> None:
    """Without ``said`` the options have no fault."""
    if said is None:
        parse(options(**changes))
    else:
        assert said in fault(**changes)


def source(**changes: object) -> dict[str, object]:
    return {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}} | changes


def test_the_smallest_file_has_safe_defaults() -> None:
    config = parse(options())
    assert config.delivery == "transactional"
    assert config.source.start == "earliest"
    assert config.source.on_data_loss == "fail"
    assert config.trigger == "available_now"
    assert config.epoch.max_records == 2_000_000


def test_the_file_that_init_writes_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import connector

    monkeypatch.chdir(tmp_path)  # where no demo has left a table
    written = Path(connector.__file__).parent / "cli" / "pipeline.yaml"
    assert load(written).name == "latest_flights"


def read(file: Path) -> None:
    """As a command does, which also asks a file of several pipelines which there are."""
    found = load_any(file)
    _ = found.source if isinstance(found, Template) else found.parts if isinstance(found, Several) else None


@pytest.mark.parametrize("case", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_wrong_file_is_explained(case: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(GOLDEN / f"{case}.yaml")
    said = str(caught.value).replace(str(GOLDEN / f"{case}.yaml"), "pipeline.yaml")
    assert_golden(f"{case}.txt", said + "\n")


def test_a_start_may_be_a_time_or_offsets() -> None:
    by_time = parse(options(source=source(start={"timestamp": "2026-11-01T00:00:00Z"}))).source.start
    assert by_time == FromTimestamp(timestamp=datetime(2026, 11, 1, tzinfo=timezone.utc))
    by_offset = parse(options(source=source(start={"t": {"0": 120, "1": -2}}))).source.start
    assert by_offset.offsets == {"t": {0: 120, 1: -2}}
    of_a_topic_called_timestamp = parse(options(source=source(start={"timestamp": {"0": 1}}))).source.start
    assert of_a_topic_called_timestamp.offsets == {"timestamp": {0: 1}}


@pytest.mark.parametrize("number", [20261101, "20261101", 2026, 1_793_500_000_000, "1793500000.5", True])
def test_a_start_is_no_number(number: object) -> None:
    with pytest.raises(ConfigurationError, match=r"write a time with its zone, as in 2026-11-01T00:00:00Z, not the"):
        parse(options(source=source(start={"timestamp": number})))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 seconds", 10), ("1 second", 1), ("250 milliseconds", 0.25), ("0 seconds", 0), (0, 0), ("1.5 minutes", 90),
        ("2 hours", 7200), ("1 day", 86400),
    ],
)  # fmt: skip
def test_an_interval_is_a_number_and_a_unit(text: str | int, length: float) -> None:
    assert parse(options(trigger={"interval": text})).trigger == Interval(interval=timedelta(seconds=length))


@pytest.mark.parametrize("text", ["10000000000 days", "365001 days", f"{'9' * 400} seconds"])
def test_an_interval_is_shorter_than_the_calendar(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write at most 365000 days"):
        parse(options(trigger={"interval": text}))


def test_a_key_may_be_one_column() -> None:
    assert parse(options(sinks=[{"type": "delta_upsert", "path": "x", "key": "a"}])).sinks[0].key == ("a",)


@pytest.mark.parametrize("name", ["enable.auto.commit", "isolation.level", "auto.offset.reset", "interceptor.classes"])
def test_options_that_the_guarantee_rests_on_are_refused(name: str) -> None:
    assert f"{name} is set by Lakelock" in fault(source=source(kafka={"bootstrap.servers": "b:1", name: "x"}))


def test_secrets_come_from_the_environment_and_from_files_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    (tmp_path / "key").write_text("swordfish\n")
    kafka = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "${env:PASSWORD}",
        "ssl.key.password": "${file:%s}" % (tmp_path / "key"),
    }
    config = parse(options(source=source(kafka=kafka)))
    assert config.source.kafka_options["sasl.password"] == "hunter2"
    assert config.source.kafka_options["ssl.key.password"] == "swordfish"
    assert isinstance(config.source.kafka["sasl.password"], SecretStr)
    monkeypatch.setenv("PASSWORD", "hunter2\r\n")
    again = parse(options(source=source(kafka=kafka)))
    assert again.source.kafka_options["sasl.password"] == "hunter2", "of a secret that was made from a file"
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "hunter2" not in shown
        assert "swordfish" not in shown


def test_the_secrets_of_a_class_of_your_own_are_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    given = {"login": {"password": "${env:PASSWORD}"}, "hosts": ["a", "b:${env:PASSWORD}"], "port": 1}
    config = parse(
        options(
            sinks=[{"type": "custom", "name": "mine", "sink": "my.module:Mine", "options": given}],
            coordinator={"path": "lake/log"},
        )
    )
    (sink,) = config.sinks
    assert sink.arguments == {"login": {"password": "hunter2"}, "hosts": ["a", "b:hunter2"], "port": 1}
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("place", "option"),
    [
        ("kafka", "sasl.password"),
        ("kafka", "sasl.jaas.config"),
        ("kafka", "ssl.key.password"),
        ("kafka", "ssl.keystore.key"),
        ("kafka", "sasl.oauthbearer.client.credentials.client.secret"),
        ("spark", "spark.hadoop.fs.s3a.secret.key"),
        ("spark", "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.account.oauth2.refresh.token.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.account.oauth2.user.password.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.sas.fixed.token.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.sas.flights.lake.blob.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.encryption.encoded.client-provided-key.lake.dfs.core.windows.net"),
        ("spark", "spark.hadoop.fs.azure.client-provided-encryption-key"),
        ("spark", "spark.hadoop.fs.adl.oauth2.credential"),
        ("spark", "spark.hadoop.fs.gs.auth.service.account.private.key"),
        ("spark", "spark.hadoop.fs.s3a.bucket.lake.secret.key"),
        ("spark", "spark.hadoop.fs.s3a.encryption.key"),
        ("spark", "spark.hadoop.fs.s3n.awsSecretAccessKey"),
        ("spark", "spark.executorEnv.AWS_SECRET_ACCESS_KEY"),
        ("spark", "spark.hadoop.fs.ftp.password.example.com"),
        ("spark", "spark.hadoop.parquet.encryption.key.list"),
        ("spark", "spark.hadoop.javax.jdo.option.ConnectionPassword"),
        ("spark", "spark.sql.catalog.rest.credential"),
        ("spark", "spark.databricks.service.token"),
        ("spark", "spark.ssl.keyPassword"),
        ("spark", "spark.ssl.keyStorePassword"),
    ],
)
def test_a_literal_secret_is_refused_with_the_reason(place: str, option: str) -> None:
    changes = {"spark": {option: "hunter2"}}
    if place == "kafka":
        changes = {"source": source(kafka={"bootstrap.servers": "b:1", option: "hunter2"})}
    said = fault(**changes)
    assert f"{option}: a secret in a file is copied with it" in said
    assert "write ${env:NAME} or ${file:/path}" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("spark.remote", "sc://lake.example.com:443/;use_ssl=true;token=hunter2"),
        ("spark.driver.extraJavaOptions", "-Xss4m -Djavax.net.ssl.trustStorePassword=hunter2"),
        ("spark.executor.extraJavaOptions", "-Dhttps.proxyPassword=hunter2"),
    ],
)
def test_a_literal_secret_within_another_option_is_refused(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fault(spark={option: value})
    assert f"{option}: a secret in a file is copied with it" in said
    assert "hunter2" not in said
    monkeypatch.setenv("LAKE_TOKEN", "hunter2")
    parse(options(spark={option: value.replace("hunter2", "${env:LAKE_TOKEN}")}))


def test_options_about_secrets_are_none() -> None:
    azure, lake = "spark.hadoop.fs.azure", "lake.dfs.core.windows.net"
    spark = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "x.Y",
        "spark.redaction.regex": "(?i)token",
        f"{azure}.account.auth.type.{lake}": "OAuth",
        f"{azure}.account.keyprovider.{lake}": "x.Y",
        f"{azure}.account.oauth2.client.id.{lake}": "an-id",
        f"{azure}.account.oauth2.client.endpoint.{lake}": "https://login.microsoftonline.com/x/oauth2/token",
        f"{azure}.account.oauth2.refresh.token.endpoint.{lake}": "https://login.microsoftonline.com/x/oauth2/token",
        f"{azure}.sas.token.provider.type.{lake}": "x.Y",
        f"{azure}.sas.token.renew.period.for.streams": "120",
        "spark.hadoop.fs.gs.auth.service.account.private.key.id": "an-id",
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY": "aws:secret",
        "spark.kubernetes.driver.secrets.spark-secret": "/etc/secrets",
    }
    assert parse(options(spark=spark)).spark_options == spark


def test_a_missing_secret_names_the_option_but_no_value() -> None:
    said = fault(source=source(kafka={"bootstrap.servers": "b:1", "ssl.key.password": "${env:NOT_SET_ANYWHERE}"}))
    assert "source.kafka.ssl.key.password: the environment variable NOT_SET_ANYWHERE isn't set" in said


def test_what_only_the_machine_that_runs_it_knows_is_not_checked_and_all_else_is(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    kafka = {
        "bootstrap.servers": "${env:NOT_SET_ANYWHERE}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "${env:NOT_SET_ANYWHERE}",
        "ssl.ca.location": "${file:/not/here.pem}",
    }
    sinks = [{"type": "delta_append", "path": "s3a://${env:NOT_SET_ANYWHERE}/p"}]
    known = options(source=source(kafka=kafka), sinks=sinks, trigger={"interval": "${env:NOT_SET_ANYWHERE}"})
    file.write_text(yaml.safe_dump(known))
    assert checked_elsewhere(file) == "p"
    assert checked_elsewhere(file, ["name=${env:NOT_SET_ANYWHERE}"]) == "p", "the file's"
    with pytest.raises(ConfigurationError, match=r"has 1 fault(.|\n)*sinks\[0\].mode: unknown option"):
        checked_elsewhere(file, ["sinks[0].mode=append"])
    file.write_text("")
    with pytest.raises(ConfigurationError, match="this one is empty"):
        checked_elsewhere(file)


def test_a_fault_beside_a_secret_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    kafka = {"bootstrap.servers": "b:1", "group.id": "${env:PASSWORD}", "x": ["${env:PASSWORD}"]}
    assert "hunter2" not in fault(source=source(kafka=kafka))


def test_a_file_that_is_not_there_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        load(tmp_path / "nowhere.yaml")


def test_numbers_and_booleans_in_kafka_options_are_text() -> None:
    config = parse(options(source=source(kafka={"bootstrap.servers": "b:1", "fetch.max.bytes": 1, "check.crcs": True})))
    assert config.source.kafka_options["fetch.max.bytes"] == "1"
    assert config.source.kafka_options["check.crcs"] == "true"


def test_a_config_is_immutable() -> None:
    config: PipelineConfig = parse(options())
    with pytest.raises(ValueError, match="frozen"):
        config.name = "q"


@pytest.mark.parametrize(
    ("given", "ahead"),
    [("fail", None), ("continue", timedelta(0)), ({"continue": "10 minutes"}, timedelta(minutes=10))],
)
def test_on_data_loss(given: object, ahead: timedelta | None) -> None:
    read = parse(options(source=source(on_data_loss=given))).source
    assert read.continue_on_data_loss == (ahead is not None)
    assert read.ahead == (ahead or timedelta(0))


def test_on_data_loss_is_explained() -> None:
    assert "write fail, continue or {continue: 10 minutes}" in fault(source=source(on_data_loss="go on"))
    assert "on_data_loss" in fault(source=source(on_data_loss={"continue": "-1 minutes"}))


def test_topics_by_a_pattern() -> None:
    topics = parse(options(source=source(topics="orders-.*|x"))).source.topics
    assert all(name in topics for name in ("orders-eu", "x"))
    assert not any(name in topics for name in ("my-orders-eu", "xy", "__orders-eu"))
    assert "t" in parse(options()).source.topics
    assert "source.topics: '[' isn't a regular expression: unterminated" in fault(source=source(topics="["))
    assert "write a list of topics" in fault(source=source(topics={"a": 1}))
    assert "__consumer_offsets" not in parse(options(source=source(topics=".*"))).source.topics


def test_a_topic_that_yaml_takes_for_a_number_needs_quotes() -> None:
    said = fault(source=source(topics=yaml.safe_load("[010]")))
    assert "YAML takes it for 8, not text" in said
    assert parse(options(source=source(topics=["010"]))).source.topics == ("010",)


@pytest.mark.parametrize(
    "written",
    [
        "sinks: [{type: delta_append, table: 2026_11}]",
        "sinks: [{type: delta_append, path: 010}]",
        "sinks: [{type: delta_upsert, path: out, key: [id, no]}]",
        "sinks: [{type: kafka_topic, topic: 0123}]",
        "source: {topics: [t], kafka: {bootstrap.servers: h:1, group.id: 1.10}}",
        "source: {topics: [t], kafka: {bootstrap.servers: h:1, client.id: yes}}",
        "steps: [{rename: {a: off}}]",
        "steps: [{cast: {1: INT}}]",
        "event_time: 12_3",
        "dead_letters: {path: 0b11}",
    ],
)
def test_a_name_that_yaml_takes_for_something_else_needs_quotes(written: str) -> None:
    assert "write it in quotes" in fault(**yaml.safe_load(written))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "steps: [{add: {country: NO}}]",
            'line 5, column 25: YAML takes NO for false: write false, or "NO" if it is text',
        ),
        ("steps: [{add: {code: 010}}]", 'YAML takes 010 for 8: write 8, or "010" if it is text'),
        ("steps: [{add: {at: 12:30:00}}]", "YAML takes 12:30:00 for 45000"),
        ("steps: [{add: {n: 1_000}}]", "YAML takes 1_000 for 1000"),
        ("metrics: {port: 0x50}", "YAML takes 0x50 for 80"),
        (
            "steps: [{add: {phone: +49301234}}]",
            'YAML takes +49301234 for 49301234: write 49301234, or "+49301234" if it',
        ),
        ("steps: [{add: {n: -0}}]", "YAML takes -0 for 0"),
    ],
)
def test_a_value_that_yaml_takes_for_something_else_is_refused(written: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"{SMALLEST.strip()}\n{written}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert said in str(caught.value)


def with_ids(folder: Path, client: str, group: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(
        f"name: p\nsource:\n topics: [t]\n kafka: {{bootstrap.servers: h:1, client.id: {client}, group.id: {group}}}\n"
        "value: {format: json, schema: id INT}\nsinks: [{type: delta_append, path: t}]\n"
    )
    return file


def test_an_id_of_kafka_may_be_a_number_as_it_is_written(tmp_path: Path) -> None:
    found = load(with_ids(tmp_path, "42", "0"), ["source.kafka.group.id=-7"]).source.kafka_options
    assert (found["client.id"], found["group.id"]) == ("42", "-7")


@pytest.mark.parametrize("id", ["0123", "+7", "-0", "1_0", "0x1", "12:30", "yes", "true", "1.10"])
def test_an_id_of_kafka_that_would_be_another_one_needs_quotes(id: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="YAML takes"):
        load(with_ids(tmp_path, "c", id))
    with pytest.raises(ConfigurationError, match="YAML takes"):
        load(with_ids(tmp_path, "c", "g"), [f"source.kafka.group.id={id}"])
    assert load(with_ids(tmp_path, "c", f'"{id}"')).source.kafka_options["group.id"] == id


def test_a_setting_may_be_a_number() -> None:
    kafka = {"bootstrap.servers": "h:1", "group.id": "0123", "session.timeout.ms": 10_000}
    assert parse(options(source=source(kafka=kafka))).source.kafka_options["session.timeout.ms"] == "10000"


@pytest.mark.parametrize(
    ("table", "other", "is_fault"),
    [
        ("lake/orders", "lake/orders/dead", True),
        ("lake/orders", "lake/orders_dead", False),
        ("lake/orders", "lake/orders/_lakelock/dead", False),
        ("lake/orders/eu", "lake/orders", True),
        ("s3a://b/orders", "s3://b/orders/dead", True),
        ("s3a://b/orders", "s3a://b/dead/../orders/dead", True),
        ("s3a://b/orders", "s3a://b/orders/../dead", False),
        ("/lake/orders", "file:/lake/orders/dead", True),
        ("file:///lake/orders", "/lake/orders/dead", True),
        ("FILE://localhost//lake/orders/", "//lake/orders/dead", True),
        ("file:/lake/orders", "/lake/orders_dead", False),
    ],
)
def test_no_table_lies_in_the_folder_of_another(table: str, other: str, is_fault: bool) -> None:
    """VACUUM would remove the files of the inner one."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": other}}
    made = options(sinks=[{"type": "delta_append", "path": table}], **letters)
    if not is_fault:
        assert parse(made).dead_letters is not None
        return
    with pytest.raises(ConfigurationError, match="VACUUM removes from a table's folder"):
        parse(made)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/lake/orders", "file:/lake/orders"),
        ("file:///lake/orders/", "//lake/orders"),
        ("s3a://b/a/../orders", "s3://b//orders"),
        ("s3://b", "s3a://b/"),
    ],
)
def test_two_spellings_of_a_place_are_one(one: str, other: str) -> None:
    sinks = [{"type": "delta_append", "path": place} for place in (one, other)]
    assert "two sinks write to" in fault(sinks=sinks, coordinator={"path": "/lake/log"})


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"source": source(topics=".*")}, "source.topics: a pattern"),
        ({"source": source(on_recreated_topic="continue")}, "source.on_recreated_topic"),
        ({"epoch": {"max_bytes": 1}}, "epoch.max_bytes"),
        ({"epoch": {"target_duration": "1 minute"}}, "epoch.target_duration"),
    ],
)
def test_what_needs_offsets_in_the_table(changed: dict[str, object], what: str) -> None:
    parse(options(**changed))
    assert f"{what}" in fault(delivery="manual_commit", **changed)
    assert "needs delivery: transactional" in fault(delivery="manual_commit", **changed)


def test_a_topic_made_again_needs_a_guard_that_can_be_moved() -> None:
    on = {"source": source(on_recreated_topic="continue")}
    history = {"type": "delta_history", "path": "lake/h", "key": "a"}
    assert "needs sequence_by" in fault(**on, sinks=[history])
    parse(options(**on, sinks=[{**history, "sequence_by": "a"}]))
    two = [{"type": "delta_append", "path": f"lake/{name}"} for name in "ab"]
    assert "one Delta table only" in fault(**on, sinks=two, coordinator={"path": "lake/c"})


UPSERTED = {"type": "delta_upsert", "path": "lake/u", "key": "a"}
RECORDED = {"type": "delta_history", "path": "lake/h", "key": "a", "stored_as_scd_type": "bitemporal"}
AGGREGATED = {"type": "delta_aggregate", "path": "lake/a", "group_by": "a"}


@pytest.mark.parametrize(
    ("sink", "transform", "said"),
    [
        ({**UPSERTED, "sequence_by": "struct(_offset, a)"}, None, "sequence_by: orders records by _offset"),
        ({**UPSERTED, "sequence_by": "seq"}, "SELECT a, a + _OFFSET AS Seq FROM records", "seq, which the transf"),
        (
            {**UPSERTED, "sequence_by": "s"},
            "SELECT a, n s FROM (SELECT *, a - _offset AS n FROM records)",
            "by s, which",
        ),
        (
            {**RECORDED, "sequence_by": "a", "system_sequence_by": "struct(a, `_offset`)"},
            None,
            "system_sequence_by: orders rec",
        ),
        ({**AGGREGATED, "aggregates": {"n": "last(a, _offset)"}}, None, "aggregates.n: orders records by _offset"),
        ({**AGGREGATED, "aggregates": {"n": "min_by(f(a, 1), struct(_offset, a))"}}, None, "aggregates.n: orders"),
        ({**UPSERTED, "sequence_by": "struct(_timestamp, '_offset')"}, None, None),
        ({**UPSERTED, "sequence_by": "pos"}, "SELECT a, pos, _offset AS n FROM records", None),
        ({**AGGREGATED, "aggregates": {"n": "last(_offset)", "m": "max(_offset)"}}, None, None),
    ],
)
def test_an_order_by_the_offset_ends_with_its_topic(
    sink: dict[str, object], transform: str | None, said: str | None
) -> None:
    made = {"sinks": [sink], **({"transform": transform} if transform else {})}
    parse(options(**made))
    for on in ("continue", {"translated": "/offsets.json"}):
        fits_or_says(said, source=source(on_recreated_topic=on), **made)


@pytest.mark.parametrize(
    ("sequence", "transform", "said"),
    [
        ("seq", "SELECT a, _OFFSET * 9 + a AS Seq FROM records", "by seq, which the transform makes of _offset"),
        ("struct(seq, a)", "SELECT *, _offset AS seq FROM records", "by seq, which the transform makes of _offset"),
        ("s", "SELECT a, n s FROM (SELECT *, -_offset AS n FROM records)", "by s, which the transform makes of"),
        ("o", "SELECT r.*, CAST(r.`_offset` AS BIGINT) o FROM records r WHERE r.a > o", "by o, which the transform"),
        ("p", "SELECT *, struct(_offset, pos) AS p FROM records", "Order them by _offset itself, which a run checks"),
        ("struct(a, seq)", "SELECT *, _offset AS seq FROM records", None),
        ("s", "SELECT *, struct(_timestamp, _offset) AS s FROM records", None),
        ("s", "SELECT *, coalesce(a, _offset) AS s FROM records", None),
        ("s", "SELECT a, s, _offset AS n FROM records WHERE _offset > s", None),
        ("s", "SELECT *, '_offset' AS s FROM records", None),
        ("s", "SELECT *, struct(to_timestamp(b, 'yyyy'), _offset) AS s FROM records", None),
        ("s", "SELECT *, named_struct('a', a, 'o', _offset) AS s FROM records", None),
        ("s", "SELECT *, concat(_offset, '-', a) AS s FROM records", "by s, which the transform"),
        ("struct(_offset, a)", "SELECT *, _offset AS seq FROM records", None),
    ],
)
def test_a_sequence_by_a_column_that_is_the_offset_is_refused(sequence: str, transform: str, said: str | None) -> None:
    for sink in (UPSERTED, {**UPSERTED, "type": "delta_history"}):
        fits_or_says(said, sinks=[{**sink, "sequence_by": sequence}], transform=transform)


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ({"sequence_by": "_offset"}, "sequence_by: orders records by _offset, which is no time"),
        ({"system_sequence_by": "struct(_OFFSET, a)"}, "system_sequence_by: orders records by _offset, which is no t"),
        ({"system_sequence_by": "seq"}, "system_sequence_by: orders records by seq, which the transform makes of"),
        ({"sequence_by": "seq"}, "Order them by a time, or by a value that grows across partitions"),
        ({"sequence_by": "struct(a, _offset)", "system_sequence_by": "struct(_timestamp, seq)"}, None),
    ],
)
def test_an_offset_is_no_time_of_a_bitemporal_history(orders: dict[str, str], said: str | None) -> None:
    sink = {**RECORDED, "sequence_by": "a", **orders}
    fits_or_says(said, sinks=[sink], transform="SELECT *, _offset AS seq FROM records")


@pytest.mark.parametrize(
    ("sequence", "by_offset"),
    [
        (None, True),
        ("_offset", True),
        ("struct(_offset, a)", True),
        ("named_struct('at', `_OFFSET`)", True),
        ("1000 * _offset + a", True),
        ("struct(IF(_topic = 'late', 1, 0), _offset)", False),  # an order of topics, which their file knows
        ("a", False),
        ("struct(_timestamp, _offset, a)", False),
        ("coalesce(a, _offset)", False),
        ("struct('_offset', a /* _offset */)", False),
    ],
)
def test_a_sequence_that_begins_with_the_offset_is_an_order_within_one_partition(
    sequence: str | None, *, by_offset: bool
) -> None:
    sink = {**UPSERTED, "sequence_by": sequence}
    config = parse(options(sinks=[sink]))
    assert isinstance(config.sinks[0], DeltaUpsertSink)
    assert config.sinks[0].by_offset is by_offset
    truncating = [{**sink, "apply_as_truncates": "a = 0"}]
    if by_offset:
        assert "offsets can't tell which rows of other partitions are older" in fault(sinks=truncating)
    else:
        parse(options(sinks=truncating))


BITEMPORAL = {
    "type": "delta_history", "path": "lake/h", "key": "a", "stored_as_scd_type": "bitemporal", "sequence_by": "a",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sequence_by": None}, "stored_as_scd_type: bitemporal needs sequence_by"),
        ({"stored_as_scd_type": 2, "system_sequence_by": "a"}, "system_sequence_by needs stored_as_scd_type: bitem"),
        ({"track_history_column_list": "a"}, "track_history_column_list doesn't work with stored_as_scd_type: bitem"),
        ({"track_history_except_column_list": "a"}, "Leave out other columns with except_column_list"),
        ({"tombstone_retention": "7 days"}, "tombstone_retention doesn't work with stored_as_scd_type: bitemporal"),
        ({"system_sequence_by": "current_timestamp()"}, "system_sequence_by: "),
        ({"stored_as_scd_type": 3}, "stored_as_scd_type: is one of "),
    ],
)
def test_what_a_bitemporal_history_does_not_take(changed: dict[str, object], said: str) -> None:
    parse(options(sinks=[BITEMPORAL]))
    sink = {name: value for name, value in {**BITEMPORAL, **changed}.items() if value is not None}
    assert said in fault(sinks=[sink])


def test_a_sink_that_would_feed_a_pattern_is_refused() -> None:
    two = {"sinks": [{"type": "kafka_topic", "topic": "orders-out"}], "coordinator": {"path": "lake/c"}}
    assert "the pipeline would read its own rows" in fault(source=source(topics="orders-.*"), **two)
    assert "Name the topics" in fault(source=source(topics="other-.*"), **two)


LETTERS = {"path": "lake/dead"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"on_bad_record": "dead_letter"}, "on_bad_record: dead_letter needs a place: dead_letters: {path: ...}"),
        ({"dead_letters": LETTERS}, "dead_letters: is never used: write on_bad_record: dead_letter"),
        ({"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/p"}}, "dead_letters: is the table of a sink"),
        ({"on_bad_record": "dead_letter", "dead_letters": {**LETTERS, "max_share": 2}}, "dead_letters.max_share: "),
        (
            {"on_bad_record": "dead_letter", "dead_letters": {**LETTERS, "topic": "dead"}},
            "dead_letters: give one of path (a folder or URI), table (catalog.schema.name) or topic",
        ),
        ({"on_bad_record": "dead_letter", "dead_letters": {"max_share": 0.1}}, "dead_letters: give one of path"),
        ({"on_bad_record": "dead_letter", "dead_letters": {"path": ""}}, "dead_letters: path or table is empty"),
        ({"on_bad_record": "dead_letter", "dead_letters": {"topic": "a b"}}, "dead_letters.topic: a topic's name is"),
        (
            {"on_bad_record": "dead_letter", "dead_letters": {"topic": "t"}},
            "dead_letters.topic: t is also a topic of the source or a sink",
        ),
        (
            {
                "on_bad_record": "dead_letter",
                "dead_letters": {"topic": "out"},
                "coordinator": {"path": "lake/c"},
                "sinks": [{"type": "kafka_topic", "topic": "out"}],
            },
            "dead_letters.topic: out is also a topic of the source or a sink",
        ),
        ({"on_bad_record": "skip"}, "on_bad_record: is one of fail or dead_letter, not 'skip'"),
        ({"value": {"format": "protobuf"}}, "value: give either descriptor_file, a file that protoc has made, or regi"),
        (
            {"value": {"format": "protobuf", "descriptor_file": "a.desc", "registry": {"url": "http://a"}}},
            "value: give either descriptor_file",
        ),
        (
            {"value": {"format": "protobuf", "descriptor_file": "a.desc"}},
            "value.message: is missing: write the full name of the records' message",
        ),
        (
            {"value": {"format": "protobuf", "registry": {"glue": {"region": "eu-central-1"}}}},
            "value.registry: Protobuf is read with a registry with Confluent's API only",
        ),
        (
            {"value": {"format": "protobuf", "registry": {"url": "http://a"}, "schema": "inferred"}},
            "value.schema: inferred is for JSON",
        ),
        ({"value": {"format": "bytes", "schema": "a INT"}}, "value.schema: unknown option"),
        (
            {"value": {"format": "json", "schema": "a INT", "mod": "strict"}},
            "value.mod: unknown option, did you mean mode?",
        ),
        ({"value": {"format": "avro"}}, "value: give schema_file, a file with an Avro schema, or registry"),
        ({"value": {"format": "debezium"}}, "value: give schema, the columns of the table, for events in JSON"),
        (
            {"key": {"format": "xml"}},
            "key.format: is one of json, string, bytes, avro, protobuf, debezium, rows, not 'xml'",
        ),
    ],
)
def test_formats_and_dead_letters_are_explained(changes: dict[str, object], said: str) -> None:
    assert said in fault(**changes)


def test_every_sink_of_a_file_has_the_event_time_of_the_file() -> None:
    """What is set aside for want of it is so for all of them, also for one that is read alone."""
    sinks = [
        {"type": "delta_append", "path": "lake/a"},
        {"type": "delta_aggregate", "path": "lake/b", "aggregates": {"n": "sum(n)"},
         "window": {"time": "at", "size": "1 hour", "idle_after": "3 minutes"}},
    ]  # fmt: skip
    config = parse(options(sinks=sinks, coordinator={"path": "lake/log"}))
    for each in (config, config.alone(0), config.alone(1)):
        assert (each.clock, each.idle_after) == ("at", timedelta(minutes=3))
