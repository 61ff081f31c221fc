"""The page of a real pipeline, from the real server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from conftest import wait_until
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from connector.fleet.files import read
from connector.watch.poll import look

if TYPE_CHECKING:
    from conftest import Lake

pytestmark = pytest.mark.classic("the server is a process of its own")


@pytest.mark.breadth
def test_the_page_shows_a_pipeline_and_what_arrives_meanwhile(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.topic.send(("c", b"broken"), partition=1)
    letters = {"dead_letters": {"path": str(lake.path("letters")), "max_share": 1}, "on_bad_record": "dead_letter"}
    file = lake.file(**letters)
    Pipeline.from_file(file).run()
    command = [sys.executable, "-m", "connector", "ui", str(file), "--port", "0", "--every", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().split()[0]
            assert url.startswith("http://127.0.0.1:")

            def html(path: str) -> str:
                with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
                    return str(answer.read().decode())

            def said(path: str) -> str:
                return " ".join(re.sub("<[^>]+>", " ", html(path)).split())

            assert "not seen yet" in said("")
            wait_until(lambda: "up to date" in said(""), seconds=90, what="the first look")
            (address,) = re.findall('href="/(p/[0-9a-f]+)"', html(""))
            page = said(address)
            assert f"{lake.topic.name} 0 2 2 0" in page
            assert "run " + lake.metadata()[-1]["owner"] in page
            assert re.search(r"Records that were set aside .* 1 &times; ", page)
            lake.topic.send_rows([("d", 4)], partition=0)
            wait_until(lambda: "append behind 1 1" in said(""), what="the new record")
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.communicate(timeout=60)
    assert serving.returncode == 0


@pytest.mark.breadth
def test_rows_and_letters_are_looked_at_only_if_asked_for_and_again_only_after_a_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    nasty = "<script>alert(1)</script> ${env:PLANTED_THING}"
    lake.topic.send_rows([("old", 1)], partition=0)
    letters = {"dead_letters": {"path": str(lake.path("letters"))}, "on_bad_record": "dead_letter"}
    file = lake.file(sink={"type": "delta_upsert", "key": "k"}, **letters)
    Pipeline.from_file(file).run()
    lake.topic.send((nasty, {"k": nasty, "n": None}), (nasty, b"\xff <b> broken"), partition=1)
    Pipeline.from_file(file).run()
    (pipeline,) = read([file])
    assert lake.spark is not None
    without = look(pipeline, lake.spark)
    assert (without.rows, without.faults) == ((), [])
    seen = look(pipeline, lake.spark, with_rows=True)
    rows, dead = seen.rows
    assert (rows.place, rows.newest) == (str(lake.path()), True)
    assert [row[:2] for row in rows.rows] == [[nasty, "null"]], "the row of the epoch before isn't of the last one"
    assert (dead.letters, len(dead.rows)) == (True, 1)
    assert dict(zip(dead.columns, dead.rows[0], strict=True))["value"] == "\ufffd <b> broken"
    assert seen.text is not None
    assert seen.lineage is not None
    assert list(seen.lineage.topics) == [lake.topic.name]
    monkeypatch.setattr("connector.watch.poll.newest_rows", lambda *_: pytest.fail("asked again"))
    again = look(pipeline, lake.spark, with_rows=True, before=seen)
    assert again.rows == seen.rows
    shown = [epoch for epoch in seen.past if epoch.phases]
    assert shown, "a MERGE says where its time went"
    assert set(shown[0].phases) <= {"read", "match", "write"}


def test_a_port_that_is_taken_is_said(lake: Lake) -> None:
    port = lake.topic.broker.bootstrap.rpartition(":")[2]
    result = CliRunner().invoke(app, ["ui", str(lake.file()), "--port", port])
    assert result.exit_code == 2
    assert "Can't listen on" in " ".join(result.output.split())
