"""What an error of the pipeline file tells: each fault with its line, and never a secret."""

from pathlib import Path

import pytest

from connector.config import Template, load, load_any, parse
from connector.config.nearest import nearest
from sinks.errors import ConfigurationError

FILE = """\
name: shop
source: {topics: [orders], kafka: {bootstrap.servers: "b:1"}}
value: {format: json, schema: "id INT"}
"""


def told(file: Path, text: str, *overrides: str, part: str = "") -> list[str]:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(f"{file}{part}", overrides)
    return [line.removeprefix("  - ") for line in caught.value.message.splitlines()[1:]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def test_a_fault_of_one_sink_of_several_is_in_the_line_of_that_sink(file: Path) -> None:
    text = (
        f"{FILE}together: eventual\nsinks:\n  - {{type: delta_append, path: a}}\n  - type: delta_upsert\n    path: b\n"
        "    keys: id\n"
    )
    assert told(file, text, part="#b") == ["line 9, column 5: sinks[1].keys: unknown option, did you mean key?"]


def test_a_fault_of_a_topics_table_is_where_its_option_stands(file: Path) -> None:
    text = FILE + (
        "tables:\n  for_each: topic\n  sink: {type: delta_upsert, path: 'lake/{topic}', key: id, delete: soft}\n"
        "  overrides:\n    orders:\n      value: {mod: strict}\n      sink: {sequence: id}\n"
    )
    assert told(file, text, part="#orders") == [
        "line 6, column 61: tables.sink.delete: unknown option, did you mean deletes?",
        "line 9, column 15: tables.overrides.orders.value.mod: unknown option, did you mean mode?",
        "line 10, column 14: tables.overrides.orders.sink.sequence: unknown option, did you mean sequence_by?",
    ]
    file.write_text(text.replace("for_each: topic", "for_each: topik").replace("overrides", "overides"))
    several = load_any(file)
    assert isinstance(several, Template)
    with pytest.raises(ConfigurationError) as caught:
        several.pipeline("orders")
    assert "line 5, column 13: tables.for_each: is topic, not 'topik'; did you mean topic?" in caught.value.message
    assert "line 7, column 3: tables.overides: unknown option, did you mean overrides?" in caught.value.message


def test_a_list_with_a_wrong_word_is_not_called_empty(file: Path) -> None:
    text = f"{FILE}sinks: [{{type: delta_append, path: a}}]\nnotify: {{url: '${{file:{file}}}', on: [faild]}}\n"
    (fault,) = [line for line in told(file, text) if "notify.on" in line]
    assert fault.endswith(
        "notify.on[0]: is one of failed, fenced, behind or dead_letters, not 'faild'; did you mean failed?"
    )


def test_what_is_set_on_the_command_line_is_no_line_of_the_file(file: Path) -> None:
    text = f"{FILE}sinks: [{{type: delta_append, path: a}}]\n"
    assert sorted(told(file, text, "epoch={max_record: 5}", "source.start=earlist")) == [
        "--set epoch: epoch.max_record: unknown option, did you mean max_records?",
        "--set source.start: source.start: write earliest, latest, {timestamp: 2026-11-01T00:00:00Z} or "
        """{"topic": {"0": 120, "1": 80}}, not 'earlist'; did you mean earliest?""",
    ]


def test_a_value_from_elsewhere_is_shown_as_the_file_has_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "Hunter 2")
    reference = "${env:PASSWORD}"
    text = (
        "name: ${env:PASSWORD}\n"
        "source: {topics: [t], kafka: {bootstrap.servers: '${env:NOT_SET_ANYWHERE}'}, start: '${env:PASSWORD}'}\n"
        "value: {format: '${env:PASSWORD}'}\n"
        "delivery: ${env:PASSWORD}\n"
        "epoch: {max_records: '${env:PASSWORD}'}\n"
        "sinks: [{type: delta_append, path: a}]\n"
    )
    lines = told(file, text)
    assert [line.split(":")[0] for line in lines] == [
        "line 1, column 7", "line 2, column 50", "line 2, column 85", "line 3, column 17", "line 4, column 11",
        "line 5, column 22",
    ]  # fmt: skip
    assert lines[1].endswith("source.kafka.bootstrap.servers: the environment variable NOT_SET_ANYWHERE isn't set")
    assert all(f"not {reference}" in line for line in [lines[0], *lines[2:]])
    assert "Hunter" not in "".join(lines)


@pytest.mark.parametrize(
    "wrong",
    [
        "source: {topics: [t], kafka: {bootstrap.servers: b, sasl.password: [hunter2]}}",
        "source: {topics: [t], kafka: hunter2}",
        "spark: {spark.ssl.keyPassword: [hunter2]}",
        "spark: hunter2",
        "value: {format: avro, registry: {url: 'http://x', token: hunter2}}",
        "value: {format: avro, registry: hunter2}",
        "value: {format: avro, registry: {url: 'http://me:hunter2@x'}}",
        "metrics: {push: {url: 'http://x?hunter2', username: 5, passwd: hunter2}}",
        "sinks: [{type: custom, name: n, sink: 'm:C', options: hunter2}]",
        "notify: 'https://hooks.example.com/hunter2'",
        "notify: {url: 'https://hooks.example.com/hunter2'}",
        "notify: {url: ['https://hooks.example.com/hunter2'], on: failed}",
    ],
)
def test_a_secret_in_a_wrong_place_is_not_shown(file: Path, wrong: str) -> None:
    option = wrong.partition(":")[0]
    rest = "".join(f"{line}\n" for line in FILE.splitlines() if not line.startswith(f"{option}:"))
    sinks = "" if option == "sinks" else "sinks: [{type: delta_append, path: a}]\n"
    lines = told(file, f"{rest}{sinks}{wrong}\n")
    assert lines
    assert "hunter2" not in "".join(lines)


