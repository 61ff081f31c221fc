"""The manifests: one small object for each epoch, which names the objects that belong to it. The last is the position.

Put only if absent, so of two writers of one number one is refused; never changed, never deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sinks.contract import Position
from sinks.errors import SinkError, UnsupportedFormat
from sinks.objects.bucket import Bucket
from sinks.objects.layout import Layout, newest
from sinks.offsets import Offsets

FORMAT = 1
"""Major version. Readers ignore fields that they don't know, and refuse a newer major version."""


@dataclass(frozen=True)
class Manifest:
    pipeline: str
    epoch: int
    owner: str
    attempt: int
    offsets: Offsets
    objects: Sequence[Mapping[str, Any]]
    """``key``, ``rows``, ``bytes``, ``sha256`` of each."""
    prepared: str
    """Key of the receipts that it was made from."""
    time: datetime

    @property
    def rows(self) -> int:
        return sum(each["rows"] for each in self.objects)

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.offsets, owner=self.owner, committed_at=self.time)

    def to_json(self) -> bytes:
        fields = {
            "lakelock": FORMAT,
            "pipeline": self.pipeline,
            "epoch": self.epoch,
            "owner": self.owner,
            "attempt": self.attempt,
            "offsets": self.offsets.to_dict(),
            "rows": self.rows,
            "time": self.time.isoformat(),
            "prepared": self.prepared,
            "objects": [dict(each) for each in self.objects],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes, *, key: str) -> Manifest:
        """Raises UnsupportedFormat, and SinkError where it isn't one."""
        try:
            fields = json.loads(body)
            if fields["lakelock"] > FORMAT:
                raise UnsupportedFormat(
                    f"{key} is a manifest in format {fields['lakelock']}; this version reads up to format {FORMAT}.",
                    hint="Upgrade lakelock to the version that wrote it, or a later one.",
                )
            return cls(
                pipeline=fields["pipeline"],
                epoch=int(fields["epoch"]),
                owner=fields["owner"],
                attempt=int(fields["attempt"]),
                offsets=Offsets.from_dict(fields["offsets"]),
                objects=[
                    {name: each[name] for name in ("key", "rows", "bytes", "sha256")} for each in fields["objects"]
                ],
                prepared=fields["prepared"],
                time=datetime.fromisoformat(fields["time"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{key} isn't a manifest of Lakelock ({error!r}).",
                hint="Nothing but Lakelock may write under _lakelock/: restore the object from its former version.",
            ) from error


class Manifests:
    """Of one pipeline."""

    def __init__(self, bucket: Bucket, layout: Layout) -> None:
        self._bucket = bucket
        self._layout = layout
        self._known = 0

    def newest(self) -> int | None:
        """The last one's number, asked of the bucket: what was seen earlier only tells where to begin."""
        found = newest(self._after, self._known)
        self._known = found or 0
        return found

    def read(self, number: int) -> Manifest | None:
        key = self._layout.manifest(number)
        body = self._bucket.get(key)
        return None if body is None else Manifest.from_json(body, key=key)

    def put(self, manifest: Manifest) -> bool:
        """False: its number is taken, maybe by this very manifest."""
        return self._bucket.put_new(self._layout.manifest(manifest.epoch), manifest.to_json())

    def up_to(self, epoch: int) -> list[Manifest]:
        numbers = [self._layout.epoch_of(key) for key in self._bucket.keys(self._layout.manifests)]
        wanted = [number for number in numbers if number is not None and number <= epoch]
        with ThreadPoolExecutor(8) as pool:
            return [manifest for manifest in pool.map(self.read, wanted) if manifest is not None]

    def _after(self, number: int) -> int | None:
        # In this folder every key that isn't a manifest's is somebody's mistake, and must not hide the ones behind it.
        key = self._layout.manifest(number) if number >= 0 else self._layout.manifests
        while (found := self._bucket.first_after(self._layout.manifests, key)) is not None:
            at = self._layout.epoch_of(found)
            if at is not None:
                return at
            key = found
        return None
