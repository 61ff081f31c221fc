"""Which rows may have been deleted unseen, by what the commits say was read too late. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.audit.claim import At, Next, Range

_RETIRED = "#"
"""The name of a topic that was recreated begins with it: ``#<topic id>/<topic>``."""


def missed_before(missed: Iterable[Range], ends: Next) -> Mapping[At, int]:
    """For each partition the offset before which rows may have been deleted unseen. Others have no such row.

    Their topics were compacted then, whatever Kafka says by now, and whether it has them or not. Deletes that were
    missed in a topic may be of any row of those that it replaced. No name tells which of two retired topics came
    first, so one that replaced it is doubted, too. ``ends``: where the claim ends.
    """
    late = {gap.at: gap.start for gap in sorted(missed)}
    names = {at.topic for at in late}
    replaced = {at: end for at, end in ends.items() if at.topic.startswith(_RETIRED) and _others(at.topic, names)}
    return {**late, **replaced}


def _others(topic: str, names: Iterable[str]) -> bool:
    """Whether there is another topic of the same name in Kafka, be it now, earlier or later."""
    return any(name != topic and name.rpartition("/")[2] == topic.rpartition("/")[2] for name in names)
