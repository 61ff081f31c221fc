"""An experiment: topics of a broker of its own, and pipelines that run as real processes, killed where you say.

>>> with Experiment() as lab:  # doctest: +SKIP
...     lab.send("payments", [{"account": "ann", "cents": 500}], key="account")
...     ledger = lab.pipeline({"name": "ledger", "delivery": "manual_commit", ...})
...     ledger.run(kill="after_write")
...     ledger.run()
...     ledger.records()
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from connector.config import DeltaUpsertSink, parse
from connector.lab.bench.broker import Broker
from connector.lab.bench.crew import CRASH_IN_BATCH, Task, read_journal
from connector.lab.bench.data import produce
from connector.lab.bench.pipelines import QUICK_MEMBER, SHORT_LIVED
from connector.lab.bench.processes import run_crew
from connector.lab.check.checker import judge
from connector.lab.check.evidence import any_records, records, sent_records, versions
from connector.lab.check.history import Happened, History
from connector.lab.check.verdict import Report
from connector.lab.show.explanations import STEPS
from connector.lab.trials.together import Store, store
from connector.protocol.steps import Step
from connector.spark.jars.built_for import installed
from connector.spark.session import session
from sinks.delta.metadata import CommitMetadata
from sinks.errors import ConfigurationError, LakelockError
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from connector.lab.show.charts import Picture


class Experiment:
    """A folder and a Kafka broker, which are there until `close`, or as long as the ``with`` block."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """``folder``: for tables, pipeline files and journals; a temporary one if left out."""
        self._open = ExitStack()
        if folder is None:
            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="lakelock-lab-"))
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begun = time.time()
        self.broker = self._open.enter_context(Broker())
        self._topics: set[str] = set()

    def close(self) -> None:
        """End Spark, the bucket and the broker; a temporary folder is removed."""
        self._open.close()

    @cached_property
    def spark(self) -> SparkSession:
        """A session in this process, which knows Delta tables, Kafka and S3."""
        options = {**SHORT_LIVED, "spark.sql.warehouse.dir": str(self.folder / "warehouse")}
        with _errors_to(self.folder / "spark.log"):
            return self._open.enter_context(session(options, name="experiment", s3=installed().conditional_writes))

    @cached_property
    def bucket(self) -> Store:
        """A bucket in an S3 of its own (moto)."""
        return self._open.enter_context(store())

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send(self, topic: str, rows: Iterable[Mapping[str, object]], *, key: str, partitions: int = 1) -> int:
        """Send rows as JSON, and say how many. ``key``: the field that decides the partition.

        ``partitions``: of the topic, where it isn't there yet.
        """
        if topic not in self._topics:
            self.broker.create_topic(topic, partitions)
            self._topics.add(topic)
        records = ((str(row[key]).encode(), json.dumps(row).encode()) for row in rows)
        return produce(self.broker.bootstrap, topic, records)

    def messages(self, topic: str) -> list[Any]:
        """What a reader of a topic sees that waits for transactions to be committed: the values, from JSON."""
        found = records(self.broker.bootstrap, topic, isolation="read_committed")
        return [json.loads(each.value) for each in found]

    def pipeline(self, options: Mapping[str, Any]) -> Trial:
        """A pipeline with the options of a pipeline file. Adds the broker, and settings for short-lived processes.

        A relative path is one in the experiment's folder. Raises `ConfigurationError`.
        """
        return Trial(self, options)


@dataclass(frozen=True)
class Run:
    """One process of a pipeline, and what it announced before it ended."""

    number: int
    """From 1."""
    killed: str | None
    """The crash point; None: the run ended by itself."""
    events: Sequence[Happened]

    def __repr__(self) -> str:
        """A line for each batch: its offsets, and how far it came."""
        title = f"run {self.number}, " + (f"killed: {self.killed}" if self.killed else "ended by itself")
        lines: list[tuple[str, list[str]]] = []
        about: Sequence[OffsetRange] = ()
        for event in self.events:
            word = _WORDS.get(event.what)
            if word is None:
                continue
            if event.what == "resumed":
                if event.ranges:
                    starts = (f"{each.topic}-{each.partition}: {each.start}" for each in event.ranges)
                    lines.append((f"{word} {', '.join(starts)}", []))
            elif lines and (not event.ranges or event.ranges == about):
                lines[-1][1].append(word)
            else:
                about = event.ranges
                places = [str(each) for each in about if each.span]
                lines.append((", ".join(places) + ":" if places else "", [word]))
        return "\n".join([title, *(f"  {place} {_counted(words)}".rstrip() for place, words in lines)])


def _counted(words: Iterable[str]) -> str:
    """A word that comes several times in a row is said once."""
    runs = ((word, len(list(same))) for word, same in groupby(words))
    return ", ".join(word if times == 1 else f"{word} ({times})" for word, times in runs)


class Trial:
    """One pipeline of an experiment."""

    def __init__(self, lab: Experiment, options: Mapping[str, Any]) -> None:
        self._lab = lab
        self.options = _completed(lab, options)
        config = parse(self.options)
        self.name = config.name
        self._sinks = config.sinks
        self._delivery = config.delivery
        self._topics = [topic for topic in config.source.topics if isinstance(topic, str)]
        self.file.write_text(json.dumps(self.options, indent=2), encoding="utf-8")

    def run(self, *, kill: str | None = None, batch: int = CRASH_IN_BATCH) -> Run:
        """Run it in a process of its own, up to the end of the topic.

        ``kill``: SIGKILL there, in this batch of the run: after_poll, after_auto_commit, before_write, after_write,
        after_offset_commit, or one of the steps that only several sinks have: begun, prepared, decided, sink_committed.
        Raises `LakelockError` where the run fails, or its process ends in another way.
        """
        step = None if kill is None else STEPS.get(kill, kill)
        known = {*STEPS, *(each.value for each in Step)}
        if kill is not None and kill not in known:
            raise ConfigurationError(f"kill: there is no {kill!r}.", hint=f"There are {', '.join(sorted(known))}.")
        before = self.events()
        number = before[-1].run + 1 if before else 0
        self.file.write_text(json.dumps(self.options, indent=2), encoding="utf-8")
        task = Task(str(self.file), str(self._journal), number, step, batch)
        run_crew(self._lab.folder, [task], self._lab.begun, killed=kill is not None)
        events = self.events()[len(before) :]
        failed = next((event.note for event in events if event.what == "failed"), None)
        if failed is not None:
            raise LakelockError(f"Run {number + 1} of {self.name!r} failed: {failed}")
        return Run(number + 1, kill, events)

    def events(self) -> Sequence[Happened]:
        """What all runs announced so far."""
        return read_journal(self._journal) if self._journal.exists() else ()

    def history(self) -> History:
        """What Kafka holds, what the runs announced, and every version of the first table."""
        sink = self._sinks[0]
        upsert = isinstance(sink, DeltaUpsertSink)
        identify = any_records(sink.key if isinstance(sink, DeltaUpsertSink) else ())
        events = tuple(self.events())
        sent = [each for topic in self._topics for each in sent_records(self._lab.broker.bootstrap, topic, identify)]
        failed = [event.note for event in events if event.what == "failed"]
        return History(
            delivery=self._delivery,
            sink="upsert" if upsert else "append",
            crash_point=next((event.note for event in events if event.what == "crashed"), ""),
            sent=tuple(sent),
            events=events,
            versions=tuple(versions(self.path(), self.name, identify)),
            drained=bool(events) and events[-1].what == "done",
            error=failed[-1] if failed else None,
        )

    def verdict(self) -> Report:
        """What the history shows as lost, duplicated or stale, and whether the delivery allows it."""
        return judge(self.history())

    def path(self, sink: int = 0) -> Path:
        """The folder of the table."""
        return Path(self.options["sinks"][sink]["path"])

    def table(self, sink: int = 0, *, version: int | None = None) -> pd.DataFrame:
        """The table's rows, read by another engine than the one that wrote them."""
        from deltalake import DeltaTable

        rows: pd.DataFrame = DeltaTable(str(self.path(sink)), version=version).to_pandas()
        return rows

    def commits(self, sink: int = 0) -> pd.DataFrame:
        """The table's commits: version, operation, and of those that are epochs the number and the next offsets."""
        import pandas as pd
        from deltalake import DeltaTable

        rows = []
        for commit in DeltaTable(str(self.path(sink))).history():
            own = CommitMetadata.from_json(commit.get("userMetadata"), pipeline=self.name)
            rows.append(
                {
                    "version": int(commit["version"]),
                    "operation": commit["operation"],
                    "epoch": own.epoch if own else None,
                    "next offsets": own.offsets.to_json() if own else "",
                }
            )
        table: pd.DataFrame = pd.DataFrame(rows).astype({"epoch": "Int64"}).sort_values("version").set_index("version")
        return table

    def records(self) -> Picture:
        """What became of each record, and what each run did with it."""
        from connector.lab.show.charts import records_chart

        history = self.history()
        return records_chart(history, judge(history))

    def lag(self) -> Picture:
        """How far the table was behind the topic, over time."""
        from connector.lab.show.charts import lag_chart

        return lag_chart(self.history())

    @property
    def file(self) -> Path:
        """The pipeline file, for ``Pipeline.from_file`` and the command ``lakelock``."""
        return self._lab.folder / f"{self.name}.yaml"

    @property
    def _journal(self) -> Path:
        return self._lab.folder / f"{self.name}.jsonl"


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Where processes that are started meanwhile write errors, for as long as they live: Java warns of itself."""
    before = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _completed(lab: Experiment, options: Mapping[str, Any]) -> dict[str, Any]:
    source = options.get("source", {})
    kafka = {"bootstrap.servers": lab.broker.bootstrap, **QUICK_MEMBER, **source.get("kafka", {})}

    def inside(place: Mapping[str, Any]) -> dict[str, Any]:
        return {**place, "path": str(lab.folder / place["path"])} if "path" in place else dict(place)

    places = {name: inside(options[name]) for name in ("coordinator", "dead_letters") if name in options}
    return {
        **options,
        **places,
        "source": {**source, "kafka": kafka},
        "sinks": [inside(sink) for sink in options.get("sinks", ())],
        "spark": {**SHORT_LIVED, **options.get("spark", {})},
    }


_WORDS = {
    "resumed": "goes on at",
    "polled": "read",
    "writing": "writing",
    "begun": "begun",
    "prepared": "prepared by all",
    "decided": "decided",
    "sink_committed": "in a sink",
    "committed": "in the table",
    "offsets_committed": "noted in Kafka",
    "crashed": "kill -9",
}
