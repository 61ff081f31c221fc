"""Tables that move together, by a coordinator log: those of several sinks, and those of a route.

The log says how far the pipeline is. A table claims to hold all records up to there, also if it got no row of the last
epochs, or if somebody has restored it.

Each table of a route is audited with the records that name it. No record may name a table that isn't there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from connector.audit.claim import Bounds, Claim, Logged, Metadata, bounds, metadata, unchecked
from connector.audit.counted import counted
from connector.audit.decode import decoded
from connector.audit.formats import forms
from connector.audit.letters import JUDGED_WITHOUT_A_SINK, no_letters, told_apart
from connector.audit.letters_table import letters_table
from connector.audit.records import PLACE, PROBLEM, Records, kafka_records
from connector.audit.steps import stepped, with_headers
from connector.audit.table import AuditedTable
from connector.audit.topics import Topics
from connector.audit.verdict import FAULTS, Audit, partitions
from connector.config import OTHER, PipelineConfig
from connector.config.own_schema import SCHEMA_NAME
from connector.config.truncates import kept_truncates
from connector.spark.in_use import shared_session
from sinks.errors import ConfigurationError, NotADeltaTable
from sinks.plurals import first_of, plural
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.audit")

AuditOne: TypeAlias = Callable[[PipelineConfig, Logged | None], Audit | None]
"""Audits one table, up to these offsets at least; None: up to where the table says. Returns None for a table that it
has found to be none: the others are audited all the same."""
_SHOWN = 5
_BEHIND = (
    "The table is behind the epoch that is in all tables which the coordinator log knows: it is still catching up, or "
    "its place was spelled otherwise when it was written. The next run goes on with it, or says what is wrong."
)
_NO_TABLE = "No table has a row yet, so no rows were compared."
_NAMED = "lakelock_missing"
"""The table that a record names, if that isn't there."""


@dataclass(frozen=True)
class _Done:
    """The last epoch that is in all tables."""

    stands: Metadata
    tables: Collection[str]
    holds: Mapping[str, int]
    """Per table, the last epoch of which it has a commit."""

    def of(self, table: str) -> Logged:
        """What the log says of one table."""
        return Logged(self.stands.epoch, self.stands.offsets, self.holds.get(table, 0), self.stands.gone)


@dataclass(frozen=True)
class _Log:
    """What a coordinator log says of the pipeline."""

    done: _Done | None = None
    decided: int | None = None
    """The last epoch, if it is decided, and may be in some of the tables only."""

    def doubted(self, later: _Log, found: list[Audit]) -> list[Audit]:
        """The audits made since. Nothing is exact if the same epoch is still in doubt in the ``later`` log."""
        if self.decided is None or self.decided != later.decided:
            return found
        why = (
            f"Epoch {self.decided} is decided, and may be in some of the tables only: its run is at work, or was "
            "killed. `lakelock recover FILE` settles it."
        )
        return [_without(each, why) for each in found]


def audit_sinks(
    config: PipelineConfig,
    audit: AuditOne,
    tables: Iterable[int],
    *,
    debug: bool = False,
    given: SparkSession | None = None,
) -> list[Audit]:
    """Audit the tables of a pipeline of several sinks.

    ``tables``: their indexes in ``sinks``. A table that the log doesn't know, as it is still catching up, claims what
    it says itself, and isn't exact before it is as far as the others. ``given``: the session of the log. Raises what
    ``audit`` raises.
    """
    name = f"verify {config.name}"
    with shared_session(config.spark_options, name=name, s3=config.on_s3, debug=debug, given=given) as spark:
        before = _log(config, spark)
        done = before.done

        def audited(alone: PipelineConfig) -> Audit | None:
            place = alone.sinks[0].place
            if done is not None and place in done.tables:
                return audit(alone, done.of(place))
            found = audit(alone, None)
            if found is None:
                return None
            if done is None:
                return _without(found, f"{_no_epoch(config)} So nothing says whether the tables are at one epoch.")
            note = f"The coordinator log doesn't know {place!r}, which claims what its own commits say."
            found = replace(found, notes=[*found.notes, note])
            return _without(found, _BEHIND) if behind(found.claim, done.stands) else found

        found = [each for alone in map(config.alone, tables) if (each := audited(alone)) is not None]
        return before.doubted(_log(config, spark), found)


def behind(claim: Claim, stands: Metadata) -> bool:
    """Whether a table claims less than is in the tables that the coordinator log knows."""
    return any(claim.offsets[at] < offset for at, offset in stands.offsets.items() if at in claim.offsets)


def _without(found: Audit, why: str) -> Audit:
    """The audit, of which nothing is exact."""
    return replace(found, claim=replace(found.claim, unknown=(*found.claim.unknown, why)))


def _noted(found: Audit, note: str | None) -> Audit:
    return found if note is None else replace(found, notes=[*found.notes, f"{note}."])


