"""What README and docs say to type, typed as it stands. Recipes and extensions have files of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Send, lakelock
from pages import ROOT, Reader, blocks

ELSEWHERE = {
    "lakelock lab matrix": "test_what_each_delivery_loses_or_repeats",
    "lakelock lab scenario": "test_what_must_break_breaks_and_nothing_else",
    "lakelock lab chaos --seconds 300 --seed 7": "test_chaos_leaves_every_table_exact",
    "lakelock lab together": "test_four_sinks_killed_before_and_after_the_decision",
}
"""Commands that take minutes, and the test that does what they do."""
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests" / "benchmarks" / "README.md")
]
FLIGHT = {"carrier": "UA", "origin": "EWR", "dest": "IAH", "dep_delay": 2, "event_time": "2013-01-01T10:00:00Z"}


def section(page: str, title: str) -> list[str]:
    return [command for block in blocks(page, title) for command in block.commands]


def test_what_takes_minutes_is_run_by_another_test() -> None:
    shown = section("docs/lab.md", "Commands")
    assert set(shown) == ELSEWHERE.keys()
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_that_a_page_names_is_there(page: str) -> None:
    rules = re.findall(r"^([\w-][\w -]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
    targets = {target for rule in rules for target in rule.split()}
    named = set(re.findall(r"(?:`|\$ )make ([\w-]+)", (ROOT / page).read_text(encoding="utf-8")))
    assert named <= targets


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, flags=re.M)
    told = set(re.findall(r'@echo "make ([\w-]+) ', makefile))
    # `test-spark35` and `test-spark41` tell of their quick ones.
    assert set(phony.split()) - {"help", "test-spark35-quick", "test-spark41-quick"} == told


@pytest.mark.pages
def test_the_commands_of_the_readme(reader: Reader, send: Send) -> None:
    send("flights", *((str(n), {**FLIGHT, "flight": n}) for n in range(30)))
    reader.follow("README.md", "Use it")
    said = dict(zip(section("README.md", "Use it"), reader.said, strict=True))
    assert "1 epoch, 30 rows" in said["lakelock run pipeline.yaml"]
    assert "exact" in said["lakelock verify pipeline.yaml"]


@pytest.mark.pages
def test_the_commands_of_the_page_on_using(reader: Reader, send: Send) -> None:
    send("flights", *((str(n), {**FLIGHT, "flight": n}) for n in range(30)))
    reader.follow("docs/using.md", "Commands")
    reader.follow("docs/using.md", "In Python")
    said = dict(zip(section("docs/using.md", "Commands"), reader.said, strict=True))
    assert "1 epoch, 30 rows" in said["lakelock run pipeline.yaml"]
    assert "exact" in said["lakelock verify pipeline.yaml"]
    assert "30" in said["lakelock rewind pipeline.yaml --to-event-time 2026-11-01T00:00:00Z"]
    assert "lake/new" in said["lakelock replay pipeline.yaml --from 2026-11-01T00:00:00Z --into lake/new"]


@pytest.mark.pages
def test_the_commands_on_sinks_that_move_together(reader: Reader, send: Send) -> None:
    """With the example, which has tables only, in place of the page's file."""
    send("transfers", *((str(n), {"id": n, "payer": "a", "payee": "b", "amount": n}) for n in range(30)))
    reader.run("lakelock init --example money_transfers transfers.yaml")
    reader.run("lakelock run transfers.yaml")
    reader.follow("docs/two-phase.md", "What you can ask")
    reader.follow("docs/two-phase.md", "Readers")
    paid, received = (reader.names[name].agg({"amount": "sum"}).first()[0] for name in ("paid", "received"))
    assert paid == received == sum(range(30))
    assert "exact" in reader.said[-1]


@pytest.mark.pages
def test_the_examples_that_a_page_writes_are_valid(reader: Reader, send: Send) -> None:
    send("lines", ("1", {"line": "to be or not to be"}))
    send("flights", ("1", {**FLIGHT, "flight": 1, "tailnum": "N1"}))
    reader.follow("docs/derived-state.md")
    for command in section("docs/derived-state.md", ""):
        reader.run(f"lakelock check {command.split()[-1]}")


@pytest.mark.demo
@pytest.mark.timeout(900)
def test_the_demo_counts_as_the_readme_shows(tmp_path: Path) -> None:
    def said_to(*arguments: str) -> str:
        done = lakelock(*arguments, timeout=600, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return re.sub(" +", " ", done.stdout)

    said = said_to("demo")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    counted = re.findall(r"^(?:latest_)?flights +336,776.*$", readme, flags=re.M)
    assert len(counted) == 2
    for line in counted:
        assert re.sub(" +", " ", line) in said
    would, did = (said_to(*command.split()[1:]) for command in section("docs/maintenance.md", ""))
    assert "would be put together" in would
    assert "put together into 1" in did


@pytest.mark.pages
@pytest.mark.classic("foreach_batch is refused there, see test_connect")
def test_the_streaming_jobs_of_the_page(reader: Reader, send: Send) -> None:
    flights = ({"carrier": "UA", "flight": n % 7, "delay": n} for n in range(30))
    send("streamed_flights", *((str(flight["flight"]), flight) for flight in flights))
    reader.follow("docs/streaming.md", "Kafka's own records")
    assert "exact: 7 expected, 7 found" in reader.said[-1]
    reader.follow("docs/streaming.md", "Rows of your own")
    named = reader.names["spark"].read.format("delta").load(str(Path("lake/named").resolve()))
    assert named.where("name = 'United'").count() == 30
