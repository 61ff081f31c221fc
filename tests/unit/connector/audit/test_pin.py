"""What a table of a route claims, by its own commits and by the coordinator log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import connector.audit as auditor
from connector.audit.claim import At, Extent, Held, Logged, Metadata, Range, metadata
from connector.audit.rows import Earlier
from connector.config import parse
from sinks.errors import ConfigurationError

P0 = At("t", 0)
ON_READ = {"type": "delta_upsert", "path": "lake/{kind}", "key": "k", "merge": "on_read", "fold": {"epochs": 9}}


def commit(epoch: int, version: int = 5) -> Metadata:
    return Metadata(version, epoch, {P0: 10 * epoch}, {P0: 0}, {"t": "id"}, (), "transactional")


def pinned(epoch: int, upto: Logged | None, log: Any = None, *, sink: Any = None, restored: bool = False) -> Any:
    """Of a table whose newest commit is that of this epoch."""
    config = parse(
        {
            "name": "p",
            "source": {"topics": "t", "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "kind STRING, k STRING"},
            "coordinator": {"path": "lake/_log"},
            "route": {"by": "kind", "sink": sink or {"type": "delta_append", "path": "lake/{kind}"}},
        }
    )
    table = SimpleNamespace(
        newest=5, pin=lambda _: 5, metadata=lambda *_: (commit(1), commit(epoch)), others=lambda _: {},
        extents=lambda *_: {}, earlier=lambda *_, **__: Earlier(), change_log=lambda: log,
        restored_after=lambda _: restored,
    )  # fmt: skip
    topics = SimpleNamespace(held=lambda *_: Held({P0: 0}, {P0: 100}, {"t": "id"}))
    return auditor._pin(config.routed("a"), table, topics, None, {}, upto)  # type: ignore[arg-type]


def change_log(epoch: int, *, replaced: bool = False) -> Any:
    return SimpleNamespace(
        newest=7, metadata=lambda *_: (None, commit(epoch, 7)), restored_after=lambda _: False,
        replaced_after=lambda _: replaced,
    )  # fmt: skip


@pytest.mark.parametrize("sink", [None, ON_READ])
def test_a_table_that_the_last_epochs_passed_by_claims_them(sink: Any) -> None:
    """A letter whose retry was such an epoch is closed, if a filter left its record out."""
    found = pinned(3, Logged(9, {P0: 90}, holds=3), sink=sink)
    assert (found.epoch, found.claim.offsets, found.claim.unknown) == (9, {P0: 90}, ())


def test_what_an_epoch_missed_that_passed_a_table_by_makes_its_rows_doubtful() -> None:
    late = Range("t", 0, 40, 90)
    found = pinned(3, Logged(9, {P0: 90}, holds=3, missed=(late,)))
    assert (found.claim.missed, [each.missed for each in found.cut]) == ((late,), [40])


def test_an_epoch_that_only_some_tables_have_yet_counts_where_it_is() -> None:
    found = pinned(10, Logged(9, {P0: 90}, holds=9))
    assert (found.epoch, found.claim.offsets) == (10, {P0: 100})


@pytest.mark.parametrize(
    ("log", "restored", "unknown"),
    [
        (change_log(8), False, 0),
        (None, False, 1),
        (change_log(7), False, 1),
        (change_log(8), True, 1),
        (change_log(8, replaced=True), False, 1),
    ],
)
def test_a_table_that_waits_for_a_fold_claims_what_the_last_one_says(log: Any, restored: bool, unknown: int) -> None:
    found = pinned(3, Logged(9, {P0: 90}, holds=8), log, sink=ON_READ, restored=restored)
    assert (found.epoch, found.claim.offsets, len(found.claim.unknown)) == (3, {P0: 30}, unknown)
    assert len(found.notes) == (log is not None)


def test_a_table_waits_for_a_fold_also_if_the_file_merges_on_write_by_now() -> None:
    """Only a run folds what was appended. What no longer counts has no say."""
    on_write = {"type": "delta_upsert", "path": "lake/{kind}", "key": "k"}
    upto = Logged(9, {P0: 90}, holds=8)
    for logged in (upto, None):
        found = pinned(3, logged, change_log(8), sink=on_write)
        assert (found.epoch, found.claim.offsets, found.claim.unknown) == (3, {P0: 30}, ())
        (note,) = found.notes
        assert "was merged on read" in note
        assert "epochs 4 to 8 beside it, which were not compared. The file says merge: on_write by now" in note
    closed = Logged(9, {P0: 90}, holds=3)
    for log, restored in (
        (None, False),
        (change_log(2), False),
        (change_log(8, replaced=True), False),
        (change_log(8), True),
    ):
        found = pinned(3, closed, log, sink=on_write, restored=restored)
        assert (found.epoch, found.claim.offsets, found.notes) == (9, {P0: 90}, [])


def test_a_table_that_the_coordinator_log_does_not_know_yet_claims_what_it_says_itself() -> None:
    found = pinned(3, None)
    assert (found.epoch, found.claim.offsets) == (3, {P0: 30})


@pytest.mark.parametrize("delivery", ["transactional", "manual_commit"])
def test_another_group_than_the_tables_own_does_not_end_the_claim(delivery: str) -> None:
    """It may have lower offsets: what is lost behind them would count as not expected."""
    handed_over = metadata(
        '{"lakelock": 1, "pipeline": "p", "epoch": 4, "offsets": {"t": {"0": 50}}, "since": {"t": {"0": 0}},'
        '"topics": {"t": "id"}, "delivery": "manual_commit", "group": "team"}',
        version=5,
        pipeline="p",
    )
    assert handed_over is not None
    table = SimpleNamespace(
        newest=5, pin=lambda given: given or 5, metadata=lambda *_: (commit(1), handed_over), others=lambda _: {},
        extents=lambda *_: {P0: Extent(0, 70)}, earlier=lambda *_, **__: Earlier(), change_log=lambda: None,
    )  # fmt: skip
    topics = SimpleNamespace(held=lambda *_: Held({P0: 0}, {P0: 100}, {"t": "id"}))

    def claim_of(group: str, version: int | None = None) -> Any:
        kafka = {"bootstrap.servers": "b:1", "group.id": group}
        config = parse(
            {
                "name": "p",
                "delivery": delivery,
                "source": {"topics": ["t"], "kafka": kafka},
                "value": {"format": "json", "schema": "k STRING"},
                "sinks": [{"type": "delta_append", "path": "lake/t"}],
            }
        )
        return auditor._pin(config, table, topics, version, {P0: 60}, None).claim  # type: ignore[arg-type]

    assert claim_of("team").offsets == {P0: 60}
    assert claim_of("p", version=4).offsets == {P0: 70}  # of an older version the rows tell
    with pytest.raises(ConfigurationError, match="The pipeline file names the group 'p'") as refused:
        claim_of("p")
    assert 'group.id: "team"' in refused.value.hint