def audit_routes(
    config: PipelineConfig,
    audit: AuditOne,
    *,
    say: Callable[[str], None] = log.info,
    debug: bool = False,
    given: SparkSession | None = None,
) -> list[Audit]:
    """Audit every table of a route. ``given``: the session of the log.

    If records name tables that aren't there, or if there is no table, one more audit counts them as lost. Raises what
    ``audit`` raises, and ConfigurationError if no epoch is known.
    """
    name = f"verify {config.name}"
    with shared_session(config.spark_options, name=name, s3=config.on_s3, debug=debug, given=given) as spark:
        before = _log(config, spark)
        done = before.done
        if done is None:
            raise _knows_no_epoch(config)
        assert config.route is not None
        misnamed = config.route.misnamed(done.tables, done.tables)
        logged = {table: replace(done.of(table), missed=done.stands.missed) for table in done.tables}
        audits = {table: audit(config.routed(table), of) for table, of in logged.items()}
        found = [_noted(each, misnamed.get(table)) for table, each in audits.items() if each is not None]
        found = before.doubted(_log(config, spark), found)
        missing = _without_table(config, spark, done, say)
    return [*found, missing] if missing is not None else found


def _log(config: PipelineConfig, spark: SparkSession) -> _Log:
    """The coordinator log as it is now."""
    place = config.coordinator
    assert place is not None
    row = None
    with suppress(NotADeltaTable):
        entries = AuditedTable(spark, place, "coordinator")
        mine = entries.rows(entries.newest).where(f"pipeline = {literal(config.name)}")
        row = mine.selectExpr(
            "max_by(struct(position, map_keys(sinks) AS tables), entry) FILTER (WHERE state = 'done') AS done",
            "max_by(struct(state, epoch), struct(entry, epoch)) AS last",
            "max_by(struct(epoch, sinks), struct(entry, epoch)) FILTER (WHERE state = 'decided') AS decided",
        ).first()
    if row is None or row["last"] is None:
        return _Log()
    done = row["done"]
    stands = metadata(done["position"], version=0, pipeline=config.name) if done is not None else None
    decided = row["last"]["epoch"] if row["last"]["state"] == "decided" else None
    if stands is None:
        return _Log(None, decided)
    holds = held(stands.epoch, row["decided"]["epoch"], row["decided"]["sinks"]) if row["decided"] is not None else {}
    return _Log(_Done(stands, done["tables"], holds), decided)


def held(done: int, decided: int, prepared: Mapping[str, str]) -> dict[str, int]:
    """Per table, the last epoch up to ``done`` of which it has a commit.

    ``prepared``: what the log says of the tables in epoch ``decided``, as JSON. An epoch without rows for a table of a
    route passes it by: then ``after`` is its last one. Without ``after`` every epoch is in the table.
    """

    def last(table: Mapping[str, Any]) -> int:
        after = table.get("after")
        if after is None:
            return done
        return decided if decided <= done and (table.get("rows") or table.get("receipt")) else int(after)

    return {name: last(json.loads(text)) for name, text in prepared.items()}


def _no_epoch(config: PipelineConfig) -> str:
    assert config.coordinator is not None
    return f"The coordinator log {config.coordinator.place!r} knows no epoch of pipeline {config.name!r}."


def _knows_no_epoch(config: PipelineConfig) -> ConfigurationError:
    return ConfigurationError(
        _no_epoch(config),
        hint="`lakelock run FILE` makes the tables; `lakelock recover FILE` settles an epoch that is in doubt.",
    )


def of_table(
    records: DataFrame, rows: DataFrame, letters: DataFrame | None, route: str
) -> tuple[DataFrame, DataFrame | None]:
    """The records that name the table, and the letters that aren't of records that name another one.

    ``route``: SQL, whether a record without a problem names the table. A record with a problem names none: it stays if
    the table has a row of it, or if there are letters, where it has to be.
    """
    mine = records.where(f"{PROBLEM} IS NULL AND ({route})")
    bad = records.where(f"{PROBLEM} IS NOT NULL")
    if letters is not None:
        others = records.where(f"{PROBLEM} IS NULL AND NOT ({route})").select(*PLACE)
        return mine.unionByName(bad), letters.join(others, list(PLACE), "left_anti")
    if "_offset" in rows.columns:
        return mine.unionByName(bad.join(rows.select(*PLACE).distinct(), list(PLACE), "left_semi")), None
    return mine, None


