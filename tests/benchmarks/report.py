"""The results as tables, and as a JSON file with every run."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.measure import Measured, Median, Run, Work
from benchmarks.sizes import Sizes

MET = {True: "[green]met[/]", False: "[red]not met[/]", None: ""}


def machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([^"]+)"', java)
    return {
        "cores": os.cpu_count(),
        "memory_GiB": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": found[1] if found else java,
        **{name: version(name) for name in ("lakelock", "pyspark", "delta-spark", "kafka-python")},
    }


def document(measured: Sequence[Measured], sizes: Sizes, settings: Mapping[str, object]) -> dict[str, Any]:
    return {
        "machine": machine(),
        **settings,
        "sizes": asdict(sizes),
        "works": [_work(result) for result in measured],
    }


def _work(measured: Measured) -> dict[str, object]:
    return {
        "name": measured.work.name,
        "about": measured.work.about,
        "date": measured.date,
        "failed": measured.failed or None,
        "repetitions": len({run.repetition for run in measured.runs}),
        "ratios": [
            {
                "name": judged.ratio.name,
                **_rounded(judged.median),
                "target": judged.ratio.target or None,
                "met": judged.met,
            }
            for judged in measured.judged
        ],
        "medians": {
            contender: {name: _rounded(median) for name, median in figures.items()}
            for contender, figures in measured.medians.items()
        },
        "runs": [
            {"contender": run.contender, "repetition": run.repetition, **_digits(run.figures)} for run in measured.runs
        ],
    }


def earlier(file: Path, works: Sequence[Work], like: Mapping[str, object]) -> list[Measured]:
    """The results that a file holds for these workloads. Raises ValueError if the machine, the scale or another
    setting differs from that of the `document` ``like``."""
    if not file.is_file():
        return []
    kept = json.loads(file.read_text(encoding="utf-8"))
    for name in ("machine", "scale", "merge", "sizes"):
        if kept[name] != like[name]:
            raise ValueError(f"{file} was measured with another {name}: {kept[name]}, not {like[name]}")
    by_name = {result["name"]: result for result in kept["works"]}
    return [
        Measured(work, [_run(run) for run in result["runs"]], result["failed"] or "", result["date"])
        for work in works
        if (result := by_name.get(work.name)) is not None
    ]


def _run(run: Mapping[str, Any]) -> Run:
    figures = {name: value for name, value in run.items() if name not in ("contender", "repetition")}
    return Run(run["contender"], run["repetition"], figures)


def _rounded(median: Median) -> dict[str, float]:
    return _digits({"median": median.value, "lowest": median.lowest, "highest": median.highest})


def _digits(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in figures.items()}


def write(file: Path, found: Mapping[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def headline(found: Mapping[str, Any]) -> str:
    """The conditions under which the results of a `document` were measured."""
    machine, repetitions = found["machine"], [result["repetitions"] for result in found["works"]]
    few, many = min(repetitions), max(repetitions)
    return (
        f"scale {found['scale']:g}, repetitions {few if few == many else f'{few} to {many}'}, "
        f"small epochs merged {found['merge']}, "
        f"{machine['cores']} cores, {machine['memory_GiB']} GiB, pyspark {machine['pyspark']}, "
        f"{min(result['date'] for result in found['works'])[:10]}"
    )


def show(out: Console, measured: Sequence[Measured], title: str) -> None:
    out.print(title, soft_wrap=True)
    out.print(_figures(measured))
    out.print()
    out.print(_ratios(measured))
    for result in measured:
        if result.failed:
            out.print(f"[red]{result.work.name} failed:[/] {escape(result.failed)}", soft_wrap=True)
    out.print("(lowest .. highest): over the single runs; for a ratio, over the repetitions' own ratios")


def _figures(measured: Sequence[Measured]) -> Table:
    table = _table(("workload", "contender", "figure"), ("median", "lowest .. highest"))
    for result in measured:
        name = result.work.name
        for contender, figures in result.medians.items():
            by = contender
            for figure, median in figures.items():
                if median.highest < 0.005:  # a step of an epoch that takes no time
                    continue
                table.add_row(name, by, figure, _number(median.value), _spread(median))
                name = by = ""
    return table


def _ratios(measured: Sequence[Measured]) -> Table:
    table = _table(("workload", "ratio"), ("median", "lowest .. highest", "target"), ("",))
    for result in measured:
        name = result.work.name
        for judged in result.judged:
            median = judged.median
            table.add_row(
                name, judged.ratio.name, _number(median.value), _spread(median), judged.ratio.target, MET[judged.met]
            )
            name = ""
    return table


def _table(left: Sequence[str], right: Sequence[str], after: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in after:
        table.add_column(heading, no_wrap=True)
    return table


def _spread(median: Median) -> str:
    return f"{_number(median.lowest)} .. {_number(median.highest)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
