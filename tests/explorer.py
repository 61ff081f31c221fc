"""Every state that two-phase commit can get into, not a sample: processes that run it over a log and sinks in memory.

Two processes are alive at a time, and take turns in any way, one *atomic* step at a time: what the protocol calls one
action is several of those, and the other process may come, or a crash, between any two. A process that crashed or
stopped is followed by a fresh one, ``processes`` in all. A *zombie* needs nothing of its own: it is a process whose
turn doesn't come for long.

States are merged: what the world holds, with what each process has seen since its last epoch. Processes are generators,
which can't be copied: one is made anew and handed what it had seen (``_Seen``). The search is breadth first, so the
schedule that a ``Violation`` tells is a shortest one.

In every state the invariants are checked (``_refuse``), and from every state of the world that was reached a fresh
process runs alone: it has to bring every record into every sink, once, and to leave nothing behind.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from connector.protocol import two_phase
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.two_phase import (
    Abort,
    Action,
    Append,
    AskPositions,
    Begin,
    Commit,
    Prepare,
    Ran,
    ReadLog,
    Recovered,
    Steps,
    recover,
    run_epoch,
)
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import CommitUnknown, Fenced, LakelockError, PositionMismatch, SinkError
from sinks.offsets import OffsetRange, Offsets, TopicPartition

_AT = TopicPartition("t", 0)
_ENDS = (0, 2, 3, 7, 8)
"""Where the topic's epochs end."""


class Violation(AssertionError):
    """An invariant doesn't hold; the schedule that leads there."""


# ----------------------------------------------------------------------------------------------------- what sinks hold


class Staged(NamedTuple):
    name: str
    attempt: int
    rows: str
    """``[start, end) version``: which records, by which version of the pipeline file."""
    whole: bool


class Visible(NamedTuple):
    number: int
    owner: str
    rows: str
    staged: str


class Held(NamedTuple):
    """What one sink holds. Immutable, as all that a state is made of."""

    visible: tuple[Visible, ...] = ()
    staged: frozenset[Staged] = frozenset()
    objects: frozenset[tuple[str, str]] = frozenset()
    """Object store only: (name, rows) of what a plain lister sees."""
    producer: str = ""
    """Topic only: whose producer was the last to introduce itself; another one's transaction can't be committed."""


class Answer(NamedTuple):
    """How one sink's commit ended: with an error's name, with a position, or (neither) with nothing to commit."""

    error: str = ""
    stands: bool = False


Pc = tuple[str, ...] | Answer
"""Where a commit stands: the name of its next step and what it keeps in mind; or its end."""


class FakeSink:
    """``commit`` in atomic steps, as ``step(held, pc, ...)`` -> what the sink holds then, and the next step."""

    name = "sink"
    first: Pc = ("look",)

    def staged(self, epoch: Epoch, run: str, version: str, *, whole: bool) -> Staged:
        """What a process stages. A run prepares an attempt only once, so that this name is unique."""
        range_ = epoch.ranges[0]
        rows = f"[{range_.start}, {range_.end}) {version}"
        return Staged(f"{epoch.attempt}-{run}", epoch.attempt, rows, whole)

    def settled(self, held: Held, epoch: Epoch) -> Answer | None:
        """What a look at the position says already; None: the epoch is the next one."""
        found = held.visible[-1] if held.visible else None
        if found is not None and (found.number, found.owner) == (epoch.number, epoch.owner):
            return Answer(stands=True)
        if found is not None and found.number >= epoch.number:
            return Answer("Fenced")
        expected = epoch.expected.epoch if epoch.expected else 0
        return None if (found.number if found else 0) == expected else Answer("PositionMismatch")

    def find(self, held: Held, name: str) -> Staged | None:
        return next((each for each in held.staged if each.name == name and each.whole), None)

    def show(self, held: Held, epoch: Epoch, rows: str, name: str) -> Held:
        return held._replace(visible=(*held.visible, Visible(epoch.number, epoch.owner, rows, name)))

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        raise NotImplementedError

    def lost(self, held: Held, epoch: Epoch) -> Pc:
        """Nothing is staged: because it never was, or because another process has committed it in the meantime?"""
        return self.settled(held, epoch) or Answer()


