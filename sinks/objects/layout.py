"""What the sink's objects are called: pure. A key tells whose it is and of which attempt, so that a listing is enough
to find what nobody wants any more.

::

    <prefix>/day=2026-01-01/part-<pipeline>-<epoch>-<attempt>-<prepare>-<task>-<number>.parquet
    <prefix>/_lakelock/<pipeline>/prepared/<attempt>-<prepare>.json
    <prefix>/_lakelock/<pipeline>/manifests/<epoch>.json
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


@dataclass(frozen=True)
class Layout:
    """Of one pipeline under one prefix, which other pipelines may share."""

    prefix: str
    pipeline: str

    @property
    def root(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def own(self) -> str:
        """Spark and Hive pass over what begins with an underscore."""
        return f"{self.root}_lakelock/{quote(self.pipeline, safe='')}/"

    @property
    def manifests(self) -> str:
        return f"{self.own}manifests/"

    @property
    def prepared(self) -> str:
        return f"{self.own}prepared/"

    def manifest(self, epoch: int) -> str:
        """Twenty digits: the order of the keys is that of the numbers."""
        return f"{self.manifests}{epoch:020d}.json"

    def epoch_of(self, key: str) -> int | None:
        match = re.fullmatch(r"(\d{20})\.json", key.removeprefix(self.manifests))
        return int(match[1]) if match else None

    def receipt(self, attempt: int, prepare: str) -> str:
        return f"{self.prepared}{attempt:012d}-{prepare}.json"

    def attempt_of_receipt(self, key: str) -> int | None:
        match = re.fullmatch(r"(\d{12,})-[0-9a-f]{8}\.json", key.removeprefix(self.prepared))
        return int(match[1]) if match else None

    def stem(self, epoch: int, attempt: int, prepare: str) -> str:
        """How the names of one prepare call's objects begin."""
        return f"part-{quote(self.pipeline, safe='')}-{epoch:012d}-{attempt:012d}-{prepare}"

    def attempt_of(self, key: str) -> int | None:
        """The attempt that an object of this pipeline was made under; None for anybody else's object."""
        if not key.startswith(self.root):
            return None
        own = re.escape(quote(self.pipeline, safe=""))
        name = rf"part-{own}-\d{{12,}}-(\d{{12,}})-[0-9a-f]{{8}}-\d+-\d+\.\w+"
        # Under other folders than its own it is of a pipeline of the same name, with a log and attempts of its own.
        match = re.fullmatch(rf"(?:[^/=]+=[^/]*/)*{name}", key.removeprefix(self.root))
        return int(match[1]) if match else None


def folder(names: Sequence[str], values: Sequence[str | None]) -> str:
    """``a=1/b=x%2Fy/``, escaped as Hive and Spark do. An empty string is to them what null is."""
    return "".join(
        f"{_escaped(name)}={_escaped(value) if value else NULL}/" for name, value in zip(names, values, strict=True)
    )


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def newest(after: Callable[[int], int | None], known: int = 0) -> int | None:
    """The highest of ever more numbers that only grow, in few questions however many there are; None: there is none.

    ``after(n)``: the smallest number > n. ``known``: one that was there earlier, or 0: where it is still the highest,
    two questions are enough. Else the steps double until there is nothing behind, then the last one is halved.
    """
    low = after(known - 1)
    if low is None:
        return newest(after) if known > 0 else None
    step = 0
    while (found := after(low + step)) is not None:
        low, step = found, max(1, step * 2)
    high = low + step
    while low < high:
        middle = (low + high) // 2
        found = after(middle)
        low, high = (low, middle) if found is None else (found, high)
    return low
