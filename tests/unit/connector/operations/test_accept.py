"""What goes on after somebody else has replaced the table, or the target topic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine import assembly as assembling
from connector.engine import left_letters, one_table, settled
from connector.engine.assembly import Assembly
from connector.engine.outputs import Other
from connector.operations import accept
from connector.operations.accept import accepted, accepted_together
from sinks.contract import Epoch, Position
from sinks.errors import PreparedLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.topic import KafkaTopic

STANDS = Position(3, Offsets({TopicPartition("t", 0): 5}), replaced="by DROP and CREATE")


@pytest.mark.parametrize("of_rows", [True, False], ids=["rows of a query", "records"])
@pytest.mark.parametrize("what", [accepted, accepted_together])
def test_an_epoch_of_no_records_needs_no_query(what: Any, of_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    unused: Any = None
    reads: list[Any] = []

    def destination(assembly: Assembly) -> Any:
        def run_epoch(epoch: Epoch, _: int) -> Any:
            assert not epoch.ranges
            reads.append(assembly.reading({}).read)
            return SimpleNamespace(position=STANDS)

        return SimpleNamespace(
            run_epoch=run_epoch, position=lambda: STANDS, tidied=lambda at: at, settle=lambda: None, accept=lambda: True
        )

    monkeypatch.setattr(Assembly, "make_ready", lambda _: None)
    monkeypatch.setattr(Assembly, "field_check", None)
    monkeypatch.setattr(Assembly, "coordinator", lambda self, _: destination(self))
    monkeypatch.setattr(Assembly, "work", lambda self, *_, **__: SimpleNamespace(destination=destination(self)))
    monkeypatch.setattr(Assembly, "table", property(lambda self: self.outputs[0]))
    for module, name in ((assembling, "letters"), (assembling, "refuser"), (assembling, "no_records")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(settled, "no_records", lambda _: "none")
    monkeypatch.setattr(accept, "letters_table", lambda *_: None)
    monkeypatch.setattr(accept, "look_back_before_accept", lambda *_: None)

    config: Any = SimpleNamespace(name="p", of_rows=of_rows, clock=None)
    source: Any = SimpleNamespace(refuse_changed=None)
    kafka: Any = SimpleNamespace(forget=None, led_by=None)
    if what is accepted:
        sink: Any = SimpleNamespace(position=lambda: STANDS)
        output: Any = SimpleNamespace(derivation=SimpleNamespace(sink=sink, log=None), label="t")
    else:
        made: Any = object.__new__(KafkaTopic)
        monkeypatch.setattr(KafkaTopic, "name", "t")
        output = Other(unused, unused, made)
    assembly = Assembly(config, "run", unused, source, kafka, unused, [output], unused)
    assert what(assembly, lambda _: None) == STANDS
    (read,) = reads
    if of_rows:
        assert read(()) == "none"
        with pytest.raises(PreparedLost, match="only the streaming query has its rows"):
            read([OffsetRange("t", 0, 5, 6)])
    else:
        assert read is assembly.of_kafka


def test_the_letters_of_a_replaced_table_get_its_new_id_before_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they are another table's for ever: no retry takes them, and `verify` misses them. Then they are taken back,
    if the table was restored before it was replaced: after the epoch nobody would see that any more."""
    did: list[str] = []
    letters = SimpleNamespace(exists=lambda: True, take_along=lambda former: did.append(f"letters of {former}"))
    monkeypatch.setattr(accept, "letters_table", lambda *_: letters)
    monkeypatch.setattr(accept, "look_back_before_accept", lambda *_: did.append("look back"))
    standing = replace(STANDS, version=7)
    own = {7: SimpleNamespace(metadata=SimpleNamespace(table="old id")), 8: None}
    for version, said in ((7, ["letters of old id", "look back", "epoch"]), (8, ["look back", "epoch"])):
        standing = replace(STANDS, version=version)
        commits = SimpleNamespace(position=lambda found=standing: found, at=own.get)
        destination = SimpleNamespace(run_epoch=lambda *_: did.append("epoch") or SimpleNamespace(position=STANDS))
        derivation = SimpleNamespace(sink=SimpleNamespace(position=lambda: STANDS), log=None)
        assembly: Any = SimpleNamespace(
            config=SimpleNamespace(name="p", of_rows=False), run="me", source=None, make_ready=lambda: None, spark=None,
            table=SimpleNamespace(derivation=derivation, commits=commits),
            work=lambda *_, found=destination, **__: SimpleNamespace(destination=found),
        )  # fmt: skip
        accepted(assembly, lambda _: None)
        assert did == said
        did.clear()


def test_an_accepted_table_still_says_which_group_has_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "letters_table", lambda *_: None)
    monkeypatch.setattr(accept, "look_back_before_accept", lambda *_: None)
    stands = replace(STANDS, delivery="manual_commit", group="g1")
    epochs: list[Epoch] = []
    destination = SimpleNamespace(run_epoch=lambda epoch, _: epochs.append(epoch) or SimpleNamespace(position=stands))
    sink = SimpleNamespace(position=lambda: stands)
    assembly: Any = SimpleNamespace(
        config=SimpleNamespace(name="p", of_rows=False), run="me", source=None, make_ready=lambda: None, spark=None,
        table=SimpleNamespace(derivation=SimpleNamespace(sink=sink, log=None), commits=None),
        work=lambda *_, **__: SimpleNamespace(destination=destination),
    )  # fmt: skip
    accepted(assembly, lambda _: None)
    assert [(epoch.delivery, epoch.group) for epoch in epochs] == [("manual_commit", "g1")]
    assert Epoch.of_no_records(stands, pipeline="p", owner="me").group == ""


def test_accept_first_does_what_a_run_does_for_a_table_that_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """And closes the letters that the run of the newest epoch has marked. Its own epoch would hide both."""
    did: list[str] = []
    restored = replace(STANDS, restored_to=2, owner="killed")
    letters: Any = SimpleNamespace(exists=lambda: True, close_ahead=lambda run, *_, **__: did.append(run))
    monkeypatch.setattr(one_table, "after_restore", lambda _, __, position, ___: did.append(position.restored_to))
    monkeypatch.setattr(left_letters, "letters_table", lambda *_: letters)
    sink = SimpleNamespace(position=lambda: restored)
    table: Any = SimpleNamespace(derivation=SimpleNamespace(sink=sink, tombstones=None))
    config: Any = SimpleNamespace(
        dead_letters=object(), delivery="transactional", two_phase=False, whole=SimpleNamespace(two_phase=False)
    )
    unused: Any = None
    one_table.look_back_before_accept(config, unused, "accept", table)
    assert did == [2, "killed"]
