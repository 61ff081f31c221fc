"""`check` decodes a few records: whether a run would work, and what its rows would look like."""

import json
import re

import pytest
from conftest import Lake, Topic, lakelock
from golden_files import assert_told

from sinks.errors import ConfigurationError

TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ][0-9:.]+Z?")


def test_it_shows_three_rows_and_counts_the_records(lake: Lake, topic: Topic) -> None:
    topic.send_rows(((f"k{number}", number) for number in range(10)), partition=0)
    checked = lake.pipeline().check()
    assert dict(checked.sample.records) == {topic.name: 10}
    assert [json.loads(row)["k"] for row in checked.sample.rows] == ["k0", "k1", "k2"]
    assert checked.sample.faults == []
    assert checked.warnings == []
    assert not lake.path().exists()


def test_bad_records_are_grouped_by_field_and_reason(lake: Lake, topic: Topic) -> None:
    bad = [{"k": "a", "n": text} for text in ("c221", "c222")]
    topic.send(("a", {"k": "a", "n": 1}), *(("a", each) for each in bad), ("a", b'{"k": "a"'), partition=1)
    checked = lake.pipeline().check()
    said = [(fault.detail, fault.count, fault.partition, fault.offset) for fault in checked.sample.faults]
    assert said == [
        ("its value: field n: not an INT", 2, 1, 1),
        ("its value: not one whole JSON object", 1, 1, 3),
    ]
    assert len(checked.sample.rows) == 1


def test_rows_that_a_sink_would_refuse_are_bad_too(lake: Lake, topic: Topic) -> None:
    topic.send((None, {"k": None, "n": 1}), partition=0)
    (fault,) = lake.pipeline("upsert").check().sample.faults
    assert "null" in fault.detail


@pytest.mark.breadth
def test_where_nothing_is_new_the_last_records_are_shown(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)])
    lake.pipeline().run()
    assert [json.loads(row)["k"] for row in lake.pipeline().check().sample.rows] == ["a"]


@pytest.mark.breadth
def test_the_command_fails_where_a_run_would_stop(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("a", {"k": "a", "n": "c221"}), partition=0)
    done = lakelock("check", lake.file())
    assert done.returncode == 1
    told = TIMES.sub("<time>", f"{done.stdout}\n{done.stderr}")
    assert_told("check_a_bad_record", told, topic=topic.name, folder=lake.folder, broker=topic.broker.bootstrap)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "dead")}}
    assert lakelock("check", lake.file(**letters)).returncode == 0


@pytest.mark.parametrize("option", ["sink", "dead_letters"])
def test_a_path_that_can_not_be_written_is_found(lake: Lake, option: str) -> None:
    blocked = lake.folder / "file"
    blocked.write_text("")
    where = {"path": str(blocked / "t")}
    letters = {"on_bad_record": "dead_letter", "dead_letters": where} if option == "dead_letters" else {"sink": where}
    with pytest.raises(ConfigurationError) as caught:
        lake.pipeline(**letters).check()
    assert_told(f"check_an_unwritable_{option}", caught.value, folder=lake.folder)
    if option == "sink":
        with pytest.raises(ConfigurationError, match="can't be a folder"):
            lake.pipeline(**letters).run()
