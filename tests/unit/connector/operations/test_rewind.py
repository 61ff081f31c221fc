"""What a table gives up that goes back."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config import Fold, PipelineConfig
from connector.engine import assembly as assembling
from connector.engine import settled
from connector.engine import undo as undoing
from connector.engine.assembly import Assembly
from connector.engine.fold import Folding
from connector.engine.undo import undo, undo_on_read
from connector.operations import rewind as rewinding
from connector.operations import rewind_together
from connector.operations.rewind import (
    Rewind,
    WhereTo,
    first_records,
    given_up,
    of_unsaid_column,
    planned,
    planned_from,
    rewound,
)
from connector.operations.rewind_together import _settled, rewound_together, version_before
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.recover import Remains, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit, lineage
from sinks.delta.restore import Target
from sinks.errors import (
    BadRecord,
    ConfigurationError,
    Diverged,
    Fenced,
    KeyMoved,
    OffsetsLost,
    SchemaMismatch,
    SinkError,
    StoreUnreachable,
    TopicRecreated,
)
from sinks.event_time import Clock
from sinks.offsets import OffsetRange, Offsets, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
STOOD = Position(1, Offsets({A0: 5}), {"a": "1"}, since=Offsets({A0: 2}))
OLD_A0 = TopicPartition("#1/a", 0)


def topics(
    *, deleted: Collection[str] = (), policies: Mapping[str, str | None] | None = None, minutes: Sequence[int] = ()
) -> Any:
    """``minutes``: of partition a-0, the time of each record, by its offset."""

    def at(when: datetime, held: TopicsHeld) -> Offsets:
        left = range(held.beginnings[A0], held.ends[A0])
        return Offsets({A0: next((offset for offset in left if minute(minutes[offset]) >= when), held.ends[A0])})

    return SimpleNamespace(
        starting=lambda held: lambda: Offsets(),
        began=lambda held: Offsets,
        remaining=lambda held: lambda partitions: {at: Remains(held.beginnings[at]) for at in partitions},
        deleted=lambda asked: {*deleted} & {*asked},
        cleanup_policies=lambda asked: {topic: (policies or {}).get(topic, "delete") for topic in asked},
        at=at,
        tombstones_kept=lambda asked: {},
    )


def minute(number: int) -> datetime:
    return datetime(2026, 11, 26, tzinfo=timezone.utc) + timedelta(minutes=number)


TOPICS = topics()
HELD = TopicsHeld(Offsets({A0: 0}), Offsets({A0: 9}), {"a": "1"}, datetime(2026, 11, 26, tzinfo=timezone.utc))


def test_what_was_read_since() -> None:
    stands = Position(2, Offsets({A0: 9, A1: 0, B0: 30}), {"a": "1", "b": "2"}, since=Offsets({A0: 2, A1: 0, B0: 20}))
    assert given_up(stands, STOOD) == [OffsetRange("a", 0, 5, 9), OffsetRange("b", 0, 20, 30)]
    assert given_up(stands, None) == [OffsetRange("a", 0, 2, 9), OffsetRange("b", 0, 20, 30)]
    assert given_up(STOOD, STOOD) == []


def test_offsets_of_a_topic_that_was_made_again_say_nothing_of_the_new_one() -> None:
    stands = Position(3, Offsets({OLD_A0: 5, A0: 3}), {"#1/a": "1", "a": "2"}, since=Offsets({OLD_A0: 2, A0: 0}))
    assert given_up(stands, STOOD) == [OffsetRange("#1/a", 0, 2, 5), OffsetRange("a", 0, 0, 3)]


def test_a_plan_goes_by_where_the_pipeline_stands() -> None:
    """With ``merge: on_read`` that is the change log: a RESTORE of the table throws its epochs away."""
    told: dict[str, Any] = {"find": lambda: Target(1, STOOD), "wanted": "1"}
    log = Position(4, Offsets({A0: 9}), {"a": "1"}, since=Offsets({A0: 2}), version=7)
    plan = planned(log, HELD, TOPICS, **told)
    assert (plan.position, plan.next_offsets, plan.again) == (log, Offsets({A0: 5}), 4)
    of_two = Position(4, Offsets({A0: 9, B0: 3}), {"a": "1", "b": "2"}, since=Offsets({A0: 2}), version=7)
    with pytest.raises(OffsetsLost, match=r"b-0.*Their topics are no longer read"):
        planned(of_two, HELD, TOPICS, **told)


def plan_of(
    held: TopicsHeld, asked: Any, stands: Position, *, version: int | None = 1, allow_data_loss: bool = False
) -> Rewind:
    return planned_from(stands, Target(version, STOOD), held, asked, clock=None, allow_data_loss=allow_data_loss)


@pytest.mark.parametrize("version", [1, None])
def test_records_of_a_deleted_topic_are_given_up_only_if_the_user_says_so(version: int | None) -> None:
    stands = Position(4, Offsets({A0: 9, B0: 3}), {"a": "1", "b": "2"}, since=Offsets({A0: 2}))
    for told in (False, True):  # a topic that is there can be put back into the file
        with pytest.raises(OffsetsLost, match=r"b-0.*no longer read") as refused:
            plan_of(HELD, TOPICS, stands, version=version, allow_data_loss=told)
        assert ("RESTORE" in refused.value.hint) == (version is not None)
    deleted = topics(deleted={"a", "b"})
    with pytest.raises(OffsetsLost, match=r"b-0.*Kafka no longer holds it") as refused:
        plan_of(HELD, deleted, stands, version=version)
    assert "--allow-data-loss" in refused.value.hint
    found = plan_of(HELD, deleted, stands, version=version, allow_data_loss=True)
    assert found.lost == [OffsetRange("b", 0, 0, 3)]
    assert "Kafka no longer holds it" in str(found)


def test_rows_of_a_recreated_topic_are_never_given_up() -> None:
    stands = Position(4, Offsets({OLD_A0: 9, A0: 3}), {"#1/a": "1", "a": "2"}, since=Offsets({OLD_A0: 2}))
    with pytest.raises(OffsetsLost, match="recreated since"):
        plan_of(replace(HELD, ids={"a": "2"}), topics(deleted={"#1/a"}), stands, allow_data_loss=True)


@given(
    beginning=st.integers(0, 12),
    stood=st.integers(2, 9),
    more=st.integers(0, 3),
    policy=st.sampled_from(["delete", "compact", "compact,delete", None]),
)
def test_a_rewind_gives_up_no_record_in_silence(beginning: int, stood: int, more: int, policy: str | None) -> None:
    """What Kafka has removed, or may have compacted, is refused, or named if the user allows it."""
    stands = stood + more
    held = replace(HELD, beginnings=Offsets({A0: beginning}), ends=Offsets({A0: 12}))
    position = Position(4, Offsets({A0: stands}), {"a": "1"}, since=Offsets({A0: 2}))
    target, asked = Target(1, replace(STOOD, offsets=Offsets({A0: stood}))), topics(policies={"a": policy})
    gone = {offset for offset in range(stood, stands) if offset < beginning}
    unsure = stood < stands and policy != "delete"
    found = planned_from(position, target, held, asked, clock=None, allow_data_loss=True)
    assert {offset for range_ in found.lost for offset in range(range_.start, range_.end)} == gone
    assert bool(found.compacted) == unsure
    if not gone and not unsure:
        assert planned_from(position, target, held, asked, clock=None) == found
        return
    with pytest.raises(OffsetsLost) as refused:
        planned_from(position, target, held, asked, clock=None)
    assert "--allow-data-loss" in refused.value.hint
    for what in (*map(str, found.lost), *found.compacted):
        assert what in refused.value.message
        assert what in str(found)


@given(
    minutes=st.lists(st.integers(0, 9), max_size=9).map(sorted),
    since=st.integers(0, 9),
    beginning=st.integers(0, 9),
    when=st.integers(0, 10),
    policy=st.sampled_from(["delete", "compact,delete", None]),
)
def test_kafkas_timestamps_say_nothing_of_records_that_are_gone(
    minutes: list[int], since: int, beginning: int, when: int, policy: str | None
) -> None:
    """Either no record from that time on is before the offset that they give, or a rewind by them is refused."""
    end = len(minutes)
    since, beginning = min(since, end), min(beginning, end)
    held = replace(HELD, beginnings=Offsets({A0: beginning}), ends=Offsets({A0: end}))
    stands = Position(4, Offsets({A0: end}), {"a": "1"}, since=Offsets({A0: since}))
    asked = topics(policies={"a": policy}, minutes=minutes)
    shown = beginning <= since or any(time < when for time in minutes[beginning:])
    if since == end or (shown and policy == "delete"):
        found = first_records(asked, minute(when), held, stands)[A0]
        assert all(time < when for time in minutes[since:found])
    else:
        with pytest.raises(OffsetsLost, match="nobody knows which versions") as refused:
            first_records(asked, minute(when), held, stands)
        assert "--to-epoch" in refused.value.hint


def test_a_version_before_the_oldest_record_of_today_is_not_one_before_that_time() -> None:
    """Retention has removed [0, 500), and T lies in there: the version that ends at 495 holds records of after T."""
    held = replace(HELD, beginnings=Offsets({A0: 500}), ends=Offsets({A0: 600}))
    stands, asked = Position(4, Offsets({A0: 600}), {"a": "1"}), topics(minutes=range(600))
    with pytest.raises(OffsetsLost, match="a-0, which begins at offset 500 now"):
        first_records(asked, minute(100), held, stands)
    assert first_records(asked, minute(550), held, stands) == {A0: 550}
    nothing_left = replace(held, beginnings=held.ends)
    with pytest.raises(OffsetsLost, match="a-0"):
        first_records(asked, minute(100), nothing_left, stands)
    assert first_records(asked, minute(100), nothing_left, stands.moved_to(Offsets({A0: 0}))) == {A0: 600}


def test_a_plan_says_that_an_earlier_versions_commit_does_not_name_the_column_of_its_times() -> None:
    plan = Rewind(STOOD, Target(1, STOOD), STOOD.offsets, 0, clock="the column t (event_time)")
    by_t, by_kafka = (cast(PipelineConfig, SimpleNamespace(clock=clock)) for clock in ("t", None))
    assert "doesn't name the column" in str(of_unsaid_column(plan, by_t))
    assert of_unsaid_column(plan, by_kafka) == plan
    named = replace(plan, target=Target(1, replace(STOOD, clock=Clock(column="t"))))
    assert of_unsaid_column(named, by_t) == named


def test_an_epoch_that_others_have_built_on_is_left_and_named() -> None:
    committed = Position(7, Offsets(), version=12)
    table: Any = SimpleNamespace(label="lake.flights")
    commits: Any = SimpleNamespace(committed_after=lambda version: version == 12)
    with pytest.raises(SinkError, match=r"epoch 7 .* committed to 'lake.flights'") as found:
        undo(table, commits, committed, TopicRecreated("Topic 't' was deleted and recreated."))
    assert "version 12" in found.value.hint


@pytest.mark.parametrize("error", [SchemaMismatch("delta.appendOnly"), SinkError("files gone"), OSError("no route")])
def test_an_epoch_whose_restore_fails_is_named(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the table: an error that says only why would read as if nothing had been written."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(undoing, "restore", fails)
    committed = Position(7, Offsets({A0: 9}), version=12)
    table: Any = SimpleNamespace(label="lake.flights")
    commits: Any = SimpleNamespace(committed_after=lambda _: False)
    with pytest.raises(SinkError, match=r"epoch 7 .* committed to 'lake.flights'") as found:
        undo(table, commits, committed, TopicRecreated("Topic 't' was deleted and recreated."))
    assert str(error) in found.value.message
    assert "version 12" in found.value.hint
    assert found.value.__cause__ is error


def test_an_epoch_that_stays_in_a_change_log_is_named_and_no_version_of_the_log() -> None:
    before, seen = Position(139, Offsets({A0: 9}), version=136), Position(90, Offsets({A0: 5}), version=3)
    epoch = replace(Epoch.of_no_records(before, pipeline="p", owner="r"), number=140)
    stands = Position(141, Offsets({A0: 12}), owner="another", version=138)
    table: Any = SimpleNamespace(label="lake.flights", spark=None, position=lambda: seen)
    log: Any = SimpleNamespace(looked_for=nullcontext, position=lambda: stands)
    reading = MergeOnRead(table, table, log, table, table, pipeline="p")
    folding = Folding(reading, Fold(), "p", "r", lambda _: None)
    with pytest.raises(SinkError, match=r"epoch 140 .* committed to 'lake.flights'.* Another run") as found:
        undo_on_read(folding, table, epoch, TopicRecreated("Topic 't' was deleted and recreated."))
    assert "last epoch before 140" in found.value.hint
    assert "version" not in found.value.hint


@pytest.mark.parametrize(
    "error",
    [
        KeyMoved("moved"),
        BadRecord("bad"),
        SchemaMismatch("narrow"),
        Diverged("other rows"),
        RuntimeError("[DELTA_TABLE_NOT_FOUND]"),
    ],
)
def test_an_epoch_that_a_sink_refuses_is_given_up_and_one_that_may_pass_is_not(error: Exception) -> None:
    epoch = Epoch(
        pipeline="p", number=3, owner="r", ranges=(), offsets=Offsets({A0: 9}), topics={}, read_to=None, expected=STOOD
    )
    row = Row(State.DECIDED, epoch, "r")
    log: Any = SimpleNamespace(read=lambda: LogHeld(1, row, row))

    def recovering(error: Exception) -> Any:
        def recover(*, join: bool) -> None:
            assert not join
            raise error

        return SimpleNamespace(recover=recover)

    assert _settled(recovering(error), log) == (log.read(), None)
    for other in (
        StoreUnreachable("no answer"),
        RuntimeError("ExecutorLostFailure"),
        Fenced("replaced", owner="other", epoch=3),
    ):
        with pytest.raises(type(other)):
            _settled(recovering(other), log)


@pytest.mark.parametrize("agrees", [False, True])
def test_the_plan_of_several_tables_alone_settles_nothing(agrees: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch in doubt may be that of a run, which goes on."""
    epoch = Epoch(
        pipeline="p", number=3, owner="r", ranges=(), offsets=Offsets({A0: 9}), topics={}, read_to=None, expected=STOOD
    )
    row = Row(State.DECIDED, epoch, "r")
    held, did = [LogHeld(1, row, row)], list[str]()

    def recover(*, join: bool) -> None:
        did.append("settled")
        held.append(LogHeld(2, replace(row, state=State.DONE), row))

    def planned(_: object, __: object, known: LogHeld, ___: object) -> Any:
        goes_to = (2 if known.in_doubt is None else 1, {})
        aim = SimpleNamespace(epoch=goes_to[0], epoch_after=lambda *_, **__: epoch)
        plan = SimpleNamespace(position=STOOD)
        return SimpleNamespace(plan=plan, known=known, goes_to=goes_to, aim=aim, tables={}, back={})

    coordinator = SimpleNamespace(
        recover=recover, tidied=lambda _: None, rewind=lambda *_, back_to: did.append(f"back to {back_to}")
    )
    assembly: Any = SimpleNamespace(
        log=SimpleNamespace(read=lambda: held[-1]), coordinator=lambda _: coordinator, locations=(), routes=None,
        run="me", config=SimpleNamespace(name="p", of_rows=False),
    )  # fmt: skip
    monkeypatch.setattr(rewind_together, "_planned", planned)
    monkeypatch.setattr(rewind_together, "without_query", lambda assembly: assembly)
    monkeypatch.setattr(rewind_together, "replace", lambda plan, **_: plan)

    def confirm(_: object) -> bool:
        did.append("asked")
        return agrees

    rewound_together(assembly, WhereTo(epoch=1), confirm=confirm, observe=lambda _: None)
    # The goal may have moved with what was settled: it is asked for again.
    assert did == (["asked", "settled", "asked", "back to 2"] if agrees else ["asked"])


