"""What earlier releases have written (``tests/releases``) is read by this one, which goes on where they stood."""

from __future__ import annotations

import base64
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from another_engine import query
from releases.make import KEPT, READ, TOPIC, UNREAD, send
from typer.testing import CliRunner

from connector import Pipeline
from connector.audit import audit
from connector.cli.app import app
from connector.config import parse
from connector.engine.coordinator_log import FORMAT as LOG_FORMAT
from connector.engine.coordinator_log import Log
from sinks.delta.metadata import FORMAT
from sinks.errors import UnsupportedFormat

if TYPE_CHECKING:
    from conftest import Broker
    from pyspark.sql import SparkSession

RELEASES = sorted((Path(__file__).parents[1] / "releases").glob("*.tar.gz"))
ONE_IS_PACKED = [
    pytest.param(file, marks=() if file.name.startswith("packed") else pytest.mark.breadth) for file in RELEASES
]
SEVERAL = [file for file in RELEASES if not file.name.startswith("first")]
"""Those that knew two-phase commit."""


ONE_OF_SEVERAL = [SEVERAL[0], *(pytest.param(each, marks=pytest.mark.breadth) for each in SEVERAL[1:])]


def named(file: Path) -> str:
    return file.name.removesuffix(".tar.gz")


@dataclass
class Left:
    """By a release, in a folder; Kafka has its topic again, under another id."""

    folder: Path
    bootstrap: str

    def options(self, name: str) -> dict[str, Any]:
        """Of a pipeline with one table."""
        found = yaml.safe_load((self.folder / f"{name}.yaml").read_text())
        found["source"]["kafka"]["bootstrap.servers"] = self.bootstrap
        (sink,) = found["sinks"]
        sink["path"] = str(self.folder / sink["path"])
        return dict(found)

    def commits(self) -> list[Path]:
        return sorted(self.folder.glob("lake/*/_delta_log/*.json"))

    def change(self, file: Path, old: str, new: str) -> None:
        """In a commit, packed or not."""
        lines = []
        for line in file.read_text().splitlines():
            action = json.loads(line)
            text = action.get("commitInfo", {}).get("userMetadata")
            if text is not None:
                fields = json.loads(text)
                if "packed" in fields:
                    packed = zlib.decompress(base64.b85decode(fields["packed"])).decode().replace(old, new)
                    fields["packed"] = base64.b85encode(zlib.compress(packed.encode())).decode()
                action["commitInfo"]["userMetadata"] = json.dumps(fields, separators=(",", ":")).replace(old, new)
            lines.append(json.dumps(action))
        file.write_text("\n".join(lines) + "\n")
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def left(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Iterator[Left]:
    with tarfile.open(request.param) as kept:
        kept.extractall(tmp_path, filter="data")
    broker.create_topic(TOPIC, 2, KEPT)
    try:
        send(broker.bootstrap, json.loads((tmp_path / "records.json").read_text()))
        left = Left(tmp_path, broker.bootstrap)
        if (tmp_path / "append.yaml").exists():
            known = Pipeline.from_options(left.options("append")).status().held.ids[TOPIC]
            for file in left.commits():
                left.change(file, (tmp_path / "topic_id").read_text(), known)
        yield left
    finally:
        broker.delete_topic(TOPIC)


@pytest.mark.parametrize("left", ONE_IS_PACKED, indirect=True, ids=named)
def test_a_table_of_an_earlier_release_goes_on_where_it_stands(left: Left, spark: SparkSession) -> None:
    everything = [(f"k{number % 4}", number) for number in range(READ + UNREAD)]
    for name, wanted in (("append", everything), ("latest", list(dict(everything).items()))):
        pipeline = Pipeline.from_options(left.options(name))
        status = pipeline.status()
        assert status.position is not None
        assert (status.position.epoch, status.position.source) == (2, "commit")
        assert status.offsets.to_dict() == {TOPIC: {"0": READ // 2, "1": READ // 2}}
        assert pipeline.run().epochs == 1
        assert sorted(query(left.options(name)["sinks"][0]["path"], "SELECT k, n FROM t")) == sorted(wanted)
        assert audit(parse(left.options(name))).ok


@pytest.mark.parametrize(
    "left",
    ONE_OF_SEVERAL,
    indirect=True,
    ids=named,
)
def test_an_epoch_that_an_earlier_release_has_decided_is_committed(
    left: Left, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Kafka, from what was staged then. The log knows the tables by the names that the file gives them."""
    monkeypatch.chdir(left.folder)
    file = left.folder / "both.yaml"
    file.write_text(
        yaml.safe_dump({**yaml.safe_load(file.read_text()), "source": left.options("append")["source"]}),
        encoding="utf-8",
    )
    done = CliRunner().invoke(app, ["recover", "both.yaml", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["did"].startswith("committed")
    everything = [(f"k{number % 4}", number) for number in range(READ)]
    for name, wanted in (("both_rows", everything), ("both_latest", list(dict(everything).items()))):
        assert sorted(query(left.folder / "lake" / name, "SELECT k, n FROM t")) == sorted(wanted)


@pytest.mark.parametrize("left", RELEASES[-1:], indirect=True, ids=named)
def test_what_a_later_release_has_written_is_refused(left: Left, spark: SparkSession) -> None:
    newest = [file for file in left.commits() if file.parent.parent.name == "append"][-1]
    for written in range(1, FORMAT + 1):
        left.change(newest, f'"lakelock":{written},', f'"lakelock":{FORMAT + 1},')
    before = newest.parent.stat().st_mtime_ns
    with pytest.raises(UnsupportedFormat, match=f"in format {FORMAT + 1}"):
        Pipeline.from_options(left.options("append")).run()
    assert newest.parent.stat().st_mtime_ns == before

    log = str(left.folder / "lake" / "both_log")
    spark.sql(f"UPDATE delta.`{log}` SET format = {LOG_FORMAT + 1}")
    with pytest.raises(UnsupportedFormat, match=f"in format {LOG_FORMAT + 1}"):
        Log(spark, path=log, name=None, pipeline="both", run="").read()