class Delta(FakeSink):
    """Reads what is staged; then one commit, that is refused if another one has come first."""

    name = "delta"

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "look":
            return held, self.settled(held, epoch) or ("read",)
        if pc[0] == "read":
            found = self.find(held, name)
            return held, ("commit", found.rows) if found else ("look for lost",)
        if pc[0] == "look for lost":
            return held, self.lost(held, epoch)
        answer = self.settled(held, epoch)
        return (held, answer) if answer else (self.show(held, epoch, str(pc[1]), name), Answer(stands=True))


class Objects(FakeSink):
    """Completes an upload, which a plain lister sees; then a manifest, put if absent, for all others."""

    name = "objects"

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "look":
            return held, self.settled(held, epoch) or ("complete",)
        if pc[0] == "complete":
            found = self.find(held, name)
            if found:
                objects = held.objects | {(name, found.rows)}
                return held._replace(staged=held.staged - {found}, objects=objects), ("manifest", found.rows)
            there = next((rows for each, rows in held.objects if each == name), None)
            return held, ("manifest", there) if there else ("look for lost",)
        if pc[0] == "look for lost":
            return held, self.lost(held, epoch)
        there = next((each for each in held.visible if each.number == epoch.number), None)
        if there is not None:
            return held, Answer(stands=True) if there.owner == epoch.owner else Answer("Fenced")
        return self.show(held, epoch, str(pc[1]), name), Answer(stands=True)


class KafkaTopic(FakeSink):
    """A transaction with rows and position: whose producer was the last to introduce itself can commit."""

    name = "topic"
    first = ("introduce",)

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "introduce":
            return held._replace(producer=run), ("look",)
        if pc[0] == "look":
            answer = self.settled(held, epoch)
            # A producer that is done commits nothing any more: one state less to tell apart.
            return (self._done(held, run), answer) if answer else (held, ("read",))
        if pc[0] == "read":
            found = self.find(held, name)
            return held, ("commit", found.rows) if found else ("look for lost",)
        if pc[0] == "look for lost":
            return self._done(held, run), self.lost(held, epoch)
        if held.producer != run:
            return held, self.fenced(pc)
        return self._done(self.show(held, epoch, str(pc[1]), name), run), Answer(stands=True)

    def fenced(self, pc: Pc) -> Pc:
        """Another process was faster: it may have committed this very epoch."""
        return ("introduce",)

    def _done(self, held: Held, run: str) -> Held:
        return held._replace(producer="" if held.producer == run else held.producer)


# ------------------------------------------------------------------------------------------------------- what runs do


@dataclass(frozen=True)
class Program:
    """What a run of the pipeline does, from its start to the topic's end."""

    recover: Callable[[str, str], Steps[Recovered]] = recover
    run_epoch: Callable[[Epoch, int, str, Row | None], Steps[Ran]] = run_epoch


def plan(run: str, stands: Epoch | None) -> Epoch:
    """The next epoch: the same, whoever plans it."""
    number = stands.number + 1 if stands else 1
    expected = Position(stands.number, stands.offsets, owner=stands.owner) if stands else None
    ranges = (OffsetRange(*_AT, _ENDS[number - 1], _ENDS[number]),)
    return Epoch("p", number, run, ranges, Offsets({_AT: _ENDS[number]}), {}, None, expected)


def _finish(number: int, done: Row | None) -> Steps[None]:
    if done:
        yield Append(number + 1, (done,))
        yield Abort(before=number + 2)


@dataclass(frozen=True)
class _Seen:
    """A process: its part of the program, and all that it was told in it. The same again is in the same place."""

    run: str
    """Empty: it has done nothing yet that is done in its name. The order of names is that in which they are used."""
    part: Hashable = "recover"
    told: tuple[Hashable, ...] = ()
    progress: tuple[Any, ...] = ()
    """How far it is in the action that it performs."""


class World(NamedTuple):
    log: tuple[int, ...] = ()
    """Ids of the entries."""
    sinks: tuple[Held, ...] = ()
    gone: tuple[tuple[int, str], ...] = ()
    """(sink, name) of what somebody has removed."""


class Next(NamedTuple):
    label: str
    world: int
    process: int | None
    """None: it has ended."""
    fault: bool = False
    """Not what happens where all goes well."""


class Explored(NamedTuple):
    states: int
    worlds: int
    ends: frozenset[str]
    """How processes ended: ``done``, or the error."""


