"""The pipeline files of a folder, and those that can't share a process."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import yaml

from connector.cli.console import worst
from connector.fleet.files import pipeline_files, read, without_clashes
from connector.source.topics import KafkaSource
from sinks.errors import BrokerUnreachable, ConfigurationError, LakelockError, NotAuthorized, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def written(folder: Path, called: str, **changes: object) -> Path:
    options = {
        "name": called,
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "a INT"},
        "sinks": [{"type": "delta_append", "path": f"lake/{called}"}],
        **changes,
    }
    file = folder / f"{called}.yaml"
    file.write_text(yaml.safe_dump(options))
    return file


def test_a_folder_a_pattern_and_files_may_be_given_together(tmp_path: Path) -> None:
    a, b = written(tmp_path, "a"), written(tmp_path, "b")
    (tmp_path / "dashboard.yaml").write_text("panels: []")
    assert pipeline_files([tmp_path]) == [a, b]
    assert pipeline_files([tmp_path / "[a]*.yaml"]) == [a]
    assert pipeline_files([b, tmp_path]) == [b, a]
    with pytest.raises(ConfigurationError, match=r"no pipeline file in .*nothing\*"):
        pipeline_files([tmp_path / "nothing*.yaml"])


def test_a_place_without_files_is_told_also_beside_others(tmp_path: Path) -> None:
    a = written(tmp_path, "a")
    (tmp_path / "empty").mkdir()
    for slip in (tmp_path / "gone-*.yml", tmp_path / "empty"):
        with pytest.raises(ConfigurationError, match=rf"no pipeline file in {re.escape(str(slip))}\."):
            pipeline_files([a, slip])


def test_a_pipeline_that_is_refused_is_worse_than_one_of_which_nobody_knows() -> None:
    assert [worst(codes) for codes in ([2, 4], [4, 2, 1], [0, 4], [3, 4], [2, 0], [])] == [2, 1, 4, 3, 2, 0]


def test_a_pattern_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "a")
    monkeypatch.chdir(tmp_path)
    assert pipeline_files([Path("*.yaml")]) == [Path("a.yaml")]


def test_one_part_of_a_file_may_be_given(tmp_path: Path) -> None:
    file = written(tmp_path, "a", together="eventual")
    assert [each.name for each in read([Path(f"{file}#a"), file])] == ["a-a", "a-a"]
    (missing,) = read([tmp_path / "missing.yaml"])
    assert missing.fault is not None
    assert "can't be read" in missing.fault.message


def test_a_broken_file_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, "a")
    (tmp_path / "b.yaml").write_text("source: [")
    a, b = read(pipeline_files([tmp_path]))
    assert (a.name, a.fault, b.name) == ("a", None, "b.yaml")
    with pytest.raises(ConfigurationError, match="not valid YAML"):
        b.usable()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", True),
        (" \n", True),
        ("name: a\nsources: {topics: [t]}\nvalue: {format: string}", True),
        ("Source: {topics: [t]}\nsinks: []", True),
        ("name: cut_off", True),
        ("cut_off", True),
        ("- {name: a, source: {topics: [t]}, sinks: []}", True),
        ("# source: a pipeline that somebody has switched off", False),
        ("panels: []", False),
        ("- {hosts: all, tasks: []}", False),
        ("[]", False),
        ("[dev, prod]", False),
        ("{}", False),
        ("{version: 2, sources: []}", False),  # dbt
        ("{name: ci, on: push, jobs: {}}", False),  # GitHub Actions
        ("{apiVersion: v1, kind: ConfigMap, metadata: {}, data: {}}", False),
        ("{apiVersion: v2, name: a, version: 1, sources: []}", False),  # Helm
        ("{name: a, services: {}}", False),  # Compose
        ("5: 6", False),
    ],
)
@pytest.mark.parametrize("called", ["b.yaml", "b.YML"])
def test_a_file_that_is_meant_as_a_pipeline_file_is_never_passed_over(
    tmp_path: Path, text: str, meant: bool, called: str
) -> None:
    written(tmp_path, "a")
    (tmp_path / called).write_text(text)
    (tmp_path / "b.txt").write_text(text)
    a, *others = read(pipeline_files([tmp_path]))
    assert a.usable()
    assert [each.name for each in others] == ([called] if meant else [])
    assert all(each.fault is not None and each.fault.exit_code == 2 for each in others)


@pytest.mark.parametrize("error", [BrokerUnreachable("no answer"), TopicMissing("none yet")])
def test_a_file_whose_topics_kafka_does_not_tell_stays_one_that_gets_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: LakelockError
) -> None:
    def topics(_: object) -> list[str]:
        raise error

    monkeypatch.setattr(KafkaSource, "topics", topics)
    source = {"topics": "shop-.*", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}
    tables = {"for_each": "topic", "sink": {"type": "delta_append", "path": "lake/{topic}"}}
    options = {"name": "shop", "source": source, "value": {"format": "string"}, "tables": tables}
    spark = {"spark.sql.session.timeZone": "Europe/Berlin"}
    file = tmp_path / "shop.yaml"
    for trigger, grows in (({"interval": "1 second"}, True), ("available_now", False)):
        file.write_text(yaml.safe_dump({**options, "trigger": trigger, "spark": spark}))
        (found,) = read([file])
        assert (found.template, found.error, found.awaits_topics, found.grows) == (file, error, True, grows)
        assert found.intended is not None
        assert found.intended.name == "shop"
    clashing = without_clashes([found, *read([written(tmp_path, "b")])])
    assert all("timeZone" in str(each.error) for each in clashing), "its settings are those of the session"


def of_topics(folder: Path, monkeypatch: pytest.MonkeyPatch, overrides: dict[str, object], *topics: str) -> Path:
    """A file with ``tables`` and a pattern, and what Kafka has of it."""
    monkeypatch.setattr(KafkaSource, "topics", lambda _: list(topics))
    monkeypatch.setattr(KafkaSource, "hidden", lambda *_: ())
    options = {
        "name": "shop",
        "source": {"topics": r"shop\..*", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "id INT, line INT"},
        "tables": {
            "for_each": "topic",
            "sink": {"type": "delta_upsert", "path": "lake/{topic}", "key": "id"},
            "overrides": overrides,
        },
    }
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(options))
    return file


BY_LINE = {"sink": {"key": ["id", "line"]}}


def test_a_topic_that_a_misspelled_override_means_gets_no_table_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = of_topics(tmp_path, monkeypatch, {"shop.order_line": BY_LINE}, "shop.order_lines", "shop.returns")
    lines, returns = read([file])
    with pytest.raises(ConfigurationError, match=r"overrides\.shop\.order_line: Kafka has no such topic, but it has"):
        lines.usable()
    assert lines.fault is not None
    assert "write shop.order_lines: {} into tables.overrides" in lines.fault.hint
    assert returns.usable()
    (later,) = read([file], known={returns.file})
    assert (later.file, later.config) == (lines.file, None), "also if it appears during a run"
    file = of_topics(tmp_path, monkeypatch, {"shop.order_line": BY_LINE, "shop.order_lines": {}}, "shop.order_lines")
    assert [each.error for each in read([file])] == [None]


def test_each_topic_that_a_misspelled_override_may_mean_is_refused_until_its_topic_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them is meant nobody can say, and the hint for one of them would leave the other with a wrong table."""
    both = ("shop.orders_es", "shop.orders_eu")
    file = of_topics(tmp_path, monkeypatch, {"shop.orders_e": BY_LINE}, *both)
    found = read([file])
    assert [(each.config, each.for_now) for each in found] == [(None, True)] * 2
    assert [f"write {topic}: {{}} into" in str(each.fault) for each, topic in zip(found, both, strict=True)] == [
        True
    ] * 2
    of_topics(tmp_path, monkeypatch, {"shop.orders_e": BY_LINE}, "shop.orders_e", *both)
    assert [(each.error, each.for_now) for each in read([file])] == [(None, False)] * 3


