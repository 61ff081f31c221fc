"""What runs when: campaigns are chosen by name, and told about in a table; slow tests are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from suites import CAMPAIGNS, LAW, SLOW_SECONDS, Suite, chosen

TESTS = Path(__file__).parents[1]


def report(
    name: str,
    seconds: float,
    *marks: str,
    outcome: Literal["passed", "failed", "skipped"] = "passed",
    when: Any = "call",
) -> pytest.TestReport:
    return pytest.TestReport(name, ("file.py", 1, name), dict.fromkeys(marks, 1), outcome, None, when, duration=seconds)


def test_campaigns_are_chosen_by_name_or_all() -> None:
    assert chosen(None) == []
    assert chosen("kills, chaos") == chosen("kills chaos") == ["kills", "chaos"]
    assert chosen("all") == list(CAMPAIGNS)
    with pytest.raises(pytest.UsageError, match="there is no killls; take all, or of kills, "):
        chosen("killls")


def test_every_campaign_has_tests_and_every_mark_is_known() -> None:
    used = {
        mark
        for file in TESTS.rglob("test_*.py")
        for mark in re.findall(r"pytest\.mark\.(\w+)", file.read_text(encoding="utf-8"))
    }
    assert used >= CAMPAIGNS.keys() | {LAW}


def test_campaigns_are_given_with_an_equals_sign() -> None:
    """A folder is named as a campaign: after a space pytest takes it for the tests to run, and knows no option."""
    assert any((TESTS.parent / name).is_dir() for name in CAMPAIGNS)
    for file in (TESTS.parent / "Makefile", TESTS / "README.md"):
        assert re.findall(r"--campaigns(.)", file.read_text(encoding="utf-8")) == ["="], file


def test_the_table_says_what_ran_what_it_showed_and_how_long_it_took() -> None:
    suite = Suite(["kills", "chaos", "draws", "demo"])
    for each in (
        report("a", 61, "kills"), report("a", 2, "kills", when="teardown"), report("b", 5, "kills", outcome="skipped"),
        report("c", 7, "chaos", outcome="failed"), report("d", 30, LAW),
    ):  # fmt: skip
        suite.pytest_runtest_logreport(each)
    rows = [re.split(r"\s*[│┃]\s*", line) for line in suite.table().splitlines() if "│" in line or "┃" in line]
    assert {row[1]: row[3:8] for row in rows[1:] if row[1]} == {
        "kills": ["shown", "1", "0", "1", "1.1"],
        "chaos": ["NOT SHOWN", "0", "1", "0", "0.1"],
        "draws": ["shown", "1", "0", "0", "0.5"],
        "demo": ["not run", "0", "0", "0", "0.0"],
    }


def test_slow_tests_are_named_without_what_all_tests_share() -> None:
    suite = Suite([])
    warm = report("warm", SLOW_SECONDS + 5, when="setup")
    warm.user_properties = [("seconds of session fixtures", SLOW_SECONDS)]
    for each in (warm, report("warm", 1), report("slow", SLOW_SECONDS / 2 + 1, when="setup"), report("slow", 11)):
        suite.pytest_runtest_logreport(each)
    assert [test for _, test in suite.slow()] == ["slow"]
