"""The names of the sink's objects. Pure. A key names the pipeline and the attempt, so that a listing is enough to find
leftovers.

::

    <prefix>/day=2026-01-01/part-<pipeline>-<epoch>-<attempt>-<prepare>-<task>-<number>.parquet
    <prefix>/_lakelock/<pipeline>/prepared/<attempt>-<prepare>.json
    <prefix>/_lakelock/<pipeline>/manifests/<epoch>.json
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

SUFFIXES = {"parquet": "parquet", "json_lines": "jsonl"}
"""Format -> how the names of its objects end."""
NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


@dataclass(frozen=True)
class Layout:
    """The keys of one pipeline under one prefix. Other pipelines may share the prefix."""

    prefix: str
    pipeline: str

    @property
    def root(self) -> str:
        """The start of all keys under the prefix."""
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def own(self) -> str:
        """The folder of Lakelock's own objects. Spark and Hive skip names that begin with an underscore."""
        return f"{self.root}_lakelock/{quote(self.pipeline, safe='')}/"

    @property
    def manifests(self) -> str:
        """The folder of the manifests."""
        return f"{self.own}manifests/"

    @property
    def prepared(self) -> str:
        """The folder of the receipts."""
        return f"{self.own}prepared/"

    def manifest(self, epoch: int) -> str:
        """The key of an epoch's manifest. With twenty digits, keys sort as the epoch numbers do."""
        return f"{self.manifests}{epoch:020d}.json"

    def epoch_of(self, key: str) -> int | None:
        """The epoch of a manifest's key. None for any other key."""
        match = re.fullmatch(r"(\d{20})\.json", key.removeprefix(self.manifests))
        return int(match[1]) if match else None

    def receipt(self, attempt: int, prepare: str) -> str:
        """The key of the receipts of one prepare call."""
        return f"{self.prepared}{attempt:012d}-{prepare}.json"

    def attempt_of_receipt(self, key: str) -> int | None:
        """The attempt of a key of receipts. None for any other key."""
        match = re.fullmatch(r"(\d{12,})-[0-9a-f]{8}\.json", key.removeprefix(self.prepared))
        return int(match[1]) if match else None

    def stem(self, epoch: int, attempt: int, prepare: str) -> str:
        """The start of the names of all objects of one prepare call."""
        return f"part-{quote(self.pipeline, safe='')}-{epoch:012d}-{attempt:012d}-{prepare}"

    def attempt_of(self, key: str) -> int | None:
        """The attempt that an object of this pipeline was made under. None for any other object."""
        if not key.startswith(self.root):
            return None
        own = re.escape(quote(self.pipeline, safe=""))
        name = rf"part-{own}-\d{{12,}}-(\d{{12,}})-[0-9a-f]{{8}}-\d+-\d+\.\w+"
        # An object under other folders belongs to a pipeline of the same name with its own log and attempts.
        match = re.fullmatch(rf"(?:[^/=]+=[^/]*/)*{name}", key.removeprefix(self.root))
        return int(match[1]) if match else None


def folder(names: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of partition values, ``a=1/b=x%2Fy/``, escaped as in Hive and Spark. An empty string is null."""
    return "".join(
        f"{_escaped(name)}={_escaped(value) if value else NULL}/" for name, value in zip(names, values, strict=True)
    )


def columns_in_folders(key: str) -> tuple[str, ...]:
    """The partition columns that the folders of a key name. ``key``: what follows the prefix."""
    named = (part.partition("=") for part in key.split("/")[:-1])
    return tuple(unquote(name) for name, equals, _ in named if equals)


def format_of(key: str) -> str | None:
    """The format of an object, by its name. None: the name doesn't tell."""
    return next((kind for kind, suffix in SUFFIXES.items() if key.endswith(f".{suffix}")), None)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def newest(after: Callable[[int], int | None], known: int = 0) -> int | None:
    """The highest of a growing set of increasing numbers, found in few questions. None if there is none.

    ``after(n)`` is the smallest number > n. ``known`` is a number that existed earlier, or 0: if it is still the
    highest, two questions are enough. Otherwise the steps double until nothing follows, and the last step is bisected.
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
