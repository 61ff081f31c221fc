"""The checker's verdict: anomalies, which of them are allowed, and held, broken or unknown, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from connector.lab.check.history import History


class Kind(str, Enum):
    """Kinds of anomaly, worst first. What they mean for each sink is in `connector.lab.check.checker`."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    STALE = "stale"
    UNEXPECTED = "unexpected"
    """A row that was never sent, or not so: altered, beyond the version's claim, from before the pipeline's begin."""
    REGRESSED = "regressed"
    """Missing or older for a while, and right again in the last version."""


class Verdict(str, Enum):
    """What a history shows about its delivery."""

    HELD = "held"
    """No version of the table shows anything that the delivery doesn't allow."""
    BROKEN = "broken"
    """The delivery broke its promise, or the lab is broken: it shows nothing where it must."""
    UNKNOWN = "unknown"
    """The history can't decide."""


PROMISES: Mapping[str, str] = {
    "auto_commit": "at most once",
    "manual_commit": "at least once",
    "idempotent": "effectively once",
    "transactional": "exactly once",
}
_CRASHES = {"": 0, "in_recovery": 2}
_WORST = tuple(Kind)


@dataclass(frozen=True)
class Anomaly:
    """One record that the table doesn't hold as it should.

    ``version``: where it was seen first. ``until``: the first version after it was seen last, None if the last version
    shows it still. ``stood``: for a missing record, the last version that had it. ``extra``: rows too many.
    """

    kind: Kind
    topic: str
    partition: int
    offset: int
    key: str
    version: int
    until: int | None = None
    stood: int | None = None
    extra: int = 0
    note: str = ""

    def order(self) -> tuple[int, int, str, int, int, str]:
        """Key for sorting: worst kind first, then by version and coordinates."""
        return (_WORST.index(self.kind), self.version, self.topic, self.partition, self.offset, self.note)

    def __str__(self) -> str:
        ends = "" if self.until is None else f" until version {self.until}"
        stood = "" if self.stood is None else f" (it had stood in version {self.stood})"
        return (
            f"{self.kind.value}: {self.topic}-{self.partition} offset {self.offset}, key {self.key!r}, "
            f"from version {self.version}{ends}: {self.note}{stood}"
        )

    def to_dict(self) -> dict[str, object]:
        """The anomaly as plain JSON values."""
        return {
            "kind": self.kind.value,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "key": self.key,
            "version": self.version,
            "until": self.until,
            "stood": self.stood,
            "extra": self.extra,
            "note": self.note,
        }


@dataclass(frozen=True)
class Report:
    """``anomalies`` are all that were found, worst first; ``allows`` the kinds that the delivery may show."""

    verdict: Verdict
    anomalies: tuple[Anomaly, ...]
    allows: frozenset[Kind]
    reasons: tuple[str, ...]

    @property
    def counts(self) -> Mapping[Kind, int]:
        """Records per kind, every kind in it."""
        return {kind: sum(anomaly.kind is kind for anomaly in self.anomalies) for kind in Kind}

    @property
    def extra_rows(self) -> int:
        """Rows too many: a record that stands three times has two."""
        return sum(anomaly.extra for anomaly in self.anomalies)

    @property
    def allowed(self) -> tuple[Anomaly, ...]:
        """The anomalies that the delivery may show."""
        return tuple(anomaly for anomaly in self.anomalies if self.may_show(anomaly))

    @property
    def forbidden(self) -> tuple[Anomaly, ...]:
        """The anomalies that the delivery may not show."""
        return tuple(anomaly for anomaly in self.anomalies if not self.may_show(anomaly))

    def may_show(self, anomaly: Anomaly) -> bool:
        """Whether the delivery may show this anomaly. No delivery may lose a record that was in the table before."""
        return anomaly.kind in self.allows and not (anomaly.kind is Kind.LOST and anomaly.stood is not None)

    def to_dict(self) -> dict[str, object]:
        """The report as plain JSON values."""
        return {
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "counts": {kind.value: number for kind, number in self.counts.items()},
            "extra_rows": self.extra_rows,
            "allows": [kind.value for kind in Kind if kind in self.allows],
            "allowed": [anomaly.to_dict() for anomaly in self.allowed],
            "forbidden": [anomaly.to_dict() for anomaly in self.forbidden],
        }


def conclude(
    history: History, anomalies: tuple[Anomaly, ...], allows: frozenset[Kind], expects: frozenset[Kind]
) -> Report:
    """The verdict: unknown before broken, because half a history shows anything."""
    promise = PROMISES.get(history.delivery, history.delivery)
    report = Report(Verdict.HELD, anomalies, allows, ())
    found: list[str] = []
    if report.forbidden:
        found.append(f"{_records(report.forbidden)}: {promise} doesn't allow that. The first: {report.forbidden[0]}.")
    if undecided := _undecided(history):
        return Report(Verdict.UNKNOWN, anomalies, allows, (*undecided, *found))
    for kind in Kind:
        if kind in expects and not report.counts[kind]:
            found.append(
                f"The lab shows nothing where it must: {history.delivery} into an {history.sink} table, killed at "
                f"{history.crash_point}, has to show records that are {kind.value}."
            )
    if found:
        return Report(Verdict.BROKEN, anomalies, allows, tuple(found))
    if report.allowed:
        held = f"{_records(report.allowed)}: {promise} allows that."
    else:
        all_of_it = "Every key has its newest update"
        if history.sink == "append":
            all_of_it = f"All {len(history.sent)} records count exactly once"
        held = f"{all_of_it}, and nothing is wrong in any of the table's {len(history.versions)} versions."
    return Report(Verdict.HELD, anomalies, allows, (held,))


def _undecided(history: History) -> list[str]:
    """Why this history can't decide anything: an experiment that didn't take place was not passed."""
    reasons = []
    if history.error is not None:
        reasons.append(f"The lab failed: {history.error}")
    if not history.drained:
        reasons.append("The last process didn't end by itself: what is missing may have been still to come.")
    if not history.versions:
        reasons.append("No version of the table was read.")
    if not history.sent:
        reasons.append("Nothing was sent, so nothing could go wrong.")
    crashes = sum(event.what == "crashed" for event in history.events)
    if crashes < (wanted := _CRASHES.get(history.crash_point, 1)):
        times = _number(wanted, "time", "times")
        reasons.append(f"The process was to be killed {times} at {history.crash_point}, and was {crashes}.")
    return reasons


def _records(anomalies: tuple[Anomaly, ...]) -> str:
    """12 records are lost, 1 record is duplicated"""
    parts = []
    for kind in Kind:
        if number := sum(anomaly.kind is kind for anomaly in anomalies):
            verb = "" if kind is Kind.REGRESSED else "are " if number > 1 else "is "
            parts.append(f"{_number(number, 'record', 'records')} {verb}{kind.value}")
    return ", ".join(parts)


def _number(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