@pytest.mark.parametrize("state", [State.DECIDED, State.BEGUN, State.DONE])
def test_a_plan_that_fails_for_an_epoch_in_doubt_names_the_way_to_settle_it(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first epoch of several sinks is settled, nothing says what their tables were before it."""
    epoch = Epoch(
        pipeline="p", number=1, owner="r", ranges=(), offsets=Offsets({A0: 9}), topics={}, read_to=None, expected=None
    )
    row = Row(State.DECIDED, epoch, "r")
    held = LogHeld(1, replace(row, state=state), row)

    def planned(*_: object) -> Any:
        raise ConfigurationError("a: it was no sink of the pipeline yet.", hint="Go back less far.")

    monkeypatch.setattr(rewind_together, "_planned", planned)
    monkeypatch.setattr(rewind_together, "without_query", lambda assembly: assembly)
    assembly: Any = SimpleNamespace(
        log=SimpleNamespace(read=lambda: held), coordinator=lambda _: None, config=SimpleNamespace(name="p")
    )
    with pytest.raises(ConfigurationError, match="no sink of the pipeline yet") as error:
        rewound_together(assembly, WhereTo(epoch=0), confirm=lambda _: True, observe=lambda _: None)
    assert ("Epoch 1 is in doubt" in error.value.hint) is (state is State.DECIDED)
    assert ("lakelock recover" in error.value.hint) is (state is State.DECIDED)
    assert error.value.hint.endswith("Go back less far.")


def test_what_others_have_committed_since_an_epoch_is_not_before_it() -> None:
    noon = datetime(2026, 11, 26, tzinfo=timezone.utc)
    history = [
        Commit(0, noon, "CREATE TABLE", {}, None),
        Commit(1, noon, "WRITE", {}, CommitMetadata("p", Position(7, Offsets({A0: 5}), owner="run")).to_json()),
        Commit(2, noon, "OPTIMIZE", {}, None),
        Commit(3, noon, "SET TBLPROPERTIES", {}, None),
    ]
    commits: Any = SimpleNamespace(
        lineage=lambda: lineage(3, dict(enumerate(history)).get, pipeline="p"), is_own=lambda *_: True
    )
    assert version_before(commits, 7) == 0
    assert version_before(commits, 6) is None
    commits.is_own = lambda *_: False
    assert version_before(commits, 7) is None


def test_the_table_of_a_streaming_query_goes_back_without_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch after the RESTORE has no records: nothing of the query's batches is read."""
    did: list[Any] = []

    class Stopped(Exception):
        """Here the test ends: what follows is as of any other table."""

    def work(assembly: Assembly, *_: Any, **__: Any) -> Any:
        did.append(assembly.reading({}).read(()))
        raise Stopped

    nothing: Any = None
    plan = Rewind(STOOD, Target(1, STOOD), STOOD.offsets, 0)
    monkeypatch.setattr(rewinding, "planned", lambda *_, **__: plan)
    monkeypatch.setattr(rewinding, "with_others", lambda plan, _: plan)
    monkeypatch.setattr(Assembly, "work", work)
    monkeypatch.setattr(Assembly, "locations", ())
    monkeypatch.setattr(Assembly, "field_check", None)
    for name in ("letters", "refuser", "no_records"):
        monkeypatch.setattr(assembling, name, lambda *_: None)
    monkeypatch.setattr(settled, "no_records", lambda _: "none")
    config: Any = SimpleNamespace(name="p", of_rows=True, clock=None)
    sink = SimpleNamespace(position=lambda: STOOD)
    table: Any = SimpleNamespace(commits=sink, derivation=SimpleNamespace(sink=sink), label="t")
    monkeypatch.setattr(Assembly, "table", table)
    source: Any = SimpleNamespace(refuse_changed=None, look=lambda: None)
    kafka: Any = SimpleNamespace(forget=None, led_by=None)
    assembly = Assembly(config, "run", nothing, source, kafka, nothing, [table], nothing)
    with pytest.raises(Stopped):
        rewound(assembly, WhereTo(epoch=1), confirm=lambda _: True, observe=lambda _: None)
    assert did == ["none"]
