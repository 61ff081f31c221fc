"""The sink: multipart uploads that are complete but for the last request, and a manifest that says what counts.

S3 shows nothing of a multipart upload before it is completed, and completing needs no rows: that is what is prepared.
The manifest of an epoch names its objects and is its position, so who reads by manifests sees an epoch whole or not at
all. Who lists the prefix sees an epoch's objects one after the other in the moments of its commit, never others, never
one twice: for a consistent view use ``objects(epoch)``.

What a crash leaves, step by step:

====================================  ==================================================================================
prepare: uploads                      before or during: uploads without a receipt; no reader sees them, ``abort`` finds
                                      them by their keys. So with a create whose answer was lost
prepare: receipts                     after: the same, and the receipts' object. Without its key in the coordinator's
                                      log no commit will ever ask for it
commit: completing the uploads        before the first: nothing. Among them: some objects are visible, none counts.
                                      Whoever commits next completes the rest: an upload that is gone whose object is
                                      there, ours and whole is a completed one
commit: manifest, put only if absent  before: all objects visible, none counts, and the next commit only puts the
                                      manifest. After: the epoch is committed; a commit again finds it and says so
abort: uploads                        before or during: the next abort finds the rest
abort: objects of an epoch that was   (completed for a commit that could not be finished, and prepared again since)
then committed from other ones        deleted only when the epoch's manifest names others, so no commit can want them
abort: receipts                       last, so that what they lead to is never forgotten
====================================  ==================================================================================
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sinks.contract import Committed, Epoch, Position, Prepared, describe
from sinks.errors import (
    CommitUnknown,
    ConfigurationError,
    Fenced,
    PositionMismatch,
    PreparedLost,
    SinkError,
    StoreUnreachable,
)
from sinks.objects.bucket import Bucket, UploadLost, unsafe
from sinks.objects.layout import Layout
from sinks.objects.manifest import Manifest, Manifests
from sinks.objects.receipts import Receipts
from sinks.objects.rows import upload
from sinks.objects.upload import METADATA, Format, Receipt, Target
from sinks.s3.client import S3Options, bucket_and_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE = 8


class S3Objects:
    """One pipeline's objects under ``url``, which other pipelines may share."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        *,
        pipeline: str,
        format: Format,
        partition_by: Sequence[str] = (),
        options: S3Options,
        max_object_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        if max_object_bytes < 1:
            raise ConfigurationError("max_object_bytes is the size at which an object is closed: at least 1.")
        if len({name.lower() for name in partition_by}) < len(partition_by):
            raise ConfigurationError("partition_by names a column twice.")
        self.spark = spark
        bucket, prefix = bucket_and_prefix(url)
        self._name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._pipeline = pipeline
        self._format: Format = format
        self._partition_by = tuple(partition_by)
        self._options = options
        self._max_object_bytes = max_object_bytes
        self._bucket = Bucket(bucket, options, url=self._name)
        self._layout = Layout(prefix, pipeline)
        self._manifests = Manifests(self._bucket, self._layout)
        self._safe = False

    @property
    def name(self) -> str:
        return self._name

    def url(self, key: str) -> str:
        return f"s3://{self._bucket.name}/{key}"

    def position(self) -> Position | None:
        """The last manifest's: two requests and a read where this process has seen it before, else few more."""
        manifest = self._last()
        return manifest.position if manifest else None

    def objects(self, epoch: int) -> list[dict[str, Any]]:
        """``key``, ``rows``, ``bytes`` and ``sha256`` of all that counts up to this epoch: the same at any time."""
        return [dict(each) for manifest in self._manifests.up_to(epoch) for each in manifest.objects]

    def prepare(self, epoch: Epoch, rows: DataFrame) -> Prepared:
        """Raises SchemaMismatch, UnsafeStore, and ConfigurationError or StoreUnreachable where S3 says no."""
        call = uuid.uuid4().hex[:8]
        mark = {"pipeline": self._pipeline, "epoch": epoch.number, "attempt": epoch.attempt, "prepare": call}
        target = Target(
            self._bucket.name,
            self._layout.root,
            self._layout.stem(epoch.number, epoch.attempt, call),
            json.dumps(mark, separators=(",", ":")),
            self._format,
            self._partition_by,
            self._options,
            self._max_object_bytes,
        )
        uploads, found = upload(rows, target, url=self._name)
        key = self._layout.receipt(epoch.attempt, call)
        body = Receipts(epoch.number, epoch.attempt, uploads).to_json()
        self._bucket.put(key, body)
        if not self._safe:
            # The fence rests on it, and a store that ignores the condition doesn't say so.
            if self._bucket.put_new(key, body):
                raise unsafe(self._name)
            self._safe = True
        return Prepared(found.rows, found.checksum, {"prepared": key})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """1. look at the last manifest, 2. complete the uploads, 3. put the manifest unless there is one.

        The manifest comes last: it must not name an object that isn't there. Between 1 and 3 another process may do
        the same for the same epoch, and only the put decides which of them has done it.
        """
        there = self._standing(epoch)
        if there is not None:
            return there
        key = prepared.receipt["prepared"]
        try:
            uploads = self._receipts(key).uploads
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._complete, uploads))
        except PreparedLost:
            # Or another process was faster, and has cleaned up too.
            there = self._standing(epoch)
            if there is not None:
                return there
            raise
        manifest = Manifest(
            self._pipeline,
            epoch.number,
            epoch.owner,
            epoch.attempt,
            epoch.offsets,
            [{"key": each.key, "rows": each.rows, "bytes": each.bytes, "sha256": each.sha256} for each in uploads],
            key,
            datetime.now(timezone.utc),
        )
        return self._put(manifest, epoch)

    def abort(self, before: int) -> None:
        receipts = self._receipts_of(before)
        for key, each in self._uploads_of(before):
            self._bucket.abort_upload(key, each)
        for key in receipts:
            self._forget(key)

    def prepared(self, before: int) -> list[str]:
        """Uploads that were begun under lower attempts, and receipts of such."""
        keys = [*(key for key, _ in self._uploads_of(before)), *self._receipts_of(before)]
        return [self.url(key) for key in keys]

    def _uploads_of(self, before: int) -> Iterator[tuple[str, str]]:
        for key, each in self._bucket.uploads(self._layout.root):
            attempt = self._layout.attempt_of(key)
            if attempt is not None and attempt < before:
                yield key, each

    def _receipts_of(self, before: int) -> list[str]:
        return [
            key for key in self._bucket.keys(self._layout.prepared)
            if (attempt := self._layout.attempt_of_receipt(key)) is not None and attempt < before
        ]  # fmt: skip

    def _last(self) -> Manifest | None:
        number = self._manifests.newest()
        if number is None:
            return None
        last = self._manifests.read(number)
        if last is None:
            # To go on as if there were none would begin anew.
            raise SinkError(
                f"{self._name} lists the manifest of epoch {number}, and doesn't have it.",
                hint="Something deletes manifests: under _lakelock/ nothing but Lakelock may.",
            )
        return last

    def _standing(self, epoch: Epoch) -> Committed | None:
        """The epoch, where it is committed already; None where it can be. Raises Fenced, PositionMismatch."""
        last = self._last()
        if last is not None and last.epoch >= epoch.number:
            there = last if last.epoch == epoch.number else self._manifests.read(epoch.number)
            if there is not None and there.owner == epoch.owner:
                return self._committed(there, rows=0, already=True)
            other = there or last
            if other.owner != epoch.owner:
                raise Fenced(
                    f"Run {other.owner} of pipeline {self._pipeline!r} has committed epoch {other.epoch} to "
                    f"{self._name}: this run, {epoch.owner}, has been replaced.",
                    owner=other.owner,
                    epoch=other.epoch,
                )
        found = last.position if last else None
        if not epoch.follows(found):
            raise PositionMismatch(
                f"Epoch {epoch.number} can't be committed to {self._name}: expected {describe(epoch.expected)}, "
                f"found {describe(found)}.",
                hint="Something else writes manifests there, or they were restored: start the pipeline again.",
            )
        return None

    def _receipts(self, key: str) -> Receipts:
        body = self._bucket.get(key)
        if body is None:
            raise PreparedLost(f"What was prepared for {self._name} is gone: there is no {key}.")
        return Receipts.from_json(body, key=key)

    def _complete(self, receipt: Receipt) -> None:
        """By whichever process, however often. Raises PreparedLost, StoreUnreachable."""
        try:
            self._bucket.complete(receipt.key, receipt.upload, receipt.etags)
        except UploadLost:
            if not self._holds(receipt):
                raise PreparedLost(
                    f"What was prepared for {self._name} is gone: S3 has no upload for {receipt.key}, nor the object.",
                    hint="Was it thrown away by a lifecycle rule? Let AbortIncompleteMultipartUpload wait longer than "
                    "the pipeline may stand still.",
                ) from None
        except StoreUnreachable:
            # Only the answer may have been lost.
            if not self._holds(receipt):
                raise

    def _holds(self, receipt: Receipt) -> bool:
        """Whether the object is there, ours and whole: a key is never made twice, and its parts had their MD5."""
        found = self._bucket.head(receipt.key)
        if found is None:
            return False
        size, metadata = found
        return size == receipt.bytes and f'"pipeline":{json.dumps(self._pipeline)},' in metadata.get(METADATA, "")

    def _put(self, manifest: Manifest, epoch: Epoch) -> Committed:
        unanswered: StoreUnreachable | None = None
        try:
            try:
                if self._manifests.put(manifest):
                    return self._committed(manifest, rows=manifest.rows)
            except StoreUnreachable as error:
                unanswered = error
            there = self._standing(epoch)
        except StoreUnreachable as error:
            there, unanswered = None, error
        if there is None:
            raise CommitUnknown(
                f"Whether epoch {epoch.number} is committed to {self._name} is not known"
                + (f": {unanswered.message}" if unanswered else ": its manifest was refused, and there is none."),
                hint=unanswered.hint if unanswered else "",
            ) from unanswered
        return there

    def _committed(self, manifest: Manifest, *, rows: int, already: bool = False) -> Committed:
        reads = {"manifest": self._layout.manifest(manifest.epoch)}
        return Committed(manifest.position, rows=rows, already=already, reads=reads)

    def _forget(self, key: str) -> None:
        """Receipts of an attempt that is over, with what they lead to, unless the epoch was committed from them."""
        body = self._bucket.get(key)
        if body is None:
            return
        receipts = Receipts.from_json(body, key=key)
        manifest = self._manifests.read(receipts.epoch)
        if manifest is None or manifest.prepared != key:
            for each in receipts.uploads:  # of stores that don't list them
                self._bucket.abort_upload(each.key, each.upload)
            named = {each["key"] for each in manifest.objects} if manifest else set()
            left = [each.key for each in receipts.uploads if each.key not in named]
            if manifest is not None:
                self._bucket.delete(left)
            elif any(self._bucket.head(each) for each in left):
                # A commit was begun. Nothing is deleted while its manifest could still be put.
                return
        self._bucket.delete([key])
