"""A pipeline file as everybody may see it: what may be a secret isn't in it, also in a file that a run would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from connector.config import load
from connector.config.masked import HIDDEN, hidden_login, without_secrets
from connector.operations.lineage import Goal, lineage_of
from connector.watch.about import text_of

SECRET = "hunter2"
FILE = f"""
# the password is {SECRET}
name: flights
source:
  topics: [flights, "late, ones"]
  kafka:
    bootstrap.servers: "b:9092"
    sasl.username: lake
    sasl.password: "${{env:KAFKA_PASSWORD}}"
    ssl.key.password: {SECRET}
    sasl.jaas.config: 'x required username="lake" password="{SECRET}";'
value:
  format: json
  schema: "k STRING, token STRING"
  registry: {{url: "https://lake:{SECRET}@registry/", username: u, password: {SECRET}, token: [{SECRET}]}}
transform: SELECT * FROM records WHERE k <> 'a@b'
spark:
  spark.hadoop.fs.s3a.secret.key: {SECRET}
  spark.hadoop.fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net: {SECRET}
  spark.hadoop.fs.azure.sas.flights.lake.blob.core.windows.net: {SECRET}
  spark.a: "jdbc:x?user=u&password={SECRET}&ssl=true"
notify: {{url: "https://hooks.example.com/{SECRET}", on: [failed]}}
metrics: {{push: {{url: "http://g", username: u, password: "a${{env:X}}{SECRET}"}}}}
sinks:
  - {{type: custom, options: {{api_key: {SECRET}, credentials: {{user: {SECRET}}}, place: {SECRET},
    login: "${{env:LOGIN}}"}}}}
"""


def test_no_secret_is_shown_and_everything_else_is(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(FILE)
    text = text_of(str(tmp_path / "flights.yaml"))
    assert text is not None
    assert SECRET not in text
    shown = yaml.safe_load(text)
    assert list(shown) == list(yaml.safe_load(FILE)), "in the order of the file"
    assert shown["source"]["topics"] == ["flights", "late, ones"]
    assert shown["source"]["kafka"]["sasl.password"] == "${env:KAFKA_PASSWORD}", "a reference only names the secret"
    assert shown["source"]["kafka"]["ssl.key.password"] == HIDDEN
    assert shown["value"]["schema"] == "k STRING, token STRING"
    assert shown["value"]["registry"]["url"] == f"https://{HIDDEN}@registry/"
    assert shown["spark"]["spark.a"] == f"jdbc:x?user=u&password={HIDDEN}&ssl=true"
    assert shown["notify"] == {"url": HIDDEN, "on": ["failed"]}
    assert shown["transform"] == "SELECT * FROM records WHERE k <> 'a@b'"
    options = {"api_key": HIDDEN, "credentials": {"user": HIDDEN}, "place": HIDDEN, "login": "${env:LOGIN}"}
    assert shown["sinks"] == [{"type": "custom", "options": options}], "nobody knows what they are"


def test_the_secrets_of_one_topic_are_hidden_as_those_of_all_topics() -> None:
    own = {"notify": {"url": f"https://h/{SECRET}"}, "sink": {"options": {"place": SECRET}}}
    text = without_secrets({"tables": {"sink": {"options": {"login": SECRET}}, "overrides": {"orders": own}}})
    assert SECRET not in text
    (orders,) = yaml.safe_load(text)["tables"]["overrides"].values()
    assert orders == {"notify": {"url": HIDDEN}, "sink": {"options": {"place": HIDDEN}}}


def test_overrides_are_part_of_it_and_a_part_of_a_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(FILE)
    text = text_of(f"{tmp_path / 'flights.yaml'}#late", [f"notify.url=https://h/{SECRET}", "delivery=manual_commit"])
    assert text is not None
    assert "delivery: manual_commit" in text
    assert SECRET not in text


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2", "\x80", "a: &x [*x]"])
def test_a_file_that_can_not_be_read_is_not_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_bytes(text.encode("latin-1"))
    assert text_of(str(tmp_path / "flights.yaml")) is None
    assert text_of(str(tmp_path / "missing.yaml")) is None


def test_text_without_secrets_stays_as_it_is() -> None:
    for text in ("s3a://lake/flights", "user@example.com", "SELECT a AS token FROM t", "https://a/b@c"):
        assert hidden_login(text) == text
    assert without_secrets(["a", {"b": None}]) == "- a\n- b: null\n"


def test_the_way_from_topic_to_table(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nsource: {topics: 'flights-.*', kafka: {bootstrap.servers: 'b:9092'}}\n"
        "value: {format: json, schema: 'k STRING, n INT'}\nrequire: n > 0\ntransform: SELECT k, n FROM records\n"
        "on_bad_record: dead_letter\ndead_letters: {topic: dead}\ncoordinator: {path: log}\n"
        "sinks: [{type: delta_upsert, path: lake/p, key: k}, {type: s3_objects, url: 's3://bucket/p'}]\n"
    )
    way = lineage_of(load(file))
    assert list(way.topics) == ["topics that match 'flights-.*'"]
    assert list(way.steps) == ["decoded as json", "checked by require", "transformed by SQL"]
    assert list(way.goals) == [Goal("delta_upsert", str(tmp_path / "lake/p")), Goal("s3_objects", "s3://bucket/p")]
    assert (way.brokers, way.aside) == ("b:9092", "kafka:dead")