def test_an_override_that_names_no_topic_is_told_once_and_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = of_topics(tmp_path, monkeypatch, {"shop.refunds": BY_LINE}, "shop.orders")
    (orders,) = read([file])
    assert orders.usable()
    assert read([file], known={orders.file}) == []
    (told,) = caplog.messages
    assert "tables.overrides is for topics that Kafka doesn't have: shop.refunds. If one had a table" in told
    file = of_topics(tmp_path, monkeypatch, {"shop.refunds": {"sink": {"kye": "line"}}}, "shop.orders")
    orders, refunds = read([file])
    assert orders.usable()
    with pytest.raises(ConfigurationError, match=r"tables\.overrides\.shop\.refunds\.sink\.kye: unknown option"):
        refunds.usable()


def test_a_topic_of_an_override_that_the_user_may_not_see_is_refused_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A list of topics leaves it out without a word: its table would stop growing, and nobody would say so."""
    overrides = {"shop.refunds": BY_LINE, "shop.gone": {}}
    file = of_topics(tmp_path, monkeypatch, overrides, "shop.orders")
    monkeypatch.undo()
    admin = SimpleNamespace(
        list_topics=lambda: ["shop.orders"],
        describe_topics=lambda names: [{"name": name, "error_code": 29 if "fund" in name else 3} for name in names],
        close=lambda: None,
    )
    monkeypatch.setattr(KafkaSource, "_admin", admin)
    orders, refunds = read([file])
    assert orders.usable()
    with pytest.raises(NotAuthorized, match=r"shop\.refunds"):
        refunds.usable()
    assert refunds.fault is not None
    assert "If there is no such topic, remove the override" in refunds.fault.hint
    assert (refunds.fault.exit_code, refunds.grows, refunds.intended is None) == (2, False, False)
    (told,) = caplog.messages
    assert "Kafka doesn't have: shop.gone." in told


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "a"}, "are both called a"),
        ({"sinks": [{"type": "delta_upsert", "path": "lake/a", "key": "a"}]}, "both write to"),
        ({"spark": {"spark.sql.shuffle.partitions": "9"}}, "spark.'spark.sql.shuffle.partitions' different values: 2"),
    ],
)
def test_files_that_get_in_each_others_way_are_refused_and_no_others(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    written(tmp_path, "a", spark={"spark.sql.shuffle.partitions": "2"})
    written(tmp_path, "b", **changes)
    written(tmp_path, "c", spark={"spark.sql.shuffle.partitions": "2"} if "spark" not in changes else {})
    a, b, c = without_clashes(read(pipeline_files([tmp_path])))
    for refused in (a, b):
        assert refused.fault is not None
        assert said in refused.fault.message
        assert "a.yaml" in refused.fault.message
        assert "b.yaml" in refused.fault.message
        assert refused.fault.exit_code == 2
    assert c.config is not None


def test_a_table_of_a_routes_overrides_is_nobody_elses(tmp_path: Path) -> None:
    sink = {"type": "delta_upsert", "path": "lake/{a}", "key": "a"}
    for place, clashes in (("lake/b", True), ("lake/b2", False)):
        route = {"by": "a", "sink": sink, "overrides": {"x": {"sink": {"path": place}}}}
        options = yaml.safe_load(written(tmp_path, "a", coordinator={"path": "log"}, route=route).read_text())
        del options["sinks"]
        (tmp_path / "a.yaml").write_text(yaml.safe_dump(options))
        written(tmp_path, "b")
        found = without_clashes(read(pipeline_files([tmp_path])))
        assert ["both write to" in str(file.fault) for file in found] == [clashes] * 2


@pytest.mark.parametrize(
    ("setting", "of_a", "of_b"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "${env:A}", "${env:B}"),
        ("spark.hadoop.fs.s3a.endpoint", "${env:A}", "${env:B}"),
        ("spark.hadoop.fs.s3a.endpoint", "${env:A}", "plain"),
        ("spark.hadoop.fs.s3a.access.key", "hunter2", "hunter3"),
        ("spark.a.url", "jdbc:x?user=u&password=hunter2", "jdbc:x?user=u&password=hunter3"),
    ],
)
def test_a_clash_of_settings_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, of_a: str, of_b: str
) -> None:
    monkeypatch.setenv("A", "hunter2")
    monkeypatch.setenv("B", "hunter3")
    written(tmp_path, "a", spark={setting: of_a})
    written(tmp_path, "b", spark={setting: of_b})
    for file in without_clashes(read(pipeline_files([tmp_path]))):
        assert f"spark.{setting!r} different values" in str(file.fault)
        assert "hunter" not in f"{file.fault}{file.error!r}{file.error}"


@pytest.mark.parametrize(
    ("setting", "value", "clashes"),
    [
        ("spark.sql.session.timeZone", "Europe/Berlin", True),
        ("spark.sql.session.timeZone", "UTC", False),
        ("spark.sql.ansi.enabled", "false", True),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ", True),
        ("spark.sql.shuffle.partitions", "9", False),
        ("spark.sql.broadcastTimeout", "900", False),
        ("spark.sql.catalog.glue", "org.example.Catalog", False),
        ("spark.driver.memory", "4g", False),
    ],
)
def test_a_setting_of_one_file_never_changes_what_another_one_stores(
    tmp_path: Path, setting: str, value: str, clashes: bool
) -> None:
    written(tmp_path, "a", spark={setting: value})
    written(tmp_path, "b")
    found = without_clashes(read(pipeline_files([tmp_path])))
    assert [file.fault is not None for file in found] == [clashes] * 2
    if clashes:
        assert f"give spark.'{setting}' different values: {value} and " in str(found[1].fault)


def test_settings_do_not_count_beside_a_session_that_was_given(tmp_path: Path) -> None:
    written(tmp_path, "a", spark={"spark.sql.session.timeZone": "Europe/Berlin"})
    written(tmp_path, "b")
    a, b = read(pipeline_files([tmp_path]))
    theirs = cast("SparkSession", object())
    assert [file.fault for file in without_clashes([replace(a, spark=theirs), b])] == [None, None]


@pytest.mark.parametrize(
    ("changes", "clashes"),
    [
        ({"sinks": [{"type": "delta_append", "path": "lake/a/b"}]}, True),
        ({"sinks": [{"type": "delta_append", "path": "lake"}]}, True),
        ({"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/a/dead"}}, True),
        ({"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/a/_dead"}}, False),
        ({"sinks": [{"type": "delta_append", "path": "lake/ab"}]}, False),
    ],
)
def test_no_table_lies_in_the_folder_of_another_files_table(
    tmp_path: Path, changes: dict[str, object], clashes: bool
) -> None:
    written(tmp_path, "a")
    written(tmp_path, "b", **changes)
    found = without_clashes(read(pipeline_files([tmp_path])))
    assert [file.fault is not None for file in found] == [clashes] * 2
