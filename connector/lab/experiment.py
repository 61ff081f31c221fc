"""An experiment: a new broker, and pipelines that run as real processes and are killed at chosen steps.

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
    """A folder and a Kafka broker, which exist until `close` or the end of the ``with`` block."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """``folder``: for tables, pipeline files and journals. None: a temporary folder."""
        self._open = ExitStack()
        if folder is None:
            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="lakelock-lab-"))
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begun = time.time()
        self.broker = self._open.enter_context(Broker())
        self._topics: set[str] = set()
        self._sent: list[tuple[str, float, int]] = []

    def close(self) -> None:
        """Stop Spark, the bucket's server and the broker. Remove a temporary folder."""
        self._open.close()

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session in this process for Delta tables, Kafka and S3."""
        options = {**SHORT_LIVED, "spark.sql.warehouse.dir": str(self.folder / "warehouse")}
        with _errors_to(self.folder / "spark.log"):
            return self._open.enter_context(session(options, name="experiment", s3=installed().conditional_writes))

    @cached_property
    def bucket(self) -> Store:
        """A bucket on a local S3 server (moto)."""
        return self._open.enter_context(store())

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send(self, topic: str, rows: Iterable[Mapping[str, object]], *, key: str, partitions: int = 1) -> int:
        """Send rows as JSON. Returns their number.

        ``key``: the field that decides the partition. ``partitions``: their number if the topic is new.
        """
        if topic not in self._topics:
            self.broker.create_topic(topic, partitions)
            self._topics.add(topic)
        records = ((str(row[key]).encode(), json.dumps(row).encode()) for row in rows)
        sent = produce(self.broker.bootstrap, topic, records)
        self._sent.append((topic, time.time() - self.begun, sent))
        return sent

    def arrived(self, topics: Sequence[str]) -> Sequence[tuple[float, int]]:
        """When `send` has sent records to these topics, in seconds since the lab began, and how many."""
        return [(seconds, sent) for topic, seconds, sent in self._sent if topic in topics]

    def messages(self, topic: str) -> list[Any]:
        """The values of a topic's committed records, decoded from JSON."""
        committed = records(self.broker.bootstrap, topic, isolation="read_committed")
        return [json.loads(record.value) for record in committed]

    def pipeline(self, options: Mapping[str, Any]) -> Trial:
        """A pipeline. Adds the broker and settings for short-lived processes to its options.

        ``options``: as in a pipeline file. Relative paths are relative to the experiment's folder. Raises
        `ConfigurationError` if they are invalid.
        """
        return Trial(self, options)


@dataclass(frozen=True)
class Run:
    """One process of a pipeline, and the events that it announced."""

    number: int
    """Counted from 1."""
    killed: str | None
    """The crash point. None: the run ended by itself."""
    events: Sequence[Happened]

    def __repr__(self) -> str:
        """A line for each batch: its offsets, and the steps that it reached."""
        title = f"run {self.number}, " + (f"killed: {self.killed}" if self.killed else "ended by itself")
        lines: list[tuple[str, list[str]]] = []
        about: Sequence[OffsetRange] = ()
        for event in self.events:
            word = _WORDS.get(event.what)
            if word is None:
                continue
            if event.what == "resumed":
                if event.ranges:
                    starts = (f"{range_.topic}-{range_.partition}: {range_.start}" for range_ in event.ranges)
                    lines.append((f"{word} {', '.join(starts)}", []))
            elif lines and (not event.ranges or event.ranges == about):
                lines[-1][1].append(word)
            else:
                about = event.ranges
                places = [str(range_) for range_ in about if range_.span]
                lines.append((", ".join(places) + ":" if places else "", [word]))
        return "\n".join([title, *(f"  {place} {_counted(words)}".rstrip() for place, words in lines)])


def _counted(words: Iterable[str]) -> str:
    """The words as a list, where repeated words in a row become one word with its count."""
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
        """Run the pipeline in a new process, up to the end of the topic.

        ``kill``: the step at which SIGKILL ends the process: after_poll, after_auto_commit, before_write, after_write
        or after_offset_commit. Pipelines with several sinks also have begun, prepared, decided and sink_committed.
        ``batch``: the batch of the run in which that happens, counted from 1. Raises `ConfigurationError` for an
        unknown step, `LakelockError` if the run fails or its process ends in another way.
        """
        step = None if kill is None else STEPS.get(kill, kill)
        known = {*STEPS, *(each.value for each in Step)}
        if kill is not None and kill not in known:
            raise ConfigurationError(f"kill: no step {kill!r}.", hint=f"Steps: {', '.join(sorted(known))}.")
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
        """The events of all runs so far."""
        return read_journal(self._journal) if self._journal.exists() else ()

    def history(self) -> History:
        """The records in Kafka, the events of the runs, and every version of the first table."""
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
        """The lost, duplicated and stale records, and whether the delivery allows them."""
        return judge(self.history())

    def path(self, sink: int = 0) -> Path:
        """The folder of a sink's table. ``sink``: the sink's index."""
        return Path(self.options["sinks"][sink]["path"])

    def table(self, sink: int = 0, *, version: int | None = None) -> pd.DataFrame:
        """The rows of a sink's table, read with delta-rs, not with Spark. ``version``: None for the newest."""
        from deltalake import DeltaTable

        rows: pd.DataFrame = DeltaTable(str(self.path(sink)), version=version).to_pandas()
        return rows

    def commits(self, sink: int = 0) -> pd.DataFrame:
        """The commits of a sink's table: version, operation, and for epochs their number and the next offsets."""
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
        """A chart of what became of each record, and of what each run did with it."""
        from connector.lab.show.charts import records_chart

        history = self.history()
        return records_chart(history, judge(history))

    def lag(self) -> Picture:
        """A chart of how far the table was behind the topic, over time."""
        from connector.lab.show.charts import lag_chart

        return lag_chart(self.history(), self._lab.arrived(self._topics))

    @property
    def file(self) -> Path:
        """The pipeline file, for ``Pipeline.from_file`` and the command ``lakelock``."""
        return self._lab.folder / f"{self.name}.yaml"

    @property
    def _journal(self) -> Path:
        return self._lab.folder / f"{self.name}.jsonl"


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Redirect stderr to a file. Processes started in the block keep it: Java prints warnings that nobody needs."""
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

    places: dict[str, Any] = {
        name: inside(options[name]) for name in ("coordinator", "dead_letters") if name in options
    }
    if "route" in options:
        places["route"] = {**options["route"], "sink": inside(options["route"]["sink"])}
    else:
        places["sinks"] = [inside(sink) for sink in options.get("sinks", ())]
    return {
        **options,
        **places,
        "source": {**source, "kafka": kafka},
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
