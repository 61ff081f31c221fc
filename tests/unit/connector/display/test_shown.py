"""What the results of a pipeline show, as text and in a notebook."""

from __future__ import annotations

import inspect
import io
import typing
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from boards import NASTY, NOW, past, status
from rich.console import Console

from connector.audit.claim import At, Claim
from connector.audit.verdict import Audit, partitions
from connector.audit.whole import Verification
from connector.config import parse
from connector.delivery.ports import Delivered
from connector.display import Bar, Grid, Line, Page, Shown, print_page
from connector.operations.checked import Checked, CheckedSink, Fault, Sample
from connector.operations.dead_letters import Retried
from connector.operations.history import PastEpochs
from connector.operations.letter_groups import LetterGroup, LetterGroups
from connector.operations.maintain import Cleared, Maintained
from connector.operations.preview import Preview, PreviewedTable
from connector.operations.rewind import Rewind
from connector.operations.snapshot import Snapshot
from connector.pipeline import Pipeline
from sinks.contract import Position
from sinks.delta.maintenance import Upkeep
from sinks.delta.restore import Target
from sinks.errors import NotADeltaTable
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("flights", 0)
CONFIG = parse(
    {
        "name": "p",
        "source": {"topics": ["flights"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "string"},
        "sinks": [{"type": "delta_append", "path": "lake/t"}],
    }
)


def audit(kind: str = "lost", count: int = 0) -> Audit:
    claim = Claim("transactional", {At("flights", 0): 0}, {At("flights", 0): 10})
    first = {"topic": "flights", "partition": 0, "offset": 3, "key": f'{{"k": "{NASTY[:8]}"}}'}
    found = [{"kind": "expected", "topic": "flights", "partition": 0, "count": 10, "first": first}]
    found += [{"kind": kind, "topic": "flights", "partition": 0, "count": count, "first": first}] if count else []
    return Audit("p", NASTY, 3, claim, partitions(found, claim), (), (NASTY,))


def results() -> Iterator[Shown]:
    fault = Fault(NASTY, 2, "flights", 0, 7)
    position = Position(9, Offsets({AT: 20}), version=9)
    yield status(NASTY, behind=3, in_doubt=True)
    yield PastEpochs(NASTY, [past(2, notes=(NASTY,)), past(1, commits={NASTY: NASTY})])
    yield PastEpochs(NASTY, [])
    yield LetterGroups("p", [LetterGroup("schema", NASTY, NASTY, 41, 2, 9, "flights", 1, 17, NOW)])
    yield LetterGroups(NASTY, [])
    yield Retried(2, 1, 3, 4, epoch=4)
    yield Maintained(CONFIG, [Upkeep(NASTY, 9, 2048, 3, 1, 2), Cleared(NASTY, "entries", 4)], dry_run=True)
    yield Checked(
        "p", [CheckedSink("table", NASTY, True, ["a"], [NASTY])], None, "earliest", position, Offsets({AT: 3}), 4,
        Sample({"flights": 9}, [fault], [NASTY]), warnings=[NASTY],
    )  # fmt: skip
    yield Snapshot(NASTY, 4, Offsets({AT: 3}), None, {}, {NASTY: NASTY}, {NASTY: [NASTY]})
    yield Rewind(position, Target(3, None), Offsets({AT: 3}), 17)
    yield Delivered(3, 30, position, 2)
    yield Verification([audit(count=2)], [NASTY])
    yield audit()
    yield Preview("p", [PreviewedTable(NASTY, ["a", NASTY], [["1\x1b[2J\n", NASTY]])], Sample({"flights": 9}, [fault]))


class Tags(HTMLParser):
    """Checks that elements are closed in order, and keeps the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        assert {name for name, _ in attrs} <= {"style", "class"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("result", list(results()), ids=lambda result: type(result).__name__)
def test_a_notebook_gets_the_text_of_a_result_and_never_its_markup(result: Shown) -> None:
    tags = Tags()
    tags.feed(result._repr_html_())
    assert tags.open == []
    assert tags.names <= {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "br"}
    nasty = [word for word in NASTY.split() if word in repr(result)]
    assert all(word in tags.text for word in nasty)


def test_in_a_notebook_the_text_of_a_result_is_its_text_and_is_not_shown_beside_the_html(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(status("flights")).startswith("pipeline     flights")
    assert capsys.readouterr().out == ""


def test_every_answer_of_a_pipeline_shows_itself() -> None:
    def answer(name: str) -> type:
        hints: dict[str, type] = typing.get_type_hints(
            getattr(Pipeline, name), {**vars(inspect.getmodule(Pipeline)), "Verification": Verification}
        )
        return hints["return"]

    names = (
        "run", "check", "status", "history", "verify", "maintain", "snapshot", "dead_letters", "retry_dead_letters",
        "rewind", "replay", "preview",
    )  # fmt: skip
    for name in names:
        assert issubclass(answer(name), Shown), name
        assert answer(name).__repr__ is Shown.__repr__, name


def test_text_and_html_show_the_same_cells() -> None:
    class Some(Shown):
        def page(self) -> Page:
            grid = Grid(("name", "lag"), [("<a>", Bar("1,000", 0.5)), ("b", Bar("0", 0))], frozenset({"lag"}))
            return Page([Line("epoch", "[red]7[/]"), Line("gone", "3 records", "warning"), grid], labels=8)

    assert repr(Some()).splitlines() == [
        "epoch   [red]7[/]",
        "gone    3 records",
        "name    lag",
        "<a>   1,000",
        "b         0",
    ]
    html = Some()._repr_html_()
    assert "&lt;a&gt;" in html
    assert "width:50%" in html
    assert "width:0%" in html


def test_the_longest_lag_has_a_whole_bar() -> None:
    lagging = status("p", behind=120)
    assert lagging._repr_html_().count("width:100%") == 3
    assert status("p")._repr_html_().count("width:0%") == 3


def test_a_status_is_told_as_the_command_prints_it() -> None:
    lines = repr(status("flights", behind=120)).splitlines()
    assert lines[0] == "pipeline     flights"
    assert lines[4] == "epoch        9"
    assert lines[-4].split() == ["topic", "partition", "next", "end", "lag", "seconds"]
    assert lines[-3].split() == ["flights", "0", "900", "1,020", "120", "-"]


@pytest.mark.parametrize(
    ("audits", "exit_code", "last"),
    [
        ([audit(), audit()], 0, "exact: 10 expected, 0 found"),
        ([audit("doubtful", 1), audit("lost", 2)], 1, "NOT EXACT: lost 2; 10 expected, 0 found"),
        ([audit(), audit("doubtful", 1)], 4, "UNKNOWN: 1 row is missing"),
    ],
)
def test_the_verdict_of_several_tables_is_the_worst(audits: list[Audit], exit_code: int, last: str) -> None:
    found = Verification(audits)
    assert found.verdict.exit_code == exit_code
    assert found.ok is (exit_code == 0)
    assert repr(found).splitlines()[-1].startswith(last)
    assert "font-weight:bold" in found._repr_html_()


@pytest.mark.parametrize(
    ("audits", "exit_code"), [([audit()], 2), ([audit("lost", 2), audit()], 1), ([audit("doubtful", 1)], 2)]
)
def test_a_table_that_cannot_be_audited_hides_nothing_of_the_others(audits: list[Audit], exit_code: int) -> None:
    found = Verification(audits, (), {"lake/gone": NotADeltaTable("There is no table.")})
    assert found.exit_code == exit_code
    assert not found.ok
    assert "lake/gone couldn't be audited: There is no table." in repr(found)
    assert found.to_dict()["failed"] == {"lake/gone": "There is no table."}
    assert len(found.to_dict()["tables"]) == len(audits)


def test_where_no_table_was_compared_nobody_knows() -> None:
    assert Verification([]).verdict.exit_code == 4
    assert not Verification([]).ok


def test_nothing_is_said_of_a_rewind_that_was_only_planned() -> None:
    plan = Rewind(Position(9, Offsets({AT: 20}), version=9), Target(3, None), Offsets({AT: 3}), 17)
    assert repr(plan).splitlines()[-1] == "again     17 offsets are read once more by the next run"


def printed(grid: Grid, width: int) -> list[str]:
    text = io.StringIO()
    print_page(Page([grid]), Console(file=text, width=width, color_system=None))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_long_values_are_cut_to_the_width_and_short_ones_stay() -> None:
    rows = [("1", "x" * 200, "NULL", "y" * 90), ("2", "short", "0x0001", "z")]
    lines = printed(Grid(("id", "note", "bytes", "more"), rows, cut=True), 60)
    assert len(lines) == 3
    assert lines[1].split() == ["1", "x" * 22 + "…", "NULL", "y" * 22 + "…"]
    assert lines[2].split() == ["2", "short", "0x0001", "z"]
    assert max(map(len, lines)) <= 60


def test_a_table_with_too_many_columns_is_shown_row_by_row() -> None:
    names = [f"column_{number}" for number in range(20)]
    lines = printed(Grid(names, [[f"value {number}" for number in range(20)], ["y" * 99] * 20], cut=True), 60)
    assert lines[0] == "row 1"
    assert lines[1].split() == ["column_0", "value", "0"]
    assert lines[21] == "row 2"
    assert lines[22].endswith("y…")
    assert max(map(len, lines)) <= 60


def test_a_value_can_neither_begin_a_line_nor_steer_the_terminal() -> None:
    shown = Preview("p", [PreviewedTable("lake/t", ["a", "b"], [["1\x1b[2J\n2", None]])], Sample({"flights": 1}))
    assert repr(shown).splitlines()[-1].split() == ["1\\x1b[2J\\n2", "NULL"]


def test_a_pipeline_shows_where_its_records_come_from_and_go_to() -> None:
    options = {
        "name": "orders",
        "source": {"topics": ["orders"], "kafka": {"bootstrap.servers": "kafka:9092"}},
        "value": {"format": "json", "schema": "id INT"},
        "sinks": [{"type": "delta_append", "path": "lake/<orders>"}],
    }
    pipeline = Pipeline.from_options(options)
    assert repr(pipeline) == "<Pipeline orders: orders -> lake/<orders>>"
    html = pipeline._repr_html_()
    for text in ("orders from kafka:9092", "decoded as json", "delta_append lake/&lt;orders&gt;"):
        assert text in html
