from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner
from unit.connector.lab.samples import every, simulate

from connector.cli.app import app
from connector.lab.check.checker import Report, Verdict, judge, must_show
from connector.lab.check.fates import LEGEND, fates
from connector.lab.check.history import Happened, History, Row, Sent, Version
from connector.lab.show.explanations import POINTS, what_follows
from connector.lab.show.page import page
from connector.lab.show.picture import picture
from sinks.offsets import OffsetRange, TopicPartition

VOID = {"meta", "br", "col", "link", "img", "input", "hr"}


class Parsed(HTMLParser):
    """Every tag is closed, every id is there once, every link leads somewhere on the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def judged(*histories: History) -> list[tuple[History, Report]]:
    return [(cell, judge(cell, expects=must_show(cell.delivery, cell.sink, cell.crash_point))) for cell in histories]


def test_every_run_is_in_the_matrix_and_has_its_picture() -> None:
    reports = judged(*every())
    parsed = Parsed(page(reports, "The lab", {"records": "40"}))
    runs = [f"run-{number}" for number in range(1, len(reports) + 1)]
    assert [name for name in parsed.ids if name.startswith("run-")] == runs
    assert {f"#{run}" for run in runs} <= set(parsed.links)
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)
    assert len([1 for name, value in parsed.attributes if (name, value) == ("role", "img")]) == 3 * len(reports), (
        "two partitions and the lag"
    )


def test_the_page_needs_nothing_else() -> None:
    html = page(judged(*every()), "The lab", {})
    assert not re.search(r"(?:src|href)=\"(?!#)|url\(|@import|https?://|fetch\(", html)


def test_verdicts_are_words_and_shapes_not_colour_alone() -> None:
    exact, lossy = simulate("transactional", "append", "mid_write"), simulate("auto_commit", "append", "mid_write")
    broken = replace(lossy, delivery="transactional", crash_point="after_write")
    half = replace(exact, drained=False, crash_point="after_poll")
    html = page(judged(exact, lossy, broken, half), "The lab", {})
    cells = re.findall(
        r'<a class="cell (\w+)".*?<path d="(.*?)".*?<b>(\w+)</b></span> <span class="small">(.*?)<', html
    )
    # rows in the order of the runs, columns in the order of the crash points
    assert [(look, word, counts) for look, _, word, counts in cells] == [
        ("unknown", "unknown", ""),
        ("good", "held", "exact"),
        ("bad", "broken", "10 lost"),
        ("warning", "held", "10 lost"),
    ]
    assert len({shape for _, shape, word, _ in cells}) == 3


def test_everything_from_outside_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\"'"
    cell = History(
        evil,
        "append",
        evil,
        (Sent(evil, 0, 0, evil, 0), Sent(evil, 0, 1, evil, 0)),
        (Happened(0, 0.0, "crashed", (OffsetRange(evil, 0, 0, 1),), evil), Happened(1, 0.1, evil, note=evil)),
        (Version(0, (Row(evil, 0, 1, evil + "!", 5),)),),
        error=evil,
    )
    html = page(judged(cell), evil, {evil: evil})
    assert html.count("<script>") == 1
    assert "alert('" not in html
    assert "alert(&#x27;x&#x27;)" in Parsed(html).rawdata or "alert('x')" in Parsed(html).text


def test_a_page_without_runs_is_a_page() -> None:
    assert "The lab" in Parsed(page([], "The lab", {})).text


@pytest.mark.parametrize(
    "cell",
    [
        History("auto_commit", "append", "mid_write", (), (), ()),
        History("auto_commit", "append", "mid_write", (Sent("t", 0, 5, "k", 1),), (), (), error="no broker"),
        replace(simulate("transactional", "upsert", "mid_write"), events=()),
        replace(simulate("manual_commit", "upsert", "mid_write"), versions=(), drained=False),
    ],
)
def test_half_a_history_has_a_page_too(cell: History) -> None:
    reports = judged(cell)
    assert reports[0][1].verdict is not Verdict.BROKEN
    Parsed(page(reports, "The lab", {}))


def test_a_checker_that_failed_is_shown_with_its_reason() -> None:
    cell = simulate("transactional", "append", "mid_write")
    twice = replace(cell, sent=cell.sent + cell.sent)
    assert "The checker failed: ValueError" in Parsed(page(judged(twice), "The lab", {})).text


def test_without_the_templates_the_matrix_says_what_to_install_before_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = CliRunner().invoke(app, ["lab", "matrix", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "writes its page with jinja2" in result.output
    assert 'pip install "lakelock[demo]"' in result.output


def test_the_lag_of_a_run_is_drawn_with_its_crash() -> None:
    html = page(judged(simulate("transactional", "append", "after_write")), "The lab", {})
    assert "Records that the table lacked: 40 at the start, 0 after" in html
    assert html.count('<text class="rule ') == 1
    assert 'id="chart-lag-run-1"' in html
    nothing = History("auto_commit", "append", "mid_write", (Sent("t", 0, 5, "k", 1),), (), ())
    assert 'id="chart-' not in page(judged(nothing), "The lab", {})


def test_facts_are_shown() -> None:
    assert "Spark 4.1.1" in Parsed(page([], "The lab", {"Spark": "4.1.1"})).text


@pytest.mark.parametrize("records", [2, 40, 200, 1000, 10_000])
def test_a_picture_stays_in_its_width_however_many_the_records(records: int) -> None:
    ((cell, report),) = judged(simulate("auto_commit", "append", "mid_write", records=records, batch=records // 16 + 1))
    html = picture(cell, report)
    Parsed(html)
    assert len(html) < 100_000
    assert all(int(width) <= 1010 for width in re.findall(r'<svg width="(\d+)"', html))


# what became of the records


def words(cell: History) -> dict[tuple[int, int], str]:
    ((_, report),) = judged(cell)
    return {(at.partition, offset): fate.word for (at, offset), fate in fates(cell, report).items()}


def line(cell: History, partition: int = 0) -> str:
    """Initials of the words, in the order of the offsets."""
    of_partition = sorted((offset, word) for (at, offset), word in words(cell).items() if at == partition)
    return "".join(word[0] for _, word in of_partition)


def test_lost_and_duplicated_records_are_drawn_as_such() -> None:
    assert line(simulate("auto_commit", "append", "mid_write")) == "oooooooooonnnnnooooo"
    assert line(simulate("manual_commit", "append", "after_write")) == "ooooooooooaaaaaooooo"
    assert line(simulate("transactional", "append", "mid_write")) == "o" * 20


def test_an_upsert_tells_what_is_replaced_hidden_and_older_for_a_while() -> None:
    assert line(simulate("transactional", "upsert", "mid_write")) == "woooowwoowwowooooooo"
    lossy = line(simulate("auto_commit", "upsert", "mid_write"))
    assert lossy[10:15] == "hnhnn"
    assert line(simulate("manual_commit", "upsert", "after_write"))[14] == "b"


def test_a_record_of_many_rows_says_how_many() -> None:
    ((cell, report),) = judged(simulate("manual_commit", "append", "in_recovery"))
    fate = fates(cell, report)[TopicPartition("orders", 0), 10]
    assert (fate.word, fate.times) == ("again", 3)
    assert fate.text == "offset 10, key p0-hot: twice or more in the table (3 rows); written 3 times"


def test_what_was_not_read_yet_is_not_called_lost() -> None:
    cell = simulate("transactional", "append", "mid_write")
    half = replace(cell, drained=False, versions=cell.versions[:3])
    assert line(half) == "oooooooooowwwwwwwwww"
    assert set(words(half).values()) == {"once", "waiting"}


def test_every_word_of_the_legend_has_its_own_shape() -> None:
    html = page(judged(simulate("transactional", "append", "mid_write")), "The lab", {})
    icons = re.findall(r'<svg class="icon".*?</svg>', html)
    assert len({re.sub(r' (?:x|y|d)="[^"]*"', "", icon) for icon in icons}) == len(LEGEND)


def test_the_crash_and_the_restart_are_at_the_offsets_that_were_stored() -> None:
    for delivery, stored in {"auto_commit": 15, "manual_commit": 10, "transactional": 10}.items():
        ((cell, report),) = judged(simulate(delivery, "append", "mid_write"))
        text = Parsed(picture(cell, report)).text
        assert text.count(f"kill -9 at {stored}") == 2
        assert text.count(f"starts at {stored}") == 2
    assert "run 0 was writing offsets 10 to 14: no commit" in text


def test_two_crashes_are_two_marks() -> None:
    ((cell, report),) = judged(simulate("manual_commit", "append", "in_recovery"))
    text = Parsed(picture(cell, report)).text
    assert (text.count("kill -9 at 10"), text.count("starts at 10")) == (4, 4)


def test_published_offsets_are_not_what_a_transactional_run_starts_from() -> None:
    cell = simulate("transactional", "append", "after_write")
    lagging = (Happened(0, 0.0, "offsets_committed", (OffsetRange("orders", 0, 0, 5),)),)
    ((cell, report),) = judged(replace(cell, events=lagging + cell.events))
    assert "kill -9 at 15" in Parsed(picture(cell, report)).text


def test_each_cell_of_the_lab_has_its_explanation() -> None:
    for cell in every():
        assert cell.crash_point in POINTS
        assert what_follows(cell.delivery, cell.sink, cell.crash_point).endswith(".")
    assert what_follows("a new one", "append", "after_poll") == ""
