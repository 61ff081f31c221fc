"""The commands ``lakelock lab ...``."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.table import Table

from connector.cli.console import err, out, reported
from connector.lab.check.history import History
from connector.lab.check.verdict import PROMISES, Report
from sinks.errors import ConfigurationError
from sinks.plurals import plural

lab = typer.Typer(
    name="lab",
    help="The crash lab: real brokers, real Spark, real SIGKILL.\n\nShows what each delivery loses or repeats.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


_debug: ContextVar[bool] = ContextVar("debug", default=False)


@lab.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show stack traces.")] = False) -> None:
    """Options of all commands of the lab."""
    _debug.set(debug)


def _reported(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(*arguments: object, **options: object) -> None:
        with reported(_debug.get()):
            command(*arguments, **options)

    return run


Folder = Annotated[Path, typer.Option("--out", help="Folder of tables, histories and results.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


@lab.command()
@_reported
def matrix(
    folder: Folder = Path("lab/matrix"),
    delivery: Annotated[list[str] | None, typer.Option(help="Only this delivery; repeatable.")] = None,
    sink: Annotated[list[str] | None, typer.Option(help="Only this sink: append, upsert, routed; repeatable.")] = None,
    crash: Annotated[
        list[str] | None, typer.Option(help="Only this crash point, for example after_write; repeatable.")
    ] = None,
    json_: Json = False,
) -> None:
    """Crash every delivery in every sink at every step.

    Restarts each, and compares what is lost and repeated with the promise.

    Takes five to fifteen minutes, depending on the machine. Writes matrix.html (one page with a picture of each run),
    matrix.json and the histories.
    """
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigurationError(
            "The lab reads the tables with deltalake, another engine than the one that wrote them. It isn't installed.",
            hint='pip install "lakelock[demo]"',
        )
    if importlib.util.find_spec("jinja2") is None:
        raise ConfigurationError(
            "The lab writes its page with jinja2. It isn't installed.", hint='pip install "lakelock[demo]"'
        )
    from connector.lab.check.history import SINKS
    from connector.lab.show.page import page
    from connector.lab.trials.matrix import CRASH_POINTS, DELIVERIES, cells, run_matrix

    chosen = cells(delivery or (), sink or (), crash or ())
    if not chosen:
        raise ConfigurationError(
            "The matrix has no cell of these deliveries, sinks and crash points.",
            hint=f"Deliveries: {', '.join(DELIVERIES)}. Sinks: {', '.join(SINKS)}. Crash points: "
            f"{', '.join(CRASH_POINTS)}.",
        )
    _fresh(folder)
    started = time.monotonic()
    judged = run_matrix(chosen, folder, err)
    held = all(report.verdict.value == "held" for _, report in judged)
    facts = {"runs": str(len(judged)), "seconds": f"{time.monotonic() - started:.0f}"}
    results = [_cell(history, report) for history, report in judged]
    document = {"held": held, "cells": results}
    (folder / "matrix.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "matrix.html").write_text(page(judged, "Lakelock crash lab", facts), encoding="utf-8")
    if json_:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        out.print(_matrix_table(results))
        out.print(f"{folder / 'matrix.html'}: a picture of each run", soft_wrap=True)
        out.print("[bold]every promise held[/]" if held else "[bold red]NOT as promised[/]")
    if not held:
        raise typer.Exit(1)


@lab.command()
@_reported
def check(
    history: Annotated[list[Path], typer.Argument(help="Histories that `lab matrix` kept.")],
    json_: Json = False,
) -> None:
    """Judge histories again that `lab matrix` kept."""
    from connector.lab.check.checker import judge, must_show

    cells = []
    for file in history:
        try:
            kept = History.load(file)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{str(file)!r} isn't a history of the lab: {error}.") from None
        expects = must_show(kept.delivery, kept.sink, kept.crash_point)
        cells.append(_cell(kept, judge(kept, expects=expects)))
    if json_:
        sys.stdout.write(json.dumps(cells) + "\n")
    else:
        out.print(_matrix_table(cells))
    if any(cell["verdict"] != "held" for cell in cells):
        raise typer.Exit(1)


@lab.command()
@_reported
def scenario(
    name: Annotated[str | None, typer.Argument(help="Name of the scenario; all scenarios if left out.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only list the scenarios.")] = False,
    json_: Json = False,
) -> None:
    """Show and explain the classic ways to lose or repeat records.

    They are scenarios of Kafka's delivery guarantees, with real processes.
    """
    from connector.lab.bench.broker import Broker
    from connector.lab.trials.scenarios import SCENARIOS, print_outcome

    if list_:
        for known in SCENARIOS:
            out.print(known)
        return
    if name is not None and name not in SCENARIOS:
        raise ConfigurationError(
            f"There is no scenario {name!r}.",
            hint=f"There are {', '.join(SCENARIOS)}. Without a name, all of them run.",
        )
    outcomes = []
    with Broker(proxied=True) as broker:
        for chosen in [name] if name else list(SCENARIOS):
            outcome = SCENARIOS[chosen](broker)
            outcomes.append(outcome)
            if not json_:
                print_outcome(outcome, out)
    if json_:
        sys.stdout.write(json.dumps([outcome.to_dict() for outcome in outcomes]) + "\n")
    if not all(outcome.held for outcome in outcomes):
        raise typer.Exit(1)


@lab.command()
@_reported
def chaos(
    seconds: Annotated[float, typer.Option(min=10, help="How many seconds producers and faults last.")] = 300,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the faults; if left out, a seed is drawn and printed.")
    ] = None,
    faults: Annotated[
        int | None, typer.Option(min=1, help="Number of faults; one every five seconds if left out.")
    ] = None,
    records: Annotated[int, typer.Option(min=1000, help="Number of records to produce meanwhile.")] = 300_000,
    together: Annotated[
        bool,
        typer.Option("--together", help="Run one pipeline with four sinks that move together instead; S3 fails too."),
    ] = False,
    folder: Folder = Path("lab/chaos"),
    json_: Json = False,
) -> None:
    """Make random faults for minutes, then count.

    Kills and pauses pipelines, kills the broker, cuts connections, and starts second writers.

    Meanwhile four pipelines read one topic: an append, an upsert, an upsert that keeps values which later records don't
    send, and an idempotent upsert. Afterwards they read it to its end, and the auditor compares the tables with Kafka.
    """
    from connector.lab.trials.chaos import run_chaos

    _fresh(folder)
    chosen = int(time.time()) % 1_000_000 if seed is None else seed
    err.print(f"seed {chosen}")
    result = run_chaos(
        folder,
        err,
        seconds=seconds,
        faults=faults or max(1, int(seconds / 5)),
        records=records,
        seed=chosen,
        together=together,
    )
    if json_:
        sys.stdout.write(json.dumps(result.to_dict()) + "\n")
    else:
        kinds = Counter(fault.kind for fault in result.faults).most_common()
        out.print(
            f"seed {chosen}: {plural(len(result.faults), 'fault')}: " + ", ".join(f"{n} {kind}" for kind, n in kinds)
        )
        out.print(
            f"{plural(result.sent, 'record')} acknowledged, {result.unknown:,} unknown; drained in "
            f"{result.seconds_to_drain:.0f} s; runs ended by {dict(result.ended)}",
            soft_wrap=True,
        )
        table = Table(box=None, pad_edge=False)
        kinds_of_rows = ("expected", "found", "lost", "duplicated", "stale", "altered", "unexpected")
        for heading in ("pipeline", *kinds_of_rows, ""):
            table.add_column(heading, justify="left" if heading in ("pipeline", "") else "right")
        for name, audit in result.audits.items():
            numbers = (audit["totals"][kind] for kind in kinds_of_rows)
            table.add_row(name, *(f"{number:,}" for number in numbers), "exact" if audit["ok"] else "[red]NOT EXACT[/]")
        out.print(table)
        out.print(f"{folder / 'chaos.json'}: every fault and figure", soft_wrap=True)
    if not result.held:
        raise typer.Exit(1)


@lab.command()
@_reported
def together(folder: Folder = Path("lab/together"), json_: Json = False) -> None:
    """Kill a pipeline of four sinks at every step; then count.

    The sinks are two tables, objects and a topic; the steps are those of two-phase commit.

    Takes three to ten minutes, depending on the machine. After every crash all four sinks must be exact, and at the
    same epoch.
    """
    from connector.lab.trials.steps import POINTS, run_steps

    _fresh(folder)
    found = run_steps(folder, err)
    if json_:
        sys.stdout.write(json.dumps({point: verdict.to_dict() for point, verdict in found.items()}) + "\n")
    else:
        says = {point.name: point.says for point in POINTS}
        table = Table(box=None, pad_edge=False)
        for heading in ("killed", "lost", "duplicated", "epoch", "", "what had happened"):
            table.add_column(heading, justify="right" if heading in ("lost", "duplicated", "epoch") else "left")
        for point, verdict in found.items():
            lost, twice = (
                sum(getattr(each, what) for each in verdict.sinks.values()) for what in ("lost", "duplicated")
            )
            held = "[green]held[/]" if verdict.held else "[bold red]BROKEN[/]"
            table.add_row(point, str(lost), str(twice), str(verdict.logged), held, says[point])
        out.print(table)
    if not all(verdict.held for verdict in found.values()):
        raise typer.Exit(1)


def _fresh(folder: Path) -> None:
    """Make an empty folder for the lab. Replaces what an earlier lab left there.

    Raises ConfigurationError for a folder with anything else in it, and leaves that alone.
    """
    import shutil

    mark = folder / ".lakelock-lab"
    if folder.exists() and any(folder.iterdir()):
        if not mark.exists():
            raise ConfigurationError(
                f"{str(folder)!r} exists already, and no lab made it, so it was left as it is.",
                hint="Give another folder with --out.",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _cell(history: History, report: Report) -> dict[str, Any]:
    about = {"delivery": history.delivery, "sink": history.sink, "crash_point": history.crash_point}
    return {**about, **report.to_dict()}


def _matrix_table(cells: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("delivery", "sink", "crash", "lost", "duplicated", "stale", "promise", "verdict"):
        justify: JustifyMethod = "right" if heading in ("lost", "duplicated", "stale") else "left"
        table.add_column(heading, justify=justify, no_wrap=True)
    last = None
    for cell in cells:
        first = (cell["delivery"], cell["sink"])
        counts = cell["counts"]
        verdict = cell["verdict"]
        style = {"held": "green", "broken": "bold red"}.get(verdict, "yellow")
        table.add_row(
            *(first if first != last else ("", "")),
            cell["crash_point"],
            *(str(counts.get(kind, 0) or "-") for kind in ("lost", "duplicated", "stale")),
            PROMISES[cell["delivery"]],
            f"[{style}]{verdict}[/]",
        )
        last = first
    return table
