"""Manifests: one small object per epoch that lists the epoch's objects. The last manifest is the sink's position.

A manifest is put only if absent, so of two writers of one epoch one is refused. It is never changed or deleted, except
by a rule of the bucket that expires old objects. So the position is written again each day, by an epoch of no records.
If all are gone nevertheless, as while the pipeline was off, the last one is put anew: see ``S3Objects.remind``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sinks.contract import Position
from sinks.errors import SinkError, UnsupportedFormat
from sinks.objects.bucket import Bucket
from sinks.objects.layout import Layout, newest
from sinks.offsets import Offsets

FORMAT = 1
"""Major version of the format. Readers ignore unknown fields, and refuse a newer major version."""
REFRESH_AFTER = timedelta(days=1)
"""A rule of S3 counts in days, and removes at the end of a day."""


@dataclass(frozen=True)
class Manifest:
    """The objects of one committed epoch."""

    pipeline: str
    epoch: int
    owner: str
    attempt: int
    offsets: Offsets
    objects: Sequence[Mapping[str, Any]]
    """``key``, ``rows``, ``bytes`` and ``sha256`` of each object."""
    prepared: str
    """The key of the receipts that the manifest was made from."""
    time: datetime
    after: int | None = None
    """The last epoch whose objects are named by the manifests before this one; 0: there are none. None: an earlier
    version wrote it, and doesn't say."""
    zone: str | None = None
    """The time zone of the timestamps in the names of the objects' folders. None: an earlier version took that of its
    session, and doesn't say it."""

    @property
    def rows(self) -> int:
        """The number of rows in the epoch's objects."""
        return sum(each["rows"] for each in self.objects)

    @property
    def position(self) -> Position:
        """The sink's position after this epoch."""
        refresh = self.time + REFRESH_AFTER
        return Position(self.epoch, self.offsets, owner=self.owner, committed_at=self.time, refresh_after=refresh)

    def to_json(self) -> bytes:
        """The manifest as JSON in UTF-8."""
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
        if self.after is not None:
            fields["after"] = self.after
        if self.zone is not None:
            fields["zone"] = self.zone
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes, *, key: str) -> Manifest:
        """Read a manifest. Raises UnsupportedFormat, or SinkError if ``body`` isn't a manifest."""
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
                after=fields.get("after"),
                zone=fields.get("zone"),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{key} isn't a manifest of Lakelock ({error!r}).",
                hint="Only Lakelock may write under _lakelock/: restore the object's earlier version.",
            ) from error


class Manifests:
    """The manifests of one pipeline."""

    def __init__(self, bucket: Bucket, layout: Layout) -> None:
        self._bucket = bucket
        self._layout = layout
        self._known = 0

    def newest(self) -> int | None:
        """The highest epoch with a manifest, asked of the bucket. The number seen before is only the starting point."""
        found = newest(self._after, self._known)
        self._known = found or 0
        return found

    def read(self, number: int) -> Manifest | None:
        """The manifest of an epoch. None if there is none."""
        key = self._layout.manifest(number)
        body = self._bucket.get(key)
        return None if body is None else Manifest.from_json(body, key=key)

    def put(self, manifest: Manifest) -> bool:
        """Put the manifest. False if the epoch has one already, which may be this very manifest."""
        return self._bucket.put_new(self._layout.manifest(manifest.epoch), manifest.to_json())

    def up_to(self, epoch: int) -> list[Manifest]:
        """All manifests up to and including ``epoch`` that are there, by their epochs."""
        numbers = [self._layout.epoch_of(key) for key in self._bucket.keys(self._layout.manifests)]
        wanted = [number for number in numbers if number is not None and number <= epoch]
        with ThreadPoolExecutor(8) as pool:
            return [manifest for manifest in pool.map(self.read, wanted) if manifest is not None]

    def _after(self, number: int) -> int | None:
        # A key here that isn't a manifest's was put by mistake, and must not hide the manifests after it.
        key = self._layout.manifest(number) if number >= 0 else self._layout.manifests
        while (found := self._bucket.first_after(self._layout.manifests, key)) is not None:
            at = self._layout.epoch_of(found)
            if at is not None:
                return at
            key = found
        return None


def gone(manifests: Sequence[Manifest], epoch: int) -> list[tuple[int, int]]:
    """The first and last of each row of epochs up to ``epoch`` whose manifests are gone, as far as the others tell.

    ``manifests``: as ``Manifests.up_to`` gives them.
    """
    found, last = [], 0
    for each in manifests:
        if each.after is not None and each.after > last:
            found.append((last + 1, each.after))
        last = each.epoch
    return [*found, (last + 1, epoch)] if last < epoch else found
