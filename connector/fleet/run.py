"""Runs several pipelines in one process. A pipeline that fails or is fenced stops none of the others."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.fleet.files import PipelineFile, fault_of, one_session, pipeline_files, read, without_clashes
from connector.fleet.turns import Turn, Turns
from connector.pipeline import Pipeline
from connector.protocol.gone import Looks
from connector.protocol.steps import Observer, all_of
from connector.source.topics import KafkaSource, no_looks
from connector.spark.session import isolated
from connector.telemetry.endpoint import forget, kept_open
from connector.telemetry.exporters import show_refused
from connector.telemetry.notify import tell_all
from connector.telemetry.progress import Watch
from connector.telemetry.run_report import EXIT_CODES, RunReport
from sinks.errors import BrokerUnreachable, ConfigurationError, Fenced, LakelockError, TopicMissing
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.fleet")

_WAKE_SECONDS = 0.1
_LOOK_SECONDS = 5.0
"""Between two looks for new topics, and for one that is missing."""
_LONGEST_PAUSE = 300.0
"""Before a pipeline is started again whose topic was there at a look, and missing again at the start."""
_WORST_FIRST = ("failed", "refused", "fenced")
"""A failed run may be helped by a retry, a refused one can't be; a fenced one was replaced, and nothing is missing."""


class PipelinesFailed(LakelockError):
    """Raised after several pipelines have run, when some didn't end well. ``reports`` says how each ended."""

    def __init__(self, reports: Sequence[RunReport]) -> None:
        bad = [report for report in reports if report.exit_code]
        told = [(report, fault_of(report.error).message if report.error else "") for report in bad]
        listed = "\n".join(f"  - {report.pipeline}: {report.state}. {message}" for report, message in told)
        super().__init__(
            f"{len(bad)} of {plural(len(reports), 'pipeline')} didn't end well:\n{listed}",
            hint="The others are done. Mend these, and run all again: those that are done have nothing to do.",
        )
        self.reports = reports


def default_at_once() -> int:
    """How many pipelines work at the same time, by default: one for each core of this machine, two at least."""
    return max(2, os.cpu_count() or 2)


def state(reports: Sequence[RunReport]) -> str:
    """The state of a run of several pipelines: running, or that of the worst end."""
    states = [report.state for report in reports]
    return next((word for word in ("running", *_WORST_FIRST, "stopped") if word in states), "done")


def exit_code(reports: Sequence[RunReport]) -> int:
    """The exit code of a run of several pipelines: that of the worst end."""
    return EXIT_CODES.get(state(reports), 1)


def run_all(
    pipelines: Sequence[Pipeline | str | Path],
    *,
    at_once: int | None = None,
    max_epochs: int | None = None,
    stop: threading.Event | None = None,
    observers: Sequence[Observer] = (),
    debug: bool = False,
) -> list[RunReport]:
    """Run several pipelines in this process, with one Spark session, and return how each ended.

    ``pipelines``: pipelines, files, or folders with files. A pipeline that has a session of its own works with that.
    ``at_once``: how many work at the same time; by default one for each core of this machine. ``max_epochs``: each ends
    after so many epochs. ``stop`` ends all of them after their running epoch. ``observers`` hear every step of every
    pipeline, from several threads: ``event.epoch.pipeline`` tells which it is.

    A pipeline that fails stops none of the others. Raises PipelinesFailed at the end if any of them didn't end well;
    its ``reports`` say how each ended. Raises ConfigurationError if there is no pipeline at all.
    """
    files: list[PipelineFile] = []
    for each in pipelines:
        files += [_in_python(each)] if isinstance(each, Pipeline) else _files(each)
    debug = debug or any(each.debug for each in pipelines if isinstance(each, Pipeline))
    if not files:
        raise ConfigurationError("There is no pipeline to run.", hint="Give pipelines, pipeline files, or a folder.")

    fleet = Fleet(
        files, lambda _: nullcontext(all_of(observers)), at_once=at_once, stop=stop, debug=debug, max_epochs=max_epochs
    )
    reports = fleet.run()
    if exit_code(reports):
        raise PipelinesFailed(reports)
    return reports