def _without_table(
    config: PipelineConfig, spark: SparkSession, done: _Done, say: Callable[[str], None]
) -> Audit | None:
    """The records that name a table that isn't there, counted as lost. None: there are none.

    Where there is no table at all, nobody else audits the dead letters: this audit has them as well.
    """
    from pyspark.sql import functions as F

    with closing(Topics(config.source)) as topics:
        held = topics.held(config.source.topics, done.stands.ids)
    since = done.stands.since or {}
    claim = Claim("transactional", {at: since.get(at, 0) for at in done.stands.offsets}, done.stands.offsets)
    cut = bounds(claim, held)
    again = plural(sum(part.stop - part.begin for part in cut), "offset")
    say(f"reading {again} again, for records without a table")
    known_forms = forms(config)
    route = known_forms.route
    assert route is not None
    sets_aside = config.on_bad_record == "dead_letter"
    records = kafka_records(spark, config.source.kafka_options, cut, headers=config.reads_headers)
    records, kept = with_headers(records, config.steps)
    every = decoded(records, known_forms, route.keys, ruled=sets_aside, kept=kept)
    others = [OTHER] if config.route is not None and config.route.other == "ignore" else []
    known = " OR ".join(map(route.names, (*done.tables, *others))) or "false"
    # By the columns before the steps, as `route.by` sees them. A filter may leave such a record out.
    named = F.expr(f"IF(NOT ({known}), struct({route.sql} AS name), NULL)")
    frame = every.frame.withColumn(_NAMED, named)
    every = replace(every, frame=frame.drop(SCHEMA_NAME) if known_forms.value.names is not None else frame)
    every = stepped(every, config.steps, kept_truncates(config, named=f"{_NAMED}.name"))
    nowhere = replace(every, frame=every.frame.where(f"{PROBLEM} IS NULL AND {_NAMED} IS NOT NULL"))
    if done.tables and nowhere.frame.isEmpty():
        return None
    letters = _letters(config, spark, done)
    in_table = sets_aside and config.dead_letters is not None and config.dead_letters.topic is None
    counts: list[dict[str, Any]] = []
    if in_table:
        nowhere, counts = _without_letters(nowhere, letters, config, cut)
    elif letters is not None:
        mine = letters.where(f"pipeline = {literal(config.name)}").select(*PLACE).distinct()
        nowhere = replace(nowhere, frame=nowhere.frame.join(mine, list(PLACE), "left_anti"))
    lost = nowhere.frame.selectExpr(
        f"{_NAMED}.name AS named",
        "struct(_topic AS topic, _partition AS `partition`, _offset AS offset, true AS claimed) AS at",
    )
    values = [row["named"] for row in lost.select("named").distinct().limit(_SHOWN + 1).collect()]
    if done.tables and not values and not any(each["kind"] in FAULTS for each in counts):
        return None
    counts += counted(lost, {"expected": "1L", "lost": "1L"}, {"expected": "at", "lost": "at"})
    if not done.tables:
        if any(end > claim.since[at] for at, end in claim.offsets.items()):
            claim = replace(claim, unknown=(_NO_TABLE,))
        if in_table:
            bad, theirs = _of_no_table(every, letters if letters is not None else no_letters(spark))
            counts += told_apart(bad, bad, theirs, config, cut)[1]
    shown = first_of([json.dumps(value, ensure_ascii=False) for value in values], _SHOWN)
    label = f"tables that aren't there, of {shown}" if values else "no table"
    return Audit(config.name, label, 0, claim, partitions(counts, claim), unchecked(cut))


def _of_no_table(every: Records, letters: DataFrame) -> tuple[Records, DataFrame]:
    """The records that have a problem whichever table they name, and the letters that aren't of other records: only
    the audit of a table knows what its sink refuses."""
    bad = every.frame.where(f"{PROBLEM} IS NOT NULL")
    others = every.frame.where(f"{PROBLEM} IS NULL").select(*PLACE)
    return replace(every, frame=bad.drop(_NAMED)), letters.join(others, list(PLACE), "left_anti")


def _letters(config: PipelineConfig, spark: SparkSession, done: _Done) -> DataFrame | None:
    table = letters_table(config, spark)
    return table.open_letters(done.stands.epoch) if table is not None else None


def _without_letters(
    nowhere: Records, letters: DataFrame | None, config: PipelineConfig, cut: Sequence[Bounds]
) -> tuple[Records, list[dict[str, Any]]]:
    """The records that name a table that isn't there, without those that have been set aside: a table whose records are
    all bad is never made. And the counts of their letters.

    A letter that says what isn't so of its record excuses nothing. What the table's sink would refuse isn't known here,
    nor what comes too late for it: such letters are believed.
    """
    if letters is None:
        return nowhere, []
    theirs = letters.join(nowhere.frame.select(*PLACE), list(PLACE), "left_semi").select(*letters.columns)
    left, counts = told_apart(nowhere, nowhere, theirs, config, cut, JUDGED_WITHOUT_A_SINK)
    late = letters.where(f"pipeline = {literal(config.name)} AND reason = 'late'").select(*PLACE).distinct()
    return replace(left, frame=left.frame.join(late, list(PLACE), "left_anti")), counts