def test_faults_that_several_options_have_together_are_told_at_once(file: Path) -> None:
    lines = told(
        file,
        f"{FILE}delivery: idempotent\nsinks:\n  - {{type: delta_append, path: a}}\n"
        "  - {type: delta_upsert, path: b, key: id, merge: on_read}\n",
    )
    assert [line.split(": ")[1] for line in lines] == ["delivery", "delivery", "coordinator", "merge"]
    assert all(line.startswith("line ") for line in lines)


TWO = "sinks: [{type: delta_append, path: a}, {type: delta_append, path: b}]\n"


@pytest.mark.parametrize(
    ("text", "only"),
    [
        (
            f"{TWO}cordinator: {{path: log}}\n",
            "line 5, column 1: cordinator: unknown option, did you mean coordinator?",
        ),
        (f"{TWO}together: evntual\n", "line 5, column 11: together: is one of atomic or eventual, not 'evntual'"),
        (
            "sinks: [{type: delta_append, path: a}]\non_bad_record: deadletter\ndead_letters: {path: d}\n",
            "line 5, column 16: on_bad_record: is one of fail or dead_letter, not 'deadletter'",
        ),
        (
            "sinks: [{type: delta_upsert, path: a, key: id, merg: on_read, fold: {epochs: 5}}]\n",
            "line 4, column 48: sinks[0].merg: unknown option, did you mean merge?",
        ),
        (
            "sinks: [{type: delta_append, path: a}]\ndelivery: idempotnt\ncommit_every: record\n",
            "line 5, column 11: delivery: is one of auto_commit, manual_commit, idempotent or transactional",
        ),
    ],
)
def test_nothing_is_said_that_may_be_right_once_a_fault_is_mended(file: Path, text: str, only: str) -> None:
    (said,) = told(file, FILE + text)
    assert said.startswith(only)


def test_what_does_not_go_together_is_told_beside_a_wrong_value(file: Path) -> None:
    epoch, coordinator, letters = told(file, f"{FILE}epoch: {{max_records: 0}}\n{TWO}on_bad_record: dead_letter\n")
    assert epoch == "line 4, column 22: epoch.max_records: write at least 1, not 0"
    assert coordinator.startswith("line 5, column 8: coordinator: is missing")
    assert letters.startswith("line 6, column 16: on_bad_record: dead_letter needs a place")


def test_a_table_of_the_working_directory_is_named_with_its_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere" / "b" / "_delta_log").mkdir(parents=True)
    (tmp_path / "elsewhere" / "log" / "_delta_log").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    second, log = told(file, f"{FILE}{TWO}coordinator: {{path: log}}\n")
    assert second.startswith("line 4, column 67: sinks[1].path: 'b' is relative to the pipeline file")
    assert log.startswith("line 5, column 21: coordinator.path: 'log' is relative to the pipeline file")


def test_a_mapping_that_takes_in_another_is_read_as_yaml_has_it(file: Path) -> None:
    text = (
        f"{FILE}coordinator: {{path: c}}\nsinks:\n  - &first {{type: delta_upsert, path: a, key: id}}\n"
        "  - {<<: *first, path: b}\n"
    )
    file.write_text(text)
    assert [(sink.place, sink.type) for sink in load(file).sinks] == [("a", "delta_upsert"), ("b", "delta_upsert")]
    (_, second) = told(file, text.replace("key", "kye"))
    assert second == "line 6, column 42: sinks[1].kye: unknown option, did you mean key?"


def test_options_without_a_file_have_no_lines() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"name": "p", "source": 5})
    assert "  - source: write options, as in {topics: ..., kafka: ...}, not 5" in caught.value.message
    assert "line 1" not in caught.value.message


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("upsert", ["delta_append", "delta_upsert"], "delta_upsert"),
        ("Transactional", ["transactional", "idempotent"], "transactional"),
        ("exactly-once", ["transactional", "idempotent"], "transactional"),
        ("exactly_once", ["hard", "soft"], None),
        ("delta", ["delta_append", "delta_upsert"], None),
        ("parquet", ["json", "avro"], None),
    ],
)
def test_the_nearest_name(word: str, known: list[str], meant: str | None) -> None:
    assert nearest(word, known) == meant


def test_half_of_a_surrogate_pair_is_no_text(file: Path) -> None:
    """A property of its own would fail much later, with an error of another library's."""
    said = told(file, f'{FILE}sinks: [{{type: delta_append, path: "lake/\\ud800secret", "na\\udfffme": 1}}]\n')
    assert said == [
        "line 4, column 9: sinks[0]: the name 'na\\udfffme' has half of a surrogate pair, which is no text",
        "line 4, column 36: sinks[0].path: has '\\ud800', half of a surrogate pair, which is no text",
    ]
