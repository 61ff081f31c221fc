"""The checker's verdict: held, broken or unknown, with reasons, and the anomalies, allowed or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from connector.lab.check.history import History
from sinks.plurals import plural


class Kind(str, Enum):
    """Kinds of anomaly, worst first. `connector.lab.check.checker` says what they mean for each sink."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    STALE = "stale"
    UNEXPECTED = "unexpected"
    """A row that was never sent, is altered, is beyond the version's claim, or is from before the pipeline began."""
    REGRESSED = "regressed"
    """An update that was missing or older for a while, and is right in the last version."""


class Verdict(str, Enum):
    """The verdict on a delivery."""

    HELD = "held"
    """No version of the table shows an anomaly that the delivery forbids."""
    BROKEN = "broken"
    """The delivery broke its promise. Or the lab is broken, because an anomaly that must appear is missing."""
    UNKNOWN = "unknown"
    """The history proves nothing."""


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

    ``version``: the first version that shows the anomaly. ``until``: the first version that no longer shows it, None
    if the last version does. ``stood``: for a missing record, the last version that had it. ``extra``: surplus rows.
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
        """The sort key: worst kind first, then by version and coordinates."""
        return (_WORST.index(self.kind), self.version, self.topic, self.partition, self.offset, self.note)

    def __str__(self) -> str:
        ends = "" if self.until is None else f" until version {self.until}"
        stood = "" if self.stood is None else f" (version {self.stood} had it)"
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
    """A verdict. ``anomalies``: all anomalies, worst first. ``allows``: the kinds that the delivery may show."""

    verdict: Verdict
    anomalies: tuple[Anomaly, ...]
    allows: frozenset[Kind]
    reasons: tuple[str, ...]

    @property
    def counts(self) -> Mapping[Kind, int]:
        """The number of records per kind, for every kind."""
        return {kind: sum(anomaly.kind is kind for anomaly in self.anomalies) for kind in Kind}

    @property
    def extra_rows(self) -> int:
        """The number of surplus rows. A record with three rows has two of them."""
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
    """The verdict with its reasons. Unknown comes before broken, because an incomplete history may show anything.

    ``expects``: the kinds that the run must show, or the verdict is broken.
    """
    promise = PROMISES.get(history.delivery, history.delivery)
    report = Report(Verdict.HELD, anomalies, allows, ())
    reasons: list[str] = []
    if report.forbidden:
        reasons.append(f"{_records(report.forbidden)}: {promise} doesn't allow that. The first: {report.forbidden[0]}.")
    if undecided := _undecided(history):
        return Report(Verdict.UNKNOWN, anomalies, allows, (*undecided, *reasons))
    for kind in Kind:
        if kind in expects and not report.counts[kind]:
            reasons.append(
                f"{history.delivery} into an {history.sink} table, killed at {history.crash_point}, must show records "
                f"that are {kind.value}, but the lab saw none."
            )
    if reasons:
        return Report(Verdict.BROKEN, anomalies, allows, tuple(reasons))
    if report.allowed:
        held = f"{_records(report.allowed)}: {promise} allows that."
    else:
        complete = "Every key has its newest update"
        if history.sink != "upsert":
            complete = f"{plural(len(history.sent), 'record counts', 'records count')} exactly once"
            complete = complete if len(history.sent) == 1 else f"All {complete}"
        versions = plural(len(history.versions), "version")
        held = f"{complete}, and nothing is wrong in any of the table's {versions}."
    return Report(Verdict.HELD, anomalies, allows, (held,))


def _undecided(history: History) -> list[str]:
    """Why this history proves nothing. An experiment that didn't take place counts as not passed."""
    reasons = []
    if history.error is not None:
        reasons.append(f"The lab failed: {history.error}")
    if not history.drained:
        reasons.append("The last process didn't end by itself, so missing records may have been still to come.")
    if not history.versions:
        reasons.append("No version of the table was read.")
    if not history.sent:
        reasons.append("Nothing was sent, so nothing could go wrong.")
    crashes = sum(event.what == "crashed" for event in history.events)
    if crashes < (wanted := _CRASHES.get(history.crash_point, 1)):
        wanted_times, times = (plural(number, "time") for number in (wanted, crashes))
        reasons.append(f"The process was killed {times} at {history.crash_point} instead of {wanted_times}.")
    return reasons


def _records(anomalies: tuple[Anomaly, ...]) -> str:
    """The anomalies by kind, such as: 12 records are lost, 1 record is duplicated"""
    parts = []
    for kind in Kind:
        if number := sum(anomaly.kind is kind for anomaly in anomalies):
            verb = "" if kind is Kind.REGRESSED else "are " if number > 1 else "is "
            parts.append(f"{plural(number, 'record')} {verb}{kind.value}")
    return ", ".join(parts)
