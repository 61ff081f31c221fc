"""Which tests run when: `make test` leaves the campaigns out, `make campaigns` runs them and says what each showed."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from rich.console import Console
from rich.table import Table

CAMPAIGNS = {
    "kills": "runs killed at random moments over 200,000 records leave both tables exact",
    "overlap": "of twenty scheduled runs that overlap and are killed at random, every record counts once",
    "matrix": "every delivery into every sink, killed at every crash point, keeps its promise and no more",
    "chaos": "killed and paused runs, a dead broker, cut connections and second writers leave every table exact",
    "fleet": "a folder of pipelines, killed at random, with broken files and a dead broker, leaves every table exact",
    "steps": "four sinks, killed at every step of two-phase commit and of its recovery, are exact and at one epoch",
    "cluster": "on a standalone cluster a killed driver and a killed worker leave four sinks exact",
    "watched": "a disturbed run's metrics name every fault, and no other",
    "demo": "the demo counts what the README shows",
    "pages": "every command and every example of the documentation works as it stands",
    "notebooks": "every notebook runs and prints what is kept in it",
    "flights": "delays, aircraft and histories of 336,776 flights are what pandas says",
    "draws": "tables of every kind equal a model in plain Python for random records, epochs and crashes",
    "breadth": "every kind of sink in every variant of its options behaves as the one in `make test`",
}
"""Each is a pytest marker of this name, and what its tests show."""

LAW = "law"
"""Marks a property test on Spark: one example in `make test`, several in the campaign ``draws``."""
_EXAMPLES = "LAKELOCK_TEST_EXAMPLES"

SLOW_SECONDS = 20.0
"""A test of `make test` that takes longer is named at the end. Two minutes of tests are as many as forty fast ones."""

_SHARED = "seconds of session fixtures"
"""The property of a report with the time that went into what all tests of a process share, as its Spark session."""


def draws() -> hypothesis.settings:
    """Of a law: a few rich examples, one unless the environment says more. A MERGE takes too long to shrink them."""
    return hypothesis.settings(
        max_examples=int(os.environ.get(_EXAMPLES, "1")), deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--campaigns", metavar="NAMES", help="run these campaigns and nothing else: names, or all")


def configure(config: pytest.Config) -> None:
    for name, shows in CAMPAIGNS.items():
        config.addinivalue_line("markers", f"{name}: campaign: {shows}")
    config.addinivalue_line("markers", f"{LAW}: one random example in `make test`, several in the campaign draws")
    campaigns = chosen(config.getoption("--campaigns"))
    if "draws" in campaigns:
        os.environ.setdefault(_EXAMPLES, "3")
    config.pluginmanager.register(Suite(campaigns))


def chosen(option: str | None) -> Sequence[str]:
    """The campaigns to run: none without the option. Raises UsageError where it names one that isn't there."""
    names = (option or "").replace(",", " ").split()
    if unknown := set(names) - {*CAMPAIGNS, "all"}:
        raise pytest.UsageError(
            f"--campaigns: there is no {', '.join(sorted(unknown))}; take all, or of {', '.join(CAMPAIGNS)}"
        )
    return list(CAMPAIGNS) if "all" in names else names


@dataclass
class Ran:
    """What became of the tests of one campaign."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0

    @property
    def verdict(self) -> str:
        if self.failed:
            return "NOT SHOWN"
        return "shown" if self.passed else "not run"


@dataclass(eq=False)
class Suite:
    """A pytest plugin. ``campaigns``: the chosen ones; empty for `make test`."""

    campaigns: Sequence[str]
    shared_seconds: float = 0
    ran: dict[str, Ran] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        def wanted(item: pytest.Item) -> bool:
            its = {name for name in CAMPAIGNS if item.get_closest_marker(name)}
            drawn = {"draws"} if item.get_closest_marker(LAW) else set()
            return bool((its | drawn) & {*self.campaigns}) if self.campaigns else not its

        config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
        items[:] = [item for item in items if wanted(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        start = time.monotonic()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "session":
                self.shared_seconds += time.monotonic() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.user_properties.append((_SHARED, self.shared_seconds))
        self.shared_seconds = 0
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shared = sum(float(str(value)) for name, value in report.user_properties if name == _SHARED)
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + max(0, report.duration - shared)
        drawn = {"draws"} if LAW in report.keywords else set()
        for name in (report.keywords.keys() | drawn) & {*self.campaigns}:
            ran = self.ran.setdefault(name, Ran())
            ran.seconds += report.duration
            ran.failed += report.failed
            ran.skipped += report.skipped
            ran.passed += report.passed and report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.campaigns:
            terminalreporter.section("campaigns")
            terminalreporter.write(self.table())
        elif slow := self.slow():
            terminalreporter.section(f"over {SLOW_SECONDS:.0f} seconds: these belong into a campaign")
            for seconds, test in slow:
                terminalreporter.write_line(f"{seconds:6.1f} s  {test}")

    def slow(self) -> list[tuple[float, str]]:
        found = ((seconds, test) for test, seconds in self.seconds.items() if seconds > SLOW_SECONDS)
        return sorted(found, reverse=True)

    def table(self) -> str:
        table = Table("campaign", "shows that", "verdict", "passed", "failed", "skipped", "minutes")
        for name in self.campaigns:
            ran = self.ran.get(name, Ran())
            counts = map(str, (ran.passed, ran.failed, ran.skipped))
            table.add_row(name, CAMPAIGNS[name], ran.verdict, *counts, f"{ran.seconds / 60:.1f}")
        console = Console(width=150)
        with console.capture() as shown:
            console.print(table)
        return shown.get()
