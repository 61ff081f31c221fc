"""The page, without a server and without Spark."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import boards
import hostile
import pytest
from boards import NOW, PAGES, board
from flask.testing import FlaskClient
from typer.testing import CliRunner

from connector.cli.app import app
from connector.display.style import style
from connector.fleet.files import Fault
from connector.lab.show.page import page as page_of_the_lab
from connector.operations.letter_groups import LetterGroup
from connector.operations.lineage import Goal, Lineage
from connector.operations.newest_rows import SomeRows
from connector.ui.board import Board, kept
from connector.ui.page import address, page
from connector.watch.poll import Look
from connector.watch.reports import Report

FLIGHTS, BOTH, BROKEN, NEW = PAGES
CONNECTOR = Path(__file__).parents[4] / "connector"


def client(of: Board | None = None, host: str = "127.0.0.1") -> FlaskClient:
    return page(of or board(), host=host, now=lambda: NOW + timedelta(seconds=30)).test_client()


def text(path: str, of: Board | None = None) -> str:
    answer = client(of).get(path)
    assert answer.status_code == 200
    return answer.text


def words(html: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", html).split())


def test_all_pipelines_stand_there_in_words() -> None:
    said = words(text("/"))
    assert "4 pipelines, 1 with something wrong" in said
    assert "flights behind Last run failed: BadRecord 9 360" in said
    assert "both epoch 10 in doubt" in said
    assert "can&#39;t be read" in said
    assert "new.yaml not seen yet" in said


def test_a_page_keeps_its_address_when_a_topic_appears_or_goes() -> None:
    of = board()
    before = dict(of.seen.looks)
    links = re.findall('href="(/p/[^"]*)"', text("/", of))
    assert links == PAGES
    of.expects(["shop.yaml#early", *list(before)[1:]])
    assert links[1:] == re.findall('href="(/p/[^"]*)"', text("/", of))[1:]
    assert "12 rows prepared, decided, to be committed" in words(text(BOTH, of))
    assert client(of).get(FLIGHTS).status_code == 404, "never another one under its name"


def test_a_pipeline_has_partitions_epochs_letters_and_sinks() -> None:
    said = words(text(FLIGHTS))
    assert "flights 2 902 1,022 120" in said
    assert "lost: flights-0 [300, 320)" in said
    assert "version 9 run 0f3c2b1a-0000" in said
    assert "schema 41" in said
    assert "Seen 30 s ago" in said
    assert text(FLIGHTS).count('<rect class="u') + text(FLIGHTS).count('<rect class="gone') == 9
    assert "12 rows prepared, decided, to be committed" in words(text(BOTH))


def test_the_last_failure_has_its_hint_and_who_is_at_work_is_judged() -> None:
    said = words(text(FLIGHTS))
    assert "The last run failed 9 min ago (2026-11-01 11:51:30 UTC): BadRecord: " in said
    assert "What to do: Mend &lt;script&gt;" in said
    assert "Is a run at work? No, by its report: the last run ended 9 min ago." in said
    said = words(text(BOTH))
    assert "Run run-b is at work on epoch 10, or was killed." in said
    assert "lakelock ui --reports FOLDER" in said


def test_lag_throughput_and_phases_are_drawn_with_axes_and_told_in_words() -> None:
    html = text(FLIGHTS)
    assert [name for name in ("lag", "throughput", "pauses", "phases") if f'id="chart-{name}"' in html] == [
        "lag", "throughput", "pauses",
    ]  # fmt: skip
    assert "Offsets behind from 11:57 to 12:00 UTC: between 360 and 7,200, now 360." in html
    assert html.count("<polyline") == 2, "a gap of one look leaves a single point on its left, which is no line"
    for axis in ('<text class="end" x="41"', '<line class="grid"', "UTC</text>"):
        assert axis in html
    assert 'id="chart-phases"' in text(BOTH)
    assert words(text(BOTH)).count("prepare 8.0 s") == 1


def test_the_way_from_topic_to_table_and_the_file_are_shown() -> None:
    said = words(text(FLIGHTS))
    assert "Kafka at b:9092" in said
    assert "(delta_append)" in said
    assert "<summary>flights.yaml, without comments and secrets</summary>" in text(FLIGHTS)
    assert "name: flights transform: &lt;script&gt;" in said
    assert "Pipeline file The file can't be read." in words(text(BROKEN))


def test_a_file_that_can_not_be_read_says_nothing_of_epochs_and_dead_letters() -> None:
    said = words(text(BROKEN))
    assert "Epochs Not seen. Dead letters Not seen." in said
    assert "Epochs No epoch yet. Dead letters The pipeline sets nothing aside" in words(text(FLIGHTS, without_epochs()))


def without_epochs() -> Board:
    of = Board([Path("flights.yaml")])
    of.saw(Look("flights.yaml", "flights", NOW, boards.status("flights")))
    return of


def test_rows_are_shown_only_where_they_were_looked_at() -> None:
    assert "rows of the last epoch k &lt;script&gt;" in words(text(FLIGHTS))
    assert "lake/dead: no dead letter is open." in words(text(FLIGHTS))
    assert "Some rows" not in text(BOTH)


@pytest.mark.parametrize("path", ["/", FLIGHTS, BOTH, BROKEN, NEW])
def test_names_with_html_in_them_are_text(path: str) -> None:
    html = text(path)
    assert "<script>document" not in html
    assert [attributes for _, attributes in skeleton(html) if "onmouseover" in attributes] == []
    assert "&lt;script&gt;" in html or path == NEW


def everywhere(text: str) -> Board:
    """A pipeline with this text wherever somebody else may have written it."""
    of = Board([Path("flights.yaml")])
    letters = [LetterGroup(text, text, text, 1, 2, 3, text, 0, 1, NOW)]
    past = [
        boards.past(number, owner=text, commits={text: text}, notes=(text,), phases={text: 1.0}) for number in (2, 1)
    ]
    report = Report(text, "failed", NOW, 1, text, text, text, text)
    way, rows = (
        Lineage(text, text, [text], [text], [Goal(text, text)], text),
        [SomeRows(text, [text], [[text]], True, True)],
    )
    stands, fault = replace(boards.status("p"), sinks=[text]), [Fault(text, text)]
    for _ in range(2):
        of.saw(Look("flights.yaml", text, NOW, stands, past, letters, (), way, text, report, rows))
    of.saw(Look("flights.yaml", text, NOW, None, [], None, fault, way, text, report))
    return of


def skeleton(html: str) -> list[tuple[str, list[str]]]:
    """The elements of a page, each with the names of its attributes."""
    found: list[tuple[str, list[str]]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, [name for name, _ in attrs]))

    Parser().feed(html)
    return found


@pytest.mark.parametrize(
    "opens", ["", "\"'>", "<b onclick=y>", "</svg></pre></title>", "<!--", "<script>", "]]>", "&lt;"]
)
def test_no_text_changes_what_a_page_is_made_of(opens: str) -> None:
    plain, nasty = everywhere("x"), everywhere("x" + opens.join(hostile.PIECES))
    for path in ("/", FLIGHTS):
        assert skeleton(text(path, nasty)) == skeleton(text(path, plain))


def test_a_page_needs_nothing_from_elsewhere() -> None:
    for path in ("/", FLIGHTS):
        answer = client().get(path)
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert re.findall(r'(?:src|href)="(?!/|#)', answer.text) == []
        assert " style=" not in answer.text
        for asset in re.findall(r'(?:src|href)="(/(?:static|shared)/[^"]+)"', answer.text):
            assert client().get(asset).status_code == 200


def test_this_page_and_that_of_the_lab_have_the_only_style_sheet() -> None:
    assert '<link rel="stylesheet" href="/shared/style.css">' in text("/")
    assert client().get("/shared/style.css").text == style()
    assert f"<style>{style()}</style>" in page_of_the_lab([], "The lab", {})
    rule = re.compile(r"\{[^{}\n]*(?:margin|padding|font-size):[^{}\n]*\}")
    sources = [file for file in CONNECTOR.rglob("*") if file.suffix in (".py", ".html", ".css", ".js")]
    assert [file.name for file in sources if rule.search(file.read_text(encoding="utf-8"))] == ["style.css"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_page_is_read_only(method: str) -> None:
    for path in ("/", FLIGHTS, "/shared/style.css", "/nowhere"):
        answer = client().open(path, method=method)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_what_is_not_there_is_not_found() -> None:
    assert {client().get(path).status_code for path in ("/p/0", "/p/1", "/p/x", "/static/../page.py")} == {404}


def test_a_name_that_was_pointed_at_this_machine_is_refused() -> None:
    for host in ("evil.example", "evil.example:8642", "127.0.0.1.evil.example", "[", ""):
        assert client().get("/", headers={"Host": host}).status_code in (400, 403), host
    for host in ("127.0.0.1:8642", "localhost:8642", "[::1]:8642"):
        assert client().get("/", headers={"Host": host}).status_code == 200, host
    assert client(host="0.0.0.0").get("/", headers={"Host": "lake.example"}).status_code == 200


def test_a_failed_round_is_shown_above_what_was_seen_before() -> None:
    of = board()
    of.failed(RuntimeError("no <Spark>"))
    for path in ("/", FLIGHTS):
        said = text(path, of)
        assert "no &lt;Spark&gt;" in said
        assert "flights" in said


def test_what_can_not_be_seen_this_time_stays_with_its_age() -> None:
    before = board().seen.looks["flights.yaml"]
    assert before is not None
    failed = Look("flights.yaml", "flights", NOW + timedelta(minutes=1), faults=[Fault("no broker answered")])
    after = kept(before, failed)
    assert (after.status, after.at, after.faults) == (before.status, NOW, failed.faults)
    mended = Look("flights.yaml", "flights", NOW + timedelta(minutes=2), before.status)
    assert kept(after, mended) is mended
    assert (after.lineage, after.report, after.rows) == (before.lineage, before.report, before.rows)
    of = Board([Path("flights.yaml")])
    of.saw(after)
    said = words(text(FLIGHTS, of))
    assert "no broker answered" in said
    assert "seen 30 s ago" in said


def test_what_was_seen_long_ago_is_never_shown_as_how_it_stands() -> None:
    said = words(page(board(), now=lambda: NOW + timedelta(hours=3)).test_client().get(FLIGHTS).text)
    assert "not seen for 3 h" in said
    assert "flights behind" not in said


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("connector.ui.server", "connector.ui.page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "flask", None)
    result = CliRunner().invoke(app, ["ui", "pipeline.yaml"])
    assert result.exit_code == 2
    assert "needs flask" in result.output
    assert "pip install 'lakelock[ui]'" in result.output


def test_it_says_that_nothing_was_seen_yet() -> None:
    assert "not seen yet" in words(text(f"/p/{address('a.yaml')}", Board([Path("a.yaml")])))
    assert "1 pipeline. The first look takes" in words(text("/", Board([Path("a.yaml")])))
