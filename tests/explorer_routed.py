"""Every state that a route's protocol can get into: tables that commit a decided epoch each for itself.

As in ``explorer``. What a process has prepared is in its own memory: it is gone with the process. Each table gets rows
of some epochs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from explorer import _AT, _ENDS, Answer, Explorer, FakeSink, Held, Next, Pc, Program, World, _key, _Seen, _with

from connector.protocol.decided import Row, State
from connector.protocol.two_phase import Abort, Commit, Prepare, run_epoch
from sinks.contract import Epoch, Position, Prepared
from sinks.errors import SinkError
from sinks.offsets import Offsets


class Table(FakeSink):
    """Looks where it stands, then commits, if no other commit has come first."""

    def __init__(self, name: str, *epochs: int) -> None:
        self.name = name
        self.epochs = epochs
        """Those that it gets rows of."""

    def answered(self, held: Held, epoch: Epoch, prepared: Prepared) -> Answer | None:
        """What a look at the position says already; None: the epoch is the next one."""
        found = held.visible[-1] if held.visible else None
        if found is not None and (found.number, found.owner) == (epoch.number, epoch.owner):
            return Answer(stands=True)
        if found is not None and found.number >= epoch.number:
            return Answer("Fenced")
        if (found.number if found else 0) != prepared.after:
            return Answer("PositionMismatch")
        return Answer(stands=True) if prepared.passes_by else None

    def commit(self, held: Held, pc: Pc, epoch: Epoch, prepared: Prepared, version: str | None) -> tuple[Held, Pc]:
        """``version``: of the rows that the process has in its memory; None: it has none."""
        answer = self.answered(held, epoch, prepared)
        if answer is not None:
            return held, answer
        if version is None:
            return held, Answer()
        if pc[0] == "look":
            return held, ("commit",)
        return self.show(held, epoch, f"{epoch.number} {version}", ""), Answer(stands=True)


@dataclass
class Routed(Explorer):
    program: Program = field(default_factory=lambda: Program(run_epoch=partial(run_epoch, stages=False)))

    def _refuse(self, world: World) -> str:
        rows = [row for entry in world.log for row in self._entries.values[entry]]
        decided: dict[int, Row] = {}
        for row in rows:
            if row.state is State.DECIDED:
                first = decided.setdefault(row.epoch.number, row)
                if (first.epoch.owner, first.config) != (row.epoch.owner, row.config):
                    return f"Epoch {row.epoch.number} was decided twice, and differently."
        for table, held in zip(self.sinks, world.sinks, strict=True):
            numbers = [each.number for each in held.visible]
            if numbers != [number for number in table.epochs if number <= max(numbers, default=0)]:
                return f"{table.name} holds an epoch twice, or one too few: {held.visible}"
            for each in held.visible:
                row = decided.get(each.number)
                if row is None or each.owner != row.epoch.owner:
                    return f"{table.name} holds what wasn't decided: {each}"
                if each.rows != f"{each.number} {row.config}":
                    return f"Epoch {each.number} is a mixture of two versions."
            over = [row.epoch.number for row in rows if row.state is State.DONE]
            if any(number in table.epochs and number not in numbers for number in over):
                return f"The log says done, with {table.name} at {numbers}."
        return ""

    def _wrong_in_the_end(self, now: World) -> str:
        for table, held in zip(self.sinks, now.sinks, strict=True):
            if len(held.visible) != sum(number <= self.epochs for number in table.epochs):
                return f"A process on its own ended with {table.name} at {held.visible}."
        return ""

    def _ask(self, now: World, seen: _Seen) -> Iterator[Next]:
        """Table by table, those that the log knows."""
        known = self._action(seen).known
        asked = [at for at, table in enumerate(self.sinks) if table.name in known]
        told = seen.progress
        if len(told) < len(asked):
            found = now.sinks[asked[len(told)]].visible
            told = (*told, found[-1][:2] if found else None)
        label = "asks where tables stand"
        if len(told) < len(asked):
            yield self._go_on(now, seen, label, told)
            return
        positions = {
            self.sinks[at].name: Position(each[0], Offsets({_AT: _ENDS[each[0]]}), owner=each[1]) if each else None
            for at, each in zip(asked, told, strict=True)
        }
        yield self._tell(now, seen, label, ("positions", _key(positions)), positions)

    def _prepare(self, now: World, seen: _Seen, action: Prepare) -> Iterator[Next]:
        """In the memory of the process."""
        number = action.epoch.number
        prepared = {}
        for table in self.sinks:
            after = max((each for each in table.epochs if each < number), default=0)
            count = int(number in table.epochs)
            if (count or after) and (not action.again or table.name in action.again):
                prepared[table.name] = Prepared(count, "", {}, after)
        key = ("prepared", _key(prepared))
        yield self._tell(now, seen, f"reads epoch {number}", key, (action.epoch, prepared))
        yield self._tell(now, seen, "fails to read", ("raise", "SinkError"), SinkError("no broker"), fault=True)

    def _commit(self, now: World, seen: _Seen, action: Commit) -> Iterator[Next]:
        """On all tables at once."""
        tables = [at for at, table in enumerate(self.sinks) if table.name in action.prepared]
        progress = seen.progress or tuple(("look",) for _ in tables)
        read = any(key[0] == "prepared" for key in seen.told if isinstance(key, tuple))
        version = self._version(seen.run) if read else None
        for index, at in enumerate(tables):
            table = self.sinks[at]
            if isinstance(progress[index], Answer):
                continue
            prepared = action.prepared[table.name]
            held, pc = table.commit(now.sinks[at], progress[index], action.epoch, prepared, version)
            after = now._replace(sinks=_with(now.sinks, at, held))
            label = f"commits epoch {action.epoch.number} on {table.name}: {progress[index][0]}"
            asked = [self.sinks[each] for each in tables]
            yield self._committed(after, seen, label, action.epoch, asked, _with(progress, index, pc), pc)

    def _abort(self, now: World, seen: _Seen, action: Abort) -> Iterator[Next]:
        """There is nothing to remove."""
        yield self._tell(now, seen, "lets go of what it has read", ("aborted",), None)
