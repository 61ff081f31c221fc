"""A pipeline: its file, and what can be done with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from connector.config import PipelineConfig, load, loads, parse
from connector.config.written import written
from connector.config.yaml_text import write_yaml
from connector.delivery import transactional
from connector.delivery.limit import EpochLimit
from connector.delivery.ports import Delivered, Work
from connector.engine.assembly import Assembly, assembled
from connector.engine.in_group import run_in_group
from connector.engine.settled import settled_first, without_query
from connector.operations.accept import accepted, accepted_together
from connector.operations.check import checked
from connector.operations.checked import Checked
from connector.operations.dead_letters import Retried, refuse_unfit, retried
from connector.operations.dry_run import DryRun, dry_run
from connector.operations.fold import fold_now, refuse_no_change_log
from connector.operations.from_topic import for_topic
from connector.operations.history import LAST, PastEpochs, past
from connector.operations.letter_groups import LetterGroups, letter_groups, refuse_without_letters
from connector.operations.lineage import lineage_of
from connector.operations.maintain import Maintained, maintain
from connector.operations.preview import ROWS, Preview, previewed
from connector.operations.replay import into_new_tables, of_the_old_schema
from connector.operations.rewind import Rewind, one_goal, rewound
from connector.operations.rewind_together import rewound_together
from connector.operations.session import given_or_new
from connector.operations.snapshot import Snapshot, snapshot_here
from connector.operations.status import Status, status_of
from connector.operations.view import view_of
from connector.protocol.steps import Observer, all_of, stages
from connector.protocol.two_phase import Recovered
from connector.source.consumer_group import Unpublished
from connector.source.topics import no_looks
from connector.source.until import Until
from connector.telemetry.exporters import monitored
from connector.telemetry.notebook import told_in_notebook
from sinks.contract import Committed, Position
from sinks.errors import ConfigurationError, NoRecordYet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from connector.audit.whole import Verification
    from connector.config.options import PipelineOptions, TopicOptions
    from connector.protocol.gone import Looks

log = logging.getLogger("lakelock.pipeline")
_LOOKS_EVERY_SECONDS = 1.0


class Pipeline:
    """A pipeline, ready to run: of a file, or of options in Python.

    It uses the active Spark session, or starts one of its own.

    >>> Pipeline.from_file("pipeline.yaml").run()  # doctest: +SKIP
    """

    def __repr__(self) -> str:
        return f"<Pipeline {lineage_of(self.config, as_written=True).line}>"

    def _repr_html_(self) -> str:
        return lineage_of(self.config, as_written=True)._repr_html_()

    @overload
    def __init__(self, config: PipelineConfig, *, debug: bool = ..., spark: SparkSession | None = ...) -> None: ...

    @overload
    def __init__(
        self,
        *,
        debug: bool = ...,
        spark: SparkSession | Mapping[str, str] | None = ...,
        **options: Unpack[PipelineOptions],
    ) -> None: ...

    def __init__(
        self,
        config: PipelineConfig | None = None,
        *,
        debug: bool = False,
        spark: SparkSession | Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """``options``: those of a pipeline file, as ``lakelock.options`` has them.

        ``spark``: settings for the session that Lakelock starts; or a session whose settings nobody else changes
        meanwhile. ``debug``: show Spark's own log. Raises ConfigurationError with all faults of the options.
        """
        if isinstance(spark, Mapping):
            options["spark"], spark = spark, None
        if config is not None and options:
            raise TypeError(f"Give either a configuration or options, not both: {', '.join(options)}.")
        self.config = config or parse(written(options), origin=f"pipeline {options.get('name')!r}")
        self.debug = debug
        self.spark = spark
        self.looks: Looks | None = None  # what the runs before this one have seen in Kafka; None: nothing

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = (), *, debug: bool = False) -> Pipeline:
        """Read a pipeline file. ``overrides`` change options of it, as ``sinks[0].path=s3a://lake/flights``.

        Raises ConfigurationError with all faults of the file.
        """
        return cls(load(path, overrides), debug=debug)

    @classmethod
    def from_options(cls, options: Mapping[str, object], *, debug: bool = False) -> Pipeline:
        """The same from a mapping with the options of a pipeline file. Raises ConfigurationError."""
        return cls(parse(options), debug=debug)

    @classmethod
    def from_yaml(cls, text: str, *, folder: str | Path = "", debug: bool = False) -> Pipeline:
        """The same from the text of a pipeline file. Relative paths belong to ``folder``, by default to the working
        directory. Raises ConfigurationError.
        """
        return cls(loads(text, folder=folder), debug=debug)

    @classmethod
    def from_topic(
        cls, topic: str, kafka: Mapping[str, str] = {}, *, debug: bool = False, **options: Unpack[TopicOptions]
    ) -> Pipeline:
        """A pipeline that fits a topic: some of its records show the format, the columns and the key.

        ``kafka``: options of Kafka's clients; by default bootstrap.servers is 127.0.0.1:9092. ``options``: what is to
        be otherwise, as ``sinks=[...]``. Raises LakelockError, also if the topic has no record yet.
        """
        return cls(for_topic(topic, kafka, written(options)), debug=debug)

    def to_yaml(self) -> str:
        """The text of the pipeline file: the options as they were given, with relative paths and references as they
        are. Of a file with several pipelines, that of this one.

        Raises ConfigurationError if an option is a secret itself, rather than a reference, as ``${env:NAME}``.
        """
        return write_yaml(self.config.document)

    def run(
        self,
        *,
        max_epochs: int | None = None,
        stop: threading.Event | None = None,
        observers: Sequence[Observer] = (),
    ) -> Delivered:
        """Move what Kafka holds into the sinks. With an interval trigger go on until ``stop`` is set.

        ``max_epochs``: end after so many epochs, whatever Kafka still holds. ``observers`` hear every step. Without
        any, a notebook shows a line that says where the run is. Raises LakelockError: see ``sinks.errors``. Whatever it
        raises, the table holds whole epochs only.
        """
        if max_epochs is not None and max_epochs < 1:
            raise ConfigurationError(f"max_epochs: write at least 1, not {max_epochs}.")
        limit = EpochLimit(stop or threading.Event(), max_epochs)
        return replace(self._run(limit, observers, also=[limit]), limited=limit.reached)

    def rewind(
        self,
        *,
        to_event_time: datetime | None = None,
        to_version: int | None = None,
        to_epoch: int | None = None,
        allow_data_loss: bool = False,
        confirm: Callable[[Rewind], bool] | bool = False,
        observers: Sequence[Observer] = (),
    ) -> Rewind:
        """Take all tables back to an epoch, to the newest one without a record at or after an event time, or one table
        to a version.

        The next run reads every record that came later again. ``confirm``: True to do it; or a function that gets the
        plan, and says whether to do it. By default the call only returns the plan. Without an ``event_time`` in the
        pipeline file, Kafka's timestamps count. ``operations.rewind`` and ``protocol.rewind`` say what a crash leaves.
        Raises ConfigurationError if there is no such version, and OffsetsLost if Kafka no longer has all the records,
        or may have compacted them: with ``allow_data_loss`` the plan names what is lost instead.
        """
        to = one_goal(self.config, to_event_time, to_version, to_epoch, allow_data_loss=allow_data_loss)
        agreed = confirm if callable(confirm) else lambda _: confirm
        with self._assembled() as assembly:
            go = partial(rewound_together, agreed=confirm is True) if self.config.two_phase else rewound
            return go(assembly, to, confirm=agreed, observe=all_of(observers))

    def accept(self, *, observers: Sequence[Observer] = ()) -> Position:
        """Go on with a table that somebody else has replaced (TableReplaced), as if the pipeline had written it.

        Commits an epoch of no records, after which the next run goes on from the offsets that the pipeline had. Records
        that are missing from the table stay missing, and `lakelock verify` names them. With several sinks the epoch is
        in all of them; the topic of a ``kafka_topic`` sink is taken as it is, too, if it was created again. Raises
        ConfigurationError if nobody has replaced anything, and for a route.
        """
        if self.config.route is not None:
            raise ConfigurationError(
                "`accept` isn't for a route: an epoch of no records passes its tables by.",
                hint="Restore the table to the version right before it was replaced (RESTORE TABLE ... TO VERSION AS "
                "OF N), and run. Its rows are then those that the pipeline has written.",
            )
        with self._assembled() as assembly:
            accept = accepted_together if self.config.two_phase else accepted
            return accept(assembly, all_of(observers))

    def replay(
        self,
        into: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        stop: threading.Event | None = None,
        observers: Sequence[Observer] = (),
    ) -> Delivered:
        """Read a stretch of time into a new table at the path ``into``, as the pipeline file is now. Of a pipeline with
        several tables, all new ones are in that folder, with a new coordinator log.

        The stretch is ``[since, until)`` by Kafka's timestamps. The new tables have the pipeline's name and position.
        If you put their paths into the pipeline file, the next run goes on there. After a crash, call it again: it goes
        on from where they stand. Raises LakelockError.
        """
        new = of_the_old_schema(self.config, into_new_tables(self.config, into, since), self.spark, debug=self.debug)
        anew = Pipeline(new, debug=self.debug, spark=self.spark)
        return anew._run(stop or threading.Event(), observers, until=until, publish=False)

    def _run(
        self,
        stop: threading.Event,
        observers: Sequence[Observer],
        *,
        also: Sequence[Observer] = (),
        until: datetime | None = None,
        publish: bool = True,
    ) -> Delivered:
        with nullcontext(observers) if observers else told_in_notebook(self.config.name) as watching:
            while True:
                try:
                    return self._run_once(stop, [*watching, *also], until=until, publish=publish)
                except NoRecordYet as nothing:
                    log.warning("%s", nothing.message)
                    interval = self.config.interval
                    if interval is None or stop.wait(max(_LOOKS_EVERY_SECONDS, interval.total_seconds())):
                        return Delivered(behind=0)

    def _run_once(
        self, stop: threading.Event, observers: Sequence[Observer], *, until: datetime | None, publish: bool
    ) -> Delivered:
        stage = stages(all_of(observers), self.config.name)

        def works_with(assembly: Assembly) -> Work:
            topics = assembly.source if until is None else Until(assembly.source, until)
            work = assembly.work(all_of([*observers, *told]), topics=topics)
            stage("finishing an epoch" if assembly.newest.outdated else "finding where to go on")
            return work if publish else replace(work, group=Unpublished())

        short = None if publish else False
        looks = self.looks or no_looks(self.config.source)
        begin = partial(self._assembled, short=short, reads=True, stage=stage, stopped=stop.is_set, looks=looks)
        with monitored(self.config) as told, settled_first(begin, works_with, stop) as (assembly, work):
            log.info("run %s of pipeline %s, %s", work.owner, self.config.name, self.config.delivery)
            if self.config.delivery != "transactional":
                return run_in_group(self.config, work, assembly, stop)
            return transactional.deliver(work, interval=self.config.interval, stop=stop)

    def fold(self, *, observers: Sequence[Observer] = ()) -> Committed | None:
        """Fold what was appended with ``merge: on_read`` into the table, also during a run; of a route, into each.

        None: everything is folded. Raises ConfigurationError for a pipeline that doesn't merge on read, and
        PositionMismatch where the change log has epochs that no longer count.
        """
        refuse_no_change_log(self.config)
        with self._assembled() as assembly:
            return fold_now(assembly, all_of(observers))

    def view(self, name: str | None = None, *, create: bool = False) -> str:
        """The SQL of a view of the current rows with ``merge: on_read``. It stays right whatever is folded.

        ``name``: the view's; by default the table's with ``_live`` behind it. ``create``: make the view in the catalog
        of the session. Raises ConfigurationError.
        """
        return view_of(self.config, self.spark, name, create=create, debug=self.debug)

    def retry_dead_letters(self, *, observers: Sequence[Observer] = ()) -> Retried:
        """Send the open dead letters through the pipeline again, as its file is now.

        ``operations.dead_letters`` says why each record gets into the table once, and what a crash leaves. Raises
        ConfigurationError if the table can't tell which letters it holds. Raises Fenced if a run commits meanwhile; a
        run that goes on after the retry is fenced itself.
        """
        refuse_unfit(self.config)
        observe = all_of(observers)

        def works_with(assembly: Assembly) -> Work:
            return assembly.work(observe, topics=assembly.source)

        with settled_first(self._assembled, works_with) as (assembly, _):
            return retried(self.config, assembly, observe)

    def recover(self, *, observers: Sequence[Observer] = ()) -> Recovered:
        """Settle an epoch that is in doubt, and nothing else. Needs Kafka, with every topic of the file.

        Raises ConfigurationError for a pipeline with one table: its commit is never in doubt.
        """
        if not self.config.two_phase:
            raise ConfigurationError(
                f"Pipeline {self.config.name!r} has one Delta table: rows and offsets are in one commit, so no "
                "epoch is ever in doubt. There is nothing to recover."
            )
        with self._assembled() as assembly:
            assembly.make_ready()
            return without_query(assembly).coordinator(all_of(observers)).recover(join=False)

    def check(self) -> Checked:
        """Find out everything that a run would find out before its first commit, with a few records of each topic.

        Changes nothing. Raises LakelockError. Bad records among the few are no error: see ``Checked.sample``.
        """
        with self._looking_at_bad_records() as assembly:
            return checked(self.config, assembly)

    def dry_run(self) -> DryRun:
        """What a run would do: what ``check`` finds, the ranges of the next epoch, and the maintenance that is due.

        Changes nothing. Raises LakelockError.
        """
        with self._looking_at_bad_records() as assembly:
            return dry_run(self.config, assembly)

    def preview(self, rows: int = ROWS, *, start: Literal["earliest", "latest"] | datetime | None = None) -> Preview:
        """The next few records as the rows that a run would write, and what is wrong with others. Changes nothing.

        ``start``: the first records, the last ones, or those at or after a time, by Kafka's timestamps; by default
        those that a run would read next, or the last ones if it would read none. Raises LakelockError, also if the
        topic is empty.
        """
        with self._looking_at_bad_records() as assembly:
            return previewed(self.config, assembly, rows, start)

    def status(self) -> Status:
        """Where the pipeline stands, next to what Kafka holds. Changes nothing. Raises LakelockError."""
        with self._assembled(short=True) as assembly:
            return status_of(self.config, assembly)

    def history(self, last: int = LAST) -> PastEpochs:
        """The last epochs, newest first, as the commits tell of them. Doesn't ask Kafka. Raises LakelockError."""
        with self._session("history", short=True) as spark:
            return past(self.config, spark, last)

    def verify(self, version: int | None = None, *, say: Callable[[str], None] = log.info) -> Verification:
        """Read Kafka again, and compare every row with the record that it came from. Changes nothing.

        ``version``: that of the only table; by default the newest. ``say`` is told what is being done. What is wrong
        with a table is in the result, not raised. Raises LakelockError if nothing can be compared.
        """
        from connector.audit.whole import verify  # a run needn't wait for its import

        return verify(self.config, version, say=say, debug=self.debug, spark=self.spark)

    def maintain(self, *, dry_run: bool = False) -> Maintained:
        """Compact small files of the tables, and remove unused ones. A run may go on meanwhile.

        ``dry_run``: only say what would be done. Raises LakelockError; that of one table after all the others' work.
        """
        return maintain(self.config, dry_run=dry_run, debug=self.debug, spark=self.spark).whole()

    def snapshot(self, epoch: int | None = None) -> Snapshot:
        """How to read all sinks as of one epoch; by default the last one that all of them hold.

        ``snapshot[place]`` is a DataFrame if a Spark session is active. Otherwise the snapshot tells the SQL and the
        objects only. Raises ConfigurationError if there is no such epoch.
        """
        return snapshot_here(self.config, self.spark, epoch, debug=self.debug)

    def dead_letters(self) -> LetterGroups:
        """The records that were set aside, grouped by what is wrong with them.

        Raises ConfigurationError if the pipeline keeps none in a table.
        """
        refuse_without_letters(self.config)
        with self._session("letters") as spark:
            return letter_groups(self.config, spark)

    def _session(self, what: str, *, short: bool = False) -> AbstractContextManager[SparkSession]:
        name = f"{what} {self.config.name}"
        return given_or_new(self.spark, self.config, name, debug=self.debug, short=short)

    def _looking_at_bad_records(self) -> AbstractContextManager[Assembly]:
        """As if bad records were set aside, so that all of them are seen."""
        config = self.config.model_copy(update={"on_bad_record": "dead_letter"})
        return assembled(config, debug=self.debug, short=True, spark=self.spark)

    def _assembled(self, *, short: bool | None = None, **more: Any) -> AbstractContextManager[Assembly]:
        return assembled(self.config, debug=self.debug, short=short, spark=self.spark, **more)