class Ids:
    """Small numbers for values, so that a state is a few of them: quick to compare, and kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._ids: dict[Hashable, int] = {}

    def of(self, key: Hashable, value: Any = None) -> int:
        known = self._ids.setdefault(key, len(self.values))
        if known == len(self.values):
            self.values.append(key if value is None else value)
        return known


@dataclass
class Explorer:
    sinks: Sequence[FakeSink]
    program: Program = field(default_factory=Program)
    epochs: int = 2
    processes: int = 4
    """Altogether; two at a time. With n of them there are up to n - 2 crashes that somebody comes after."""
    removed: int = 0
    """How often somebody removes what was staged for a decided epoch."""
    edited: bool = False
    """Whether all processes but the first have another version of the pipeline file, whose rows differ."""
    honest: bool = True
    """Whether a log refuses a number that is taken."""

    def __post_init__(self) -> None:
        self._worlds, self._processes, self._entries = Ids(), Ids(), Ids()
        self._actions: dict[tuple[str, Hashable, tuple[Hashable, ...]], Action | str] = {}
        self._told: dict[Hashable, Any] = {}
        self._parts: dict[Hashable, Callable[[str], Steps[Any]]] = {
            "recover": lambda run: self.program.recover(run, self._version(run))
        }
        self._steps: dict[tuple[int, int], list[Next]] = {}
        self._arrived: dict[tuple[int, int], int | str] = {}
        self._known: dict[tuple[int, ...], LogHeld] = {}
        self._ends: set[str] = set()

    # ---------------------------------------------------------------------------------------------------- the search

    def run(self) -> Explored:
        start = self._worlds.of(World(sinks=tuple(Held() for _ in self.sinks)))
        fresh = self._processes.of(_Seen(""))
        first = (start, fresh, fresh, 0)
        before: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {first: None}
        frontier = deque([first])
        refused: dict[int, str] = {}
        while frontier:
            state = frontier.popleft()
            world = state[0]
            if world not in refused:
                refused[world] = self._refuse(self._worlds.values[world]) or self._alone(world)
            wrong = refused[world]
            for label, after in self._after(state, fresh) if not wrong else ():
                # Of each step, also of those that lead where others have led.
                wrong = self._moved_wrongly(world, after[0]) or self._ended_wrongly(label)
                if wrong:
                    raise Violation("\n".join([wrong, *self._schedule(before, state), f"    {label}"]))
                if after not in before:
                    before[after] = state, label
                    frontier.append(after)
            if wrong:
                raise Violation("\n".join([wrong, *self._schedule(before, state)]))
        return Explored(len(before), len(refused), frozenset(self._ends))

    def _after(self, state: tuple[int, ...], fresh: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        world, one, two, started = state
        for process, other in ((one, two), (two, one)) if one != two else ((one, two),):
            if process < 0:
                continue
            seen: _Seen = self._processes.values[process]
            named, count = process, started
            if not seen.run and isinstance(self._action(seen), Append | Prepare | Begin | Commit):
                if started == self.processes:
                    continue
                named, count = self._processes.of(replace(seen, run=f"p{started + 1}")), started + 1
            if process != fresh:
                yield f"{seen.run or 'a process'} crashes", _state(world, fresh, other, started)
            for label, after, left, _ in self._next(world, named):
                yield label, _state(after, fresh if left is None else left, other, count)
        for removed, label in self._removals(world):
            yield label, _state(removed, one, two, started)

    def _removals(self, world: int) -> Iterator[tuple[int, str]]:
        now: World = self._worlds.values[world]
        decided = self._held(now.log).in_doubt
        if len(now.gone) >= self.removed or decided is None or decided.state is not State.DECIDED:
            return
        for at, (sink, held) in enumerate(zip(self.sinks, now.sinks, strict=True)):
            name = decided.prepared[sink.name].receipt["staged"]
            found = sink.find(held, name)
            if found:
                sinks = _with(now.sinks, at, held._replace(staged=held.staged - {found}))
                removed = now._replace(sinks=sinks, gone=(*now.gone, (at, name)))
                yield self._worlds.of(removed), f"somebody removes {name} of {sink.name}"

    def _schedule(self, before: Mapping[tuple[int, ...], Any], state: tuple[int, ...]) -> list[str]:
        labels = []
        while (came := before[state]) is not None:
            state, label = came
            labels.append(label)
        return [f"{number:3d} {label}" for number, label in enumerate(reversed(labels), 1)]

    # ------------------------------------------------------------------------------------------------ what must hold

    def _refuse(self, world: World) -> str:
        """What is wrong with a state of the world; empty: nothing."""
        rows = [row for entry in world.log for row in self._entries.values[entry]]
        last = self._held(world.log)
        decided = [row for row in rows if row.state is State.DECIDED]
        for row in decided:
            twice = next((each for each in decided if each.epoch.number == row.epoch.number), row)
            if (twice.epoch.owner, twice.epoch.offsets) != (row.epoch.owner, row.epoch.offsets):
                return f"Epoch {row.epoch.number} was decided twice, and differently."
        reached = [len(held.visible) for held in world.sinks]
        for at, (sink, held) in enumerate(zip(self.sinks, world.sinks, strict=True)):
            if [each.number for each in held.visible] != list(range(1, reached[at] + 1)):
                return f"{sink.name} holds an epoch twice, or one too few: {held.visible}"
            wanted = {(row.epoch.number, row.epoch.owner, row.prepared[sink.name].checksum): row for row in decided}
            names = {row.prepared[sink.name].receipt["staged"] for row in decided}
            for each in held.visible:
                if each[:3] not in wanted or each.staged not in names:
                    return f"{sink.name} holds what wasn't decided: {each}"
            listed = [rows for _, rows in held.objects]
            if any(name not in names for name, _ in held.objects) or len(listed) != len(set(listed)):
                return f"A plain lister of {sink.name} sees what wasn't decided, or something twice: {held.objects}"
            if last.decided and reached[at] < last.decided.epoch.number:
                name = last.decided.prepared[sink.name].receipt["staged"]
                there = sink.find(held, name) or any(name == each for each, _ in held.objects)
                if not there and (at, name) not in world.gone:
                    return f"What {sink.name} has to commit was thrown away: {name}"
        if max(reached) - min(reached) > 1:
            return f"The sinks are more than one epoch apart: {reached}"
        for number in range(min(reached)):
            if len({held.visible[number].rows for held in world.sinks}) > 1:
                return f"Epoch {number + 1} is a mixture of two versions."
        begun = last.last.epoch.number if last.last and last.last.state is State.BEGUN else 0
        if begun and set(reached) != {begun - 1}:
            return f"Epoch {begun} was begun, with the sinks at {reached}."
        if any(row.state is State.DONE and row.epoch.number > min(reached) for row in rows):
            return f"The log says done, with the sinks at {reached}."
        return ""

    def _moved_wrongly(self, before: int, after: int) -> str:
        if before == after:
            return ""
        was, now = self._worlds.values[before], self._worlds.values[after]
        if now.log[: len(was.log)] != was.log:
            return "An entry of the log was written over."
        for sink, earlier, later in zip(self.sinks, was.sinks, now.sinks, strict=True):
            if later.visible[: len(earlier.visible)] != earlier.visible:
                return f"{sink.name} went backwards."
        return ""

    def _ended_wrongly(self, label: str) -> str:
        """A run may be replaced, or fail; it must never take what another run does for damage."""
        _, _, end = label.partition("ends: ")
        if end in ("", "done", "Fenced", "CommitUnknown", "SinkError") or (end == "Diverged" and self.edited):
            return ""
        return f"A process ended with {end}."

    def _alone(self, world: int) -> str:
        """What is wrong after a fresh process has run on its own, to the topic's end."""
        versions = ("old", "new") if self.edited else ("old",)
        last = self._held(self._worlds.values[world].log).in_doubt
        for version in versions:
            end = self._arrive(world, self._processes.of(_Seen(f"alone-{version}")))
            if end == "Diverged" and last is not None and last.state is State.DECIDED and last.config != version:
                continue  # the file has to be put back as it was; with the other version it goes on
            if isinstance(end, str):
                return f"A process on its own ended with {end}."
            now: World = self._worlds.values[end]
            wrong = self._refuse(now)
            if wrong:
                return f"A process on its own: {wrong}"
            wrong = self._wrong_in_the_end(now)
            if wrong:
                return wrong
        return ""

    def _wrong_in_the_end(self, now: World) -> str:
        if any(len(held.visible) != self.epochs for held in now.sinks):
            return f"A process on its own ended with the sinks at {[len(held.visible) for held in now.sinks]}."
        left = [each for held in now.sinks for each in held.staged]
        return f"A process on its own has left behind: {left}" if left else ""

    def _arrive(self, world: int, process: int) -> int | str:
        """Where it leads if nothing else happens: the world, or the error that ended it."""
        passed: list[tuple[int, int]] = []
        at = world, process
        while at not in self._arrived:
            passed.append(at)
            following = next(each for each in self._next(*at) if not each.fault)
            wrong = self._moved_wrongly(at[0], following.world)
            if wrong or following.process is None:
                end = following.label.partition("ends: ")[2]
                self._arrived[at] = wrong or (following.world if end == "done" else end)
                break
            at = following.world, following.process
        arrived = self._arrived[at]
        self._arrived.update(dict.fromkeys(passed, arrived))
        return arrived

    # ---------------------------------------------------------------------------------------------- what processes do

    def _next(self, world: int, process: int) -> list[Next]:
        """All that one process can do next."""
        known = self._steps.get((world, process))
        if known is None:
            now, seen = self._worlds.values[world], self._processes.values[process]
            known = self._steps[world, process] = list(self._perform(now, seen))
        return known

    def _perform(self, now: World, seen: _Seen) -> Iterator[Next]:
        action = self._action(seen)
        if isinstance(action, ReadLog):
            held = self._held(now.log)
            yield self._tell(now, seen, "reads the log", ("log", _key(held)), held)
        elif isinstance(action, Append):
            yield from self._append(now, seen, action)
        elif isinstance(action, AskPositions):
            yield from self._ask(now, seen)
        elif isinstance(action, Prepare):
            yield from self._prepare(now, seen, action)
        elif isinstance(action, Begin):
            yield from self._begin(now, seen, action)
        elif isinstance(action, Commit):
            yield from self._commit(now, seen, action)
        else:
            assert isinstance(action, Abort)
            yield from self._abort(now, seen, action)

    def _append(self, now: World, seen: _Seen, action: Append) -> Iterator[Next]:
        for after, what, key, value, fault in self._entry(now, action):
            yield self._tell(after, seen, what, key, value, fault=fault)

    def _entry(self, now: World, action: Append) -> Iterator[tuple[World, str, Hashable, Any, bool]]:
        if action.number != len(now.log) + 1 and self.honest:
            fenced = Fenced("the number is taken", owner="", epoch=0)
            yield now, f"appends {action.number}: taken", ("raise", "Fenced"), fenced, False
            return
        entry = self._entries.of(_key(action.rows), action.rows)
        appended = now._replace(log=(*now.log[: action.number - 1], entry))
        what = f"appends {action.number} ({', '.join(f'{row.state.value} {row.epoch.number}' for row in action.rows)})"
        yield appended, what, ("appended",), None, False
        yield appended, f"{what}, answer lost", ("raise", "CommitUnknown"), CommitUnknown("the answer is lost"), True

    def _begin(self, now: World, seen: _Seen, action: Begin) -> Iterator[Next]:
        """The entry at any time before, while or after the sinks prepare. One that is refused ends it all."""
        appended, outcome, progress = seen.progress or (False, None, ())

        def on(after: World, what: str, begun: bool, key: Hashable, going: tuple[Any, ...], fault: bool) -> Next:
            if begun and key is not None:
                return self._tell(after, seen, what, key, self._told[key], fault=fault)
            return self._go_on(after, seen, what, (begun, key, going), fault=fault)

        if not appended:
            for after, what, key, value, fault in self._entry(now, action.append):
                if isinstance(value, Exception):
                    yield self._tell(after, seen, what, key, value, fault=fault)
                else:
                    yield on(after, what, True, outcome, progress, fault)
        if outcome is None:
            for after, what, going, key, value, fault in self._staging(now, seen, action.prepare, progress):
                # Where preparing fails, the error is told like a result.
                told = None if key is None else ("outcome", key)
                if told is not None:
                    self._told.setdefault(told, value)
                yield on(after, what, appended, told, going, fault)

    def _ask(self, now: World, seen: _Seen) -> Iterator[Next]:
        """Sink by sink."""
        found = now.sinks[len(seen.progress)].visible
        told = (*seen.progress, found[-1][:2] if found else None)
        label = f"asks {self.sinks[len(seen.progress)].name}"
        if len(told) < len(self.sinks):
            yield self._go_on(now, seen, label, told)
            return
        positions = {
            sink.name: Position(each[0], Offsets({_AT: _ENDS[each[0]]}), owner=each[1]) if each else None
            for sink, each in zip(self.sinks, told, strict=True)
        }
        yield self._tell(now, seen, label, ("positions", told), positions)

    def _prepare(self, now: World, seen: _Seen, action: Prepare) -> Iterator[Next]:
        for after, what, going, key, value, fault in self._staging(now, seen, action, seen.progress):
            if key is None:
                yield self._go_on(after, seen, what, going)
            else:
                yield self._tell(after, seen, what, key, value, fault=fault)

    def _staging(
        self, now: World, seen: _Seen, action: Prepare, progress: tuple[Any, ...]
    ) -> Iterator[tuple[World, str, tuple[Any, ...], Hashable | None, Any, bool]]:
        """Sink by sink: half of it, then the rest. It may fail at any time."""
        version = self._version(seen.run)
        wanted = [at for at, sink in enumerate(self.sinks) if not action.again or sink.name in action.again]
        at, whole = progress or (wanted[0], False)
        sink = self.sinks[at]
        staged = sink.staged(action.epoch, seen.run, version, whole=whole)
        held = now.sinks[at]
        others = frozenset(each for each in held.staged if each.name != staged.name)
        after = now._replace(sinks=_with(now.sinks, at, held._replace(staged=others | {staged})))
        label = f"prepares {'the rest' if whole else 'half'} of epoch {action.epoch.number} on {sink.name}"
        if not whole:
            yield after, label, (at, True), None, None, False
        elif at != wanted[-1]:
            yield after, label, (wanted[wanted.index(at) + 1], False), None, None, False
        else:
            prepared = {
                self.sinks[at].name: _prepared(self.sinks[at].staged(action.epoch, seen.run, version, whole=True))
                for at in wanted
            }
            yield after, label, (), ("prepared", _key(prepared)), (action.epoch, prepared), False
        yield now, "fails to prepare", (), ("raise", "SinkError"), SinkError("no room"), True

    def _commit(self, now: World, seen: _Seen, action: Commit) -> Iterator[Next]:
        """On all sinks at once."""
        progress = seen.progress or tuple(sink.first for sink in self.sinks)
        for at, sink in enumerate(self.sinks):
            if isinstance(progress[at], Answer):
                continue
            name = action.prepared[sink.name].receipt["staged"]
            held, pc = sink.step(now.sinks[at], progress[at], action.epoch, name, seen.run)
            after = now._replace(sinks=_with(now.sinks, at, held))
            label = f"commits epoch {action.epoch.number} on {sink.name}: {progress[at][0]}"
            yield self._committed(after, seen, label, action.epoch, self.sinks, _with(progress, at, pc), pc)

    def _committed(
        self, now: World, seen: _Seen, label: str, epoch: Epoch, sinks: Sequence[FakeSink], answers: Any, pc: Pc
    ) -> Next:
        """After a step of a commit. ``answers``: of ``sinks``, as far as they have ended; ``pc``: the newest."""
        if isinstance(pc, Answer) and pc.error:
            error = Fenced("another", owner="", epoch=0) if pc.error == "Fenced" else PositionMismatch("another")
            return self._tell(now, seen, f"{label}: {pc.error}", ("raise", pc.error), error)
        if not all(isinstance(each, Answer) for each in answers):
            return self._go_on(now, seen, label, answers)
        reached = Position(epoch.number, epoch.offsets, owner=epoch.owner)
        told = {
            sink.name: Committed(reached, None) if answer.stands else None
            for sink, answer in zip(sinks, answers, strict=True)
        }
        return self._tell(now, seen, label, ("committed", answers, tuple(told)), told)

    def _abort(self, now: World, seen: _Seen, action: Abort) -> Iterator[Next]:
        """Sink by sink: list, then remove one after the other what was listed."""
        at, listed = seen.progress or (0, None)
        held = now.sinks[at]
        if listed is None:
            label = f"lists {self.sinks[at].name}, for what is before {action.before}"
            listed = tuple(sorted(each.name for each in held.staged if each.attempt < action.before))
        else:
            label = f"removes {listed[0]} from {self.sinks[at].name}"
            left = frozenset(each for each in held.staged if each.name != listed[0])
            now = now._replace(sinks=_with(now.sinks, at, held._replace(staged=left)))
            listed = listed[1:]
        if listed:
            yield self._go_on(now, seen, label, (at, listed))
        elif at + 1 < len(self.sinks):
            yield self._go_on(now, seen, label, (at + 1, None))
        else:
            yield self._tell(now, seen, label, ("aborted",), None)

    # ----------------------------------------------------------------------------------------------- where they stand

    def _go_on(self, now: World, seen: _Seen, label: str, progress: tuple[Any, ...], *, fault: bool = False) -> Next:
        process = self._processes.of(replace(seen, progress=progress))
        return Next(f"{seen.run} {label}", self._worlds.of(now), process, fault)

    def _tell(self, now: World, seen: _Seen, label: str, key: Hashable, value: Any, *, fault: bool = False) -> Next:
        """The action is over: the process goes on to its next one, or ends."""
        self._told.setdefault(key, value)
        following = replace(seen, told=(*seen.told, key), progress=())
        action = self._action(following)
        while isinstance(action, tuple):  # the end of one part: what was seen in it no longer matters, but its result
            following = _Seen(seen.run, action)
            action = self._action(following)
        world = self._worlds.of(now)
        if isinstance(action, str):
            self._ends.add(action)
            return Next(f"{seen.run} {label} and ends: {action}", world, None, fault)
        return Next(f"{seen.run} {label}", world, self._processes.of(following), fault)

    def _action(self, seen: _Seen) -> Any:
        """What a process does next; a tuple: the part of the program that comes next; a string: how it ended."""
        key = seen.run, seen.part, seen.told
        if key not in self._actions:
            self._actions[key] = self._replay(seen)
        return self._actions[key]

    def _replay(self, seen: _Seen) -> Any:
        steps = self._parts[seen.part](seen.run)
        try:
            action = next(steps)
            for key in seen.told:
                value = self._told[key]
                raised = isinstance(value, Exception) and key[0] == "raise"
                action = steps.throw(value) if raised else steps.send(value)
            return action
        except StopIteration as stop:
            result = stop.value
        except LakelockError as error:
            return type(error).__name__
        if isinstance(result, Recovered):
            return self._part(result.number, result.stands, None)
        if isinstance(result, Ran):
            return self._part(result.number, result.done.epoch, result.done)
        return "done"

    def _part(self, number: int, stands: Epoch | None, done: Row | None) -> Any:
        if stands is not None and stands.number == self.epochs:
            if done is None:
                return "done"
            part: Hashable = ("finish", number, _key(done))
            self._parts[part] = lambda run: _finish(number, done)
        else:
            part = ("epoch", number, _key(stands), _key(done))
            self._parts[part] = lambda run: self.program.run_epoch(plan(run, stands), number, self._version(run), done)
        return part

    def _version(self, run: str) -> str:
        return "new" if self.edited and run not in ("p1", "alone-old") else "old"

    def _held(self, log: tuple[int, ...]) -> LogHeld:
        if log not in self._known:
            rows = [row for entry in log for row in self._entries.values[entry]]
            decided = [row for row in rows if row.state is State.DECIDED]
            self._known[log] = LogHeld(len(log), rows[-1] if rows else None, decided[-1] if decided else None)
        return self._known[log]


def rewritten(function: Callable, *changes: tuple[str, str]) -> Callable:
    """A function of the protocol with some of its source replaced: all else is as it is."""
    source = inspect.getsource(function)
    for old, new in changes:
        assert old in source, f"the protocol has changed: {old}"
        source = source.replace(old, new)
    names = dict(vars(two_phase))
    exec("from __future__ import annotations\n" + source, names)
    return names[function.__name__]


def _state(world: int, one: int, two: int, started: int) -> tuple[int, ...]:
    """It doesn't matter which of the two is called the first."""
    return (world, one, two, started) if one <= two else (world, two, one, started)


def _with(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _prepared(staged: Staged) -> Prepared:
    return Prepared(1, staged.rows, {"staged": staged.name})


def _key(value: object) -> Hashable:
    """Equal for equal values, also of those that can't be hashed."""
    return repr(value)
