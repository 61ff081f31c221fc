"""What README and docs say of the project is there: tests, files, headings, folders; and every page can be found."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaign_marks import campaigns_of
from pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, ROOT / "tests" / "README.md", ROOT / "tests" / "benchmarks" / "README.md"]

CAMPAIGNS_OF: dict[str, dict[Path, set[str]]] = defaultdict(dict)
"""By name and file: the campaigns that have the whole test. None: `make test` runs it."""
for _file in (ROOT / "tests").rglob("*.py"):
    for _name, _campaigns in campaigns_of(_file.read_text(encoding="utf-8")).items():
        CAMPAIGNS_OF[_name][_file] = _campaigns


def promises(page: str) -> Iterator[str]:
    """The rows of the tables whose last column is the test that shows the row."""
    shown = False
    for line in page.splitlines():
        if not line.startswith("|"):
            shown = False
        elif re.search(r"\| (test|shown by) \|$", line):
            shown = True
        elif shown and not line.startswith("| ---"):
            yield line


PROMISES = [
    pytest.param(row, id=f"{name}-{number}")
    for name, page in (("README", README), ("guarantees", GUARANTEES))
    for number, row in enumerate(promises(page), start=1)
]


def test_there_are_promises() -> None:
    assert len(list(promises(README))) == 8
    assert len(PROMISES) > 80
    said = [row.split(" | ")[0] for row in promises(GUARANTEES)]
    assert [row for row in sorted(set(said)) if row.endswith(".") and said.count(row) > 1] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", README + GUARANTEES))))
def test_every_promise_names_a_test_that_exists(name: str) -> None:
    assert name in CAMPAIGNS_OF


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_shown_by_make_test(promise: str) -> None:
    names = [name for name, _, campaigns in named(promise) if not campaigns]
    whole_files = re.findall(r"\]\([./]*(tests/[\w/]+\.py)\)(?!:)", promise)
    assert names or whole_files


@pytest.mark.parametrize("promise", PROMISES)
def test_what_only_a_campaign_shows_stands_behind_its_name(promise: str) -> None:
    for name, said, campaigns in named(promise):
        assert campaigns <= said, name
        assert campaigns or not said, name


def named(promise: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each test of a row, the campaigns that the row names before it, and those that have the whole test."""
    said: set[str] = set()
    file = ROOT
    for campaigns, link, name in re.findall(r"(campaigns? [`\w ]+):|\]\([./]*(tests/[^)]+)\)|`(test_\w+)`", promise):
        if campaigns:
            said = {*re.findall(r"`(\w+)`", campaigns)}
        elif link:
            file = ROOT / link
        else:
            where = CAMPAIGNS_OF[name]
            yield name, said, where[file] if file in where else set().union(*where.values())


def test_marks_are_seen_in_every_form_that_pytest_takes() -> None:
    source = """
slow = pytest.mark.breadth
others = pytest.mark.law
CASES = [pytest.param(1, marks=slow), pytest.param(2, marks=[others, slow])]
SOME = [pytest.param(n, marks=[] if n else slow) for n in range(2)]
@pytest.mark.kills
def test_attribute(): ...
@slow
@others
def test_name(): ...
@pytest.mark.parametrize("n", CASES)
def test_all_cases(): ...
@pytest.mark.parametrize("n", [0, *CASES])
def test_some_cases(): ...
@pytest.mark.parametrize("n", SOME)
def test_cases_that_differ(): ...
@others
@pytest.mark.spark4("breadth")
def test_none(): ...
"""
    assert campaigns_of(source) == {
        "test_attribute": {"kills"}, "test_name": {"breadth"}, "test_all_cases": {"breadth"},
        "test_some_cases": set(), "test_cases_that_differ": set(), "test_none": set(),
    }  # fmt: skip
    for marks in ("slow", "[others, pytest.mark.breadth]"):
        found = campaigns_of(f"slow = pytest.mark.breadth\npytestmark = {marks}\nclass A:\n  def test_a(self): ...")
        assert found == {"test_a": {"breadth"}}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_test_is_in_the_file_that_is_linked_before_it(promise: str) -> None:
    for file, names in re.findall(r"\]\([./]*(tests/[\w/]+\.py)\): ((?:`test_\w+`(?:, )?)+)", promise):
        for name in re.findall(r"`(test_\w+)`", names):
            assert ROOT / file in CAMPAIGNS_OF[name], name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_link_of_a_page_is_dead(page: Path) -> None:
    assert [link for link in links(page) if not leads_somewhere(page, link)] == []


def prose(page: Path) -> str:
    """Without what stands between lines of backquotes."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    """To files and headings of the repository, pictures included."""
    text = re.sub(r"`[^`\n]*`", "code", prose(page))
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [link for link in found if not re.match(r"\w+:", link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not heading or heading in headings(target))


def headings(page: Path) -> set[str]:
    """The names that GitHub gives to them: two that are the same are numbered."""
    names: list[str] = []
    seen: Counter[str] = Counter()
    for title in re.findall(r"^#+ (.+?)\s*$", prose(page), flags=re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return set(names)


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# `a`: b, c\n## D\n## D\n[1](#a-b-c) [2](#d-1) [3](#e) `[4](x)`\n```\n[5](y)\n```\n![6](z.png)\n[7](page.md#d)"
    )
    assert links(page) == ["#a-b-c", "#d-1", "#e", "z.png", "page.md#d"]
    assert [link for link in links(page) if not leads_somewhere(page, link)] == ["#e", "z.png"]


@pytest.mark.parametrize("index", ["README.md", "docs/README.md"])
def test_an_index_names_every_page(index: str) -> None:
    page = ROOT / index
    linked = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    # With an underscore first: a draft that another page will take in.
    assert {doc for doc in DOCS if not doc.name.startswith("_")} - linked - {page} == set()


def test_the_readme_names_every_notebook() -> None:
    assert {f"notebooks/{file.name}" for file in (ROOT / "notebooks").glob("*.ipynb")} <= set(links(ROOT / "README.md"))


def test_the_wheel_that_pages_name_is_the_one_that_is_built() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, flags=re.M)
    named = {name for page in PAGES for name in re.findall(r"lakelock-[\w.]+-py3", page.read_text(encoding="utf-8"))}
    assert named == {f"lakelock-{version}-py3"}


def test_the_map_names_every_folder() -> None:
    map_ = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in ("sinks", "connector"):
        for folder in (ROOT / package).iterdir():
            if folder.is_dir() and not folder.name.startswith("__"):
                assert f"| `{folder.name}/` |" in map_, folder