def _in_python(pipeline: Pipeline) -> PipelineFile:
    return PipelineFile(pipeline.config.name, pipeline.config, spark=pipeline.spark)


def _files(place: str | Path) -> list[PipelineFile]:
    return read(pipeline_files([Path(place)]))


def _usable(file: PipelineFile, _: RunReport) -> object:
    return file.usable()


def _answers(spark: SparkSession) -> bool:
    try:
        spark.sql("SELECT 1").collect()
    except Exception:
        return False
    return True


def _there(source: KafkaSource, *, lacking: bool) -> bool:
    """Whether Kafka has the topic, or can't tell for another reason than its absence: a start then says why.
    ``lacking``: if it lacks it, too."""
    try:
        return not source.deleted(source.topics()) or lacking
    except BrokerUnreachable:
        source.close()
        return False
    except Exception:
        return True


def _epoch(config: PipelineConfig, spark: SparkSession) -> int | None:
    """The pipeline's last epoch. None if that can't be found out: a start then says why."""
    try:
        with isolated(spark) as own:
            position = Pipeline(config, spark=own).status().position
    except Exception:
        return None
    return position.epoch if position is not None else None


@dataclass
class Fleet:
    """Several pipelines, and how they are run together."""

    files: Sequence[PipelineFile]
    watch: Watch
    at_once: int | None = None
    stop: threading.Event | None = None
    debug: bool = False
    max_epochs: int | None = None
    """After so many epochs each pipeline ends."""
    look: Callable[..., Sequence[PipelineFile]] = read
    """Reads the files with ``tables`` again, but for the topics that are ``known``: ``files.read``."""
    say: Callable[[str], None] = lambda _: None
    """Gets the last line of each pipeline."""
    ended: Callable[[RunReport], None] = lambda _: None
    """Told of each end: also of one that is followed by another start. May be called from several threads."""
    reports: list[RunReport] = field(default_factory=list)
    """How each pipeline stands, in the order of ``files``."""

    def __post_init__(self) -> None:
        self.files = without_clashes(self.files)
        self.reports = [RunReport(file.name, self.say) for file in self.files]
        self._stop = self.stop or threading.Event()
        self._turns = Turns(self.at_once or default_at_once())
        self._told: dict[str, str] = {}
        self._looks: dict[str, Looks] = {}
        """Of each file, what its runs have seen in Kafka: of a topic that is deleted before the next start, too."""

    def run(self) -> list[RunReport]:
        """Run all pipelines to their end, and return the last report of each. Raises what the Spark session raises."""
        try:
            return self._run()
        except BaseException as error:
            for report in self.reports:
                if report.state == "running":
                    report.__exit__(type(error), error, error.__traceback__)
            raise

    def _run(self) -> list[RunReport]:
        with kept_open():
            return self._run_each()

    def _run_each(self) -> list[RunReport]:
        self._refuse((number, file) for number, file in enumerate(self.files) if file.config is None)
        while not self._usable and self._awaits_topics and not self._stop.wait(_LOOK_SECONDS):
            self._appeared()
        if not self._usable:
            return self.reports
        with self._session() as spark:
            threads = [self._started(number, file, spark) for number, file in self._usable]
            looked = time.monotonic()
            while any(thread.is_alive() for thread in threads) or self._awaits_topics:
                time.sleep(_WAKE_SECONDS)  # in between, the process can take a signal
                if time.monotonic() - looked >= _LOOK_SECONDS and not self._stop.is_set():
                    threads += [self._started(number, file, spark) for number, file in self._appeared()]
                    looked = time.monotonic()
                    if not any(thread.is_alive() for thread in threads) and not _answers(spark):
                        break  # the process is to end, so that another one is started
        return self.reports

    @property
    def _usable(self) -> list[tuple[int, PipelineFile]]:
        """The pipelines that can run, with their places in the list."""
        return [(number, file) for number, file in enumerate(self.files) if file.config is not None]

    @property
    def _awaits_topics(self) -> bool:
        """Whether a file may still get its first pipelines, so that the run goes on."""
        return not self._stop.is_set() and any(file.awaits_topics and file.grows for file in self.files)

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """The session of all pipelines. Where it doesn't start, no pipeline is there to tell, so this tells for all."""
        with ExitStack() as stack:
            try:
                name = plural(len(self.files), "pipeline")
                spark = stack.enter_context(one_session(self.files, name=name, debug=self.debug, short=False))
            except Exception as error:
                tell_all((file.config, error) for file in self.files if file.config is not None)
                raise
            yield spark

    def _refuse(self, refused: Iterable[tuple[int, PipelineFile]]) -> None:
        """Report why these can't run, to their webhooks, too, and where the metrics of the others are."""
        untold, shown = [], {}
        for number, file in refused:
            self._reported(number, file, partial(_usable, file))
            if file.awaits_topics and file.grows:
                log.warning("%s: looks again for its topics, until there are some", file.name)
            if file.intended is not None and file.error is not None:
                untold.append((file.intended, file.error))
            if file.error is not None:
                shown[self._shown_as(file)] = file.error
        show_refused(shown, [like for file in self.files if (like := file.config or file.intended) is not None])
        tell_all(untold)

    def _shown_as(self, file: PipelineFile) -> str:
        """The name of a refused pipeline in the metrics: its own, unless that is the name of one that runs."""
        taken = {other.config.name for other in self.files if other.config is not None}
        own = file.intended.name if file.intended is not None else file.name
        return file.name if own in taken else own

    def _started(self, number: int, file: PipelineFile, spark: SparkSession) -> threading.Thread:
        # A second signal ends the process, whatever the threads do.
        own = spark if file.spark is None else file.spark
        thread = threading.Thread(target=self._keep, args=(number, file, own), name=file.name, daemon=True)
        thread.start()
        return thread

    def _appeared(self) -> list[tuple[int, PipelineFile]]:
        """The pipelines of topics that have appeared since, with their places in the list. A wrong one is refused.

        The first of a file whose topics Kafka hadn't told yet takes the place of that file. One that was refused for
        now keeps its own place, once Kafka shows what it lacked.
        """
        again = {file.template: None for file in self.files if file.grows}
        found = self.look(list(again), known={file.file for file in self.files if not file.for_now}) if again else []
        self._tell_of_no_topics(found)
        places = {file.file: number for number, file in enumerate(self.files) if file.for_now}
        new = [
            file
            for file in found
            if file.template is not None and not file.awaits_topics and (file.error is None or file.file not in places)
        ]
        if not new:
            return []
        awaiting = {file.template: number for number, file in enumerate(self.files) if file.awaits_topics}
        files = list(self.files)
        numbers = []
        for file in new:
            number = places[file.file] if file.file in places else awaiting.pop(file.template, len(files))
            if number < len(files):
                forget(self._shown_as(files[number]))
            files[number : number + 1] = [file]
            numbers.append(number)
        checked = without_clashes(files)
        for number in numbers:
            files[number] = checked[number]
            self.reports[number : number + 1] = [RunReport(files[number].name, self.say)]
        self.files = files
        appeared = [(number, files[number]) for number in numbers]
        self._refuse((number, file) for number, file in appeared if file.config is None)
        return [(number, file) for number, file in appeared if file.config is not None]

    def _tell_of_no_topics(self, found: Sequence[PipelineFile]) -> None:
        """Warn of files that gave topics before, and now give none, as after an edit that is broken. Once for each
        reason, as they are looked at every few seconds."""
        told, self._told = self._told, {}
        for file in found:
            if file.template is None:
                error = file.error
                why = f"{error.message} {error.hint}".strip() if error else "the file has no tables any more"
                self._told[file.file] = why
                if told.get(file.file) != why:
                    log.warning("%s: topics that appear get no table until this is mended: %s", file.name, why)

    def _keep(self, number: int, file: PipelineFile, spark: SparkSession) -> None:
        """Run one pipeline, and start it again if its file says so: after a failure, and where it was fenced by a run
        that goes on no longer, as that of a command is over when it is done."""
        config = file.usable()
        after = config.retry.restart_after if config.interval is not None else None
        pause = _LOOK_SECONDS
        while True:
            self._reported(number, file, lambda report: self._once(file, spark, report))
            report = self.reports[number]
            if self._waits_for_kafka(file, report):
                pause = _LOOK_SECONDS if report.epochs else pause
                comes_back = self._is_there(file, spark, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                comes_back = after is not None and self._comes_back(report, config, spark, after.total_seconds())
            if not comes_back:
                return

    def _waits_for_kafka(self, file: PipelineFile, report: RunReport) -> bool:
        """Whether the pipeline of a topic only lacks the topic, as it isn't there yet, or was deleted and may be made
        again; or no broker answers.

        The pipeline of a topic that rests notices no outage, so the process outlives it, and no other one is started
        for those that do: also for those of other files.
        """
        error = report.error
        if isinstance(error, BrokerUnreachable):
            return file.usable().interval is not None and any(each.grows for each in self.files)
        return file.grows and isinstance(error, TopicMissing) and error.topic is not None

    def _is_there(self, file: PipelineFile, spark: SparkSession, pause: float) -> bool:
        """Wait until Kafka answers, and has the topic of a pipeline of one. False: the run ends before."""
        config, what = file.usable(), "its topic" if file.grows else "Kafka"
        log.warning("%s: waits for %s, and looks again every %.0f seconds", config.name, what, _LOOK_SECONDS)
        with closing(KafkaSource(config.source)) as source:
            while not self._stop.wait(pause):
                if not _answers(spark):
                    return False  # the process is to end, so that another one is started
                if _there(source, lacking=not file.grows):
                    return True
                pause = _LOOK_SECONDS
        return False

    def _comes_back(self, report: RunReport, config: PipelineConfig, spark: SparkSession, after: float) -> bool:
        """Wait until the pipeline is to be started again. False: it isn't."""
        if report.state not in ("failed", "fenced"):
            return False
        seen = report.error.epoch if isinstance(report.error, Fenced) else None
        while not self._stop.wait(after):
            if not _answers(spark):
                return False  # nothing runs any more: the process is to end, so that another one is started
            now = _epoch(config, spark) if seen is not None else None
            if seen is None or now is None or now <= seen:
                return True
            seen = now  # the run that took over goes on
        return False

    def _reported(self, number: int, file: PipelineFile, act: Callable[[RunReport], object]) -> None:
        report = self.reports[number] = RunReport(file.name, self.say)
        with suppress(Exception), report:
            act(report)
        self.ended(report)

    def _once(self, file: PipelineFile, spark: SparkSession, report: RunReport) -> None:
        config = file.usable()
        turn = Turn(self._turns, self._stop)
        # A member of a consumer group has to poll all the time: one that waits for a turn loses its partitions.
        in_turn = config.delivery == "transactional"
        with turn.taken() if in_turn else nullcontext():
            report.begin()
            if self._stop.is_set():
                report.stopped()
                return
            with self.watch(config.name) as observer, isolated(spark) as own:
                stop: threading.Event = turn if in_turn else self._stop
                observers: list[Observer] = [observer, report, *([turn] if in_turn else [])]
                pipeline = Pipeline(config, debug=self.debug, spark=own)
                pipeline.looks = self._looks.setdefault(file.file, no_looks(config.source))
                pipeline.looks.pause()
                delivered = pipeline.run(max_epochs=self.max_epochs, stop=stop, observers=observers)
            report.ended(delivered, table=config.only_table, stopped=self._stop.is_set())
