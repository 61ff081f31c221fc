"""Measures Lakelock against its peers, in alternating repetitions. The results are ratios of medians."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

# The same import path as under pytest: `tests` for its helpers, and this folder as the package `benchmarks`.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console

from benchmarks import plot, report
from benchmarks.measure import Measured, Work, progress
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.works import WORKS
from connector.lab.bench.broker import Broker
from connector.spark.jars import archive


def main() -> int:
    options = _arguments()
    works = [work for work in WORKS if not options.only or work.name in options.only]
    sizes = Sizes.at(options.scale)
    settings = {"scale": options.scale, "merge": options.merge}
    with tempfile.TemporaryDirectory(prefix="lakelock-bench-") as folder, Broker() as broker:
        stage = Stage(broker, Path(folder), sizes, options.repetitions, options.merge, options.all_peers)
        file = options.results.with_suffix(".json")
        others = [work for work in WORKS if work not in works]
        measured = report.earlier(file, others, report.document((), sizes, settings)) if options.add else []
        for work in works:
            measured.append(_measure(work, stage))
            measured.sort(key=lambda result: WORKS.index(result.work))
            # Written after each workload: all of them take long, and an interrupted run keeps what it has measured.
            document = report.document(measured, sizes, settings)
            report.write(file, document)
    title = report.headline(document)
    # In a log the default width of 80 columns would cut the tables.
    report.show(Console(highlight=False, width=None if sys.stdout.isatty() else 160), measured, title)
    plot.draw(options.results.with_suffix(".png"), measured, title)
    return 1 if any(result.failed for result in measured) else 0


def _measure(work: Work, stage: Stage) -> Measured:
    """Measure a workload. Catches its exception, so that the other workloads keep their results."""
    progress.print(f"{work.name}: {work.about}", style="bold", soft_wrap=True)
    try:
        return Measured(work, work.measure(stage))
    except Exception as error:
        traceback.print_exc()  # includes the traceback of the child process
        return Measured(work, failed=f"{type(error).__name__}: {str(error)[:500]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Workloads: " + "; ".join(f"{work.name}: {work.about}" for work in WORKS),
    )
    parser.add_argument("--scale", type=_positive, default=1.0, help="factor on all sizes; 0.05 is for a trial run")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="WORKLOAD",
        choices=[work.name for work in WORKS],
        default=[],
        help="measure only these workloads",
    )
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each contender")
    parser.add_argument(
        "--merge", choices=("on_read", "on_write"), default="on_read", help="how trickle merges its small epochs"
    )
    parser.add_argument(
        "--all-peers",
        action="store_true",
        help="add the peers without a target: stateful aggregation, the other deliveries",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("bench/results"), metavar="FILE", help="write FILE.json and FILE.png"
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the other workloads that FILE holds, measured on this machine at the same scale",
    )
    options = parser.parse_args()
    if archive.find() is None:
        parser.error("these jars have no archive of classes, as users have it: run `lakelock jars` first")
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    return options


def _positive(text: str) -> float:
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
