"""The S3 sink: multipart uploads that only need to be completed, and a manifest that says which objects count.

S3 shows nothing of a multipart upload before it is completed, and completing it needs no rows. So ``prepare`` uploads,
and ``commit`` completes. The manifest of an epoch lists its objects and is the sink's position, so a reader of the
manifests sees an epoch completely or not at all. A reader that lists the prefix sees the objects of an epoch appear one
by one during its commit, but never a wrong object, and never one twice. For a consistent view use ``objects(epoch)``.

What a crash leaves, step by step:

====================================  ==================================================================================
prepare: uploads                      before or during: uploads without a receipt. No reader sees them, and ``abort``
                                      finds them by their keys, also when the answer to a create request was lost
prepare: receipts                     after: the same, and the receipts' object. Its key isn't in the coordinator log,
                                      so no commit will ask for it
commit: completing the uploads        before the first: nothing. During: some objects are visible, none counts. The next
                                      commit completes the rest. An upload that is gone counts as completed if its
                                      object exists, is ours and has its full size
commit: manifest, put only if absent  before: all objects are visible, none counts, and the next commit only puts the
                                      manifest. After: the epoch is committed, and another commit reports that
abort: uploads                        before or during: the next abort finds the rest
abort: objects of an epoch that was   (completed for a commit that didn't finish, and prepared again since)
then committed from other ones        deleted only when the epoch's manifest lists others, so that no commit needs them
abort: receipts                       last, so that the uploads they refer to are never forgotten
====================================  ==================================================================================
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
from sinks.objects.manifest import Manifest, Manifests, gone
from sinks.objects.receipts import Receipts
from sinks.objects.rows import ZONE, upload
from sinks.objects.upload import METADATA, Format, Receipt, Target
from sinks.s3.client import S3Options, bucket_and_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.objects")

_AT_ONCE = 8


class S3Objects:
    """The objects of one pipeline under ``url``. Other pipelines may share the URL.

    ``max_object_bytes`` is the size in bytes at which an object is closed and the next one begins. Raises
    ConfigurationError for a wrong URL, size or list of partition columns.
    """

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
            raise ConfigurationError("max_object_bytes, the size at which an object is closed, must be at least 1.")
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
        """The sink's name in the coordinator log: its URL."""
        return self._name

    def url(self, key: str) -> str:
        """The URL of an object."""
        return f"s3://{self._bucket.name}/{key}"

    def position(self) -> Position | None:
        """The position in the last manifest. Takes three requests if this process has read it before, else few more."""
        manifest = self._last()
        return manifest.position if manifest else None

    def objects(self, epoch: int) -> list[dict[str, Any]]:
        """``key``, ``rows``, ``bytes``, ``sha256`` and ``zone`` of all objects of the epochs up to ``epoch``.

        ``zone`` is the time zone of the timestamps in the names of the object's folders. None: an earlier version took
        that of its session, and doesn't say it.

        It never changes, unless something removes manifests, as a rule of the bucket does. Then a warning names the
        epochs whose objects are left out.
        """
        manifests = self._manifests.up_to(epoch)
        if left_out := gone(manifests, epoch):
            epochs = ", ".join(f"{first} to {last}" for first, last in left_out)
            log.warning("the manifests of epochs %s are gone from %s: their objects are left out", epochs, self._name)
        return [{**each, "zone": manifest.zone} for manifest in manifests for each in manifest.objects]

    def remind(self, epoch: Epoch, reads: Mapping[str, Any], *, done: bool) -> Position | None:
        """Put the last manifest anew, if a rule of the bucket removes them. See ``sinks.optional.Forgetful``.

        It names no objects: those of its epoch are as old as the manifest was. Without such a rule the objects may have
        been removed by mistake, or this may be another store. If the epoch isn't known to be done, nothing tells
        whether it was committed, unless what it has prepared is still there: then its commit can be repeated.

        Raises PositionMismatch or StoreUnreachable. A crash leaves the manifest, or none.
        """
        del reads  # the manifest that they name is gone
        if not done and epoch.expected is None:
            return None  # no manifest was ever needed before it, and its commit can be repeated
        before = epoch.position() if done else epoch.expected
        expires = self._bucket.expires(self._layout.manifests)
        if before is None or not expires or not (done or self._has_prepared(epoch.attempt)):
            raise self._forgotten(epoch, expires)
        now = datetime.now(timezone.utc)
        self._manifests.put(
            Manifest(self._pipeline, before.epoch, before.owner, 0, before.offsets, [], "", now, after=before.epoch)
        )
        return self.position()

    def _has_prepared(self, attempt: int) -> bool:
        return any(self._layout.attempt_of_receipt(key) == attempt for key in self._bucket.keys(self._layout.prepared))

    def _forgotten(self, epoch: Epoch, expires: bool | None) -> PositionMismatch:
        hint = "Restore the newest manifest, as from an earlier version of the object. Or write to new, empty places."
        if expires is None:
            why = "Whether a rule of the bucket removes them isn't known"
            hint = f"If one does, allow the pipeline s3:GetLifecycleConfiguration, and it goes on. If none does: {hint}"
        elif not expires:
            why = "No rule of the bucket removes them: something else has, or this is another store"
        else:
            why = f"Nothing tells whether epoch {epoch.number} was committed before they were removed"
        return PositionMismatch(
            f"All manifests of pipeline {self._pipeline!r} are gone from {self.url(self._layout.manifests)}, and with "
            f"them its position. The coordinator log has epoch {epoch.number}. {why}. Nothing was written.",
            hint=hint,
        )

    def prepare(self, epoch: Epoch, rows: DataFrame) -> Prepared:
        """Upload the rows. Raises SchemaMismatch, UnsafeStore, ConfigurationError or StoreUnreachable."""
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
        body = Receipts(epoch.number, epoch.attempt, uploads, ZONE).to_json()
        self._bucket.put(key, body)
        if not self._safe:
            # The fence needs conditional writes, and a store that ignores the condition doesn't report it.
            if self._bucket.put_new(key, body):
                raise unsafe(self._name)
            self._safe = True
        return Prepared(found.rows, found.checksum, {"prepared": key})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Commit the epoch: 1. read the last manifest, 2. complete the uploads, 3. put the manifest if absent.

        The manifest comes last, because it must not list an object that doesn't exist. Between 1 and 3 another process
        may commit the same epoch. The conditional put alone decides which of them has committed it.
        """
        there = self._standing(epoch)
        if there is not None:
            return there
        key = prepared.receipt["prepared"]
        try:
            receipts = self._receipts(key)
            uploads = receipts.uploads
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._complete, uploads))
        except PreparedLost:
            # Another process may have committed the epoch and cleaned up.
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
            after=epoch.expected.epoch if epoch.expected is not None else 0,
            zone=receipts.zone,
        )
        return self._put(manifest, epoch)

    def abort(self, before: int) -> None:
        """Abort uploads and remove receipts of all attempts below ``before``."""
        receipts = self._receipts_of(before)
        for key, each in self._uploads_of(before):
            self._bucket.abort_upload(key, each)
        for key in receipts:
            self._forget(key)

    def prepared(self, before: int) -> list[str]:
        """The URLs of unfinished uploads, and of receipts, of all attempts below ``before``."""
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
            # Without an error the pipeline would start from the beginning.
            raise SinkError(
                f"{self._name} lists the manifest of epoch {number}, but it can't be read.",
                hint="Something deletes manifests. Only Lakelock may write under _lakelock/.",
            )
        return last

    def _standing(self, epoch: Epoch) -> Committed | None:
        """The commit if the epoch is committed already, None if it can be. Raises Fenced or PositionMismatch."""
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
                hint="Something else has written or restored manifests there: start the pipeline again.",
            )
        return None

    def _receipts(self, key: str) -> Receipts:
        body = self._bucket.get(key)
        if body is None:
            raise PreparedLost(f"The rows prepared for {self._name} are gone: {key} doesn't exist.")
        return Receipts.from_json(body, key=key)

    def _complete(self, receipt: Receipt) -> None:
        """Complete an upload. Any process may do so, any number of times. Raises PreparedLost or StoreUnreachable."""
        try:
            self._bucket.complete(receipt.key, receipt.upload, receipt.etags)
        except UploadLost:
            if not self._holds(receipt):
                raise PreparedLost(
                    f"The rows prepared for {self._name} are gone: S3 has neither an upload for {receipt.key} nor the "
                    "object.",
                    hint="A lifecycle rule may have removed it. Let AbortIncompleteMultipartUpload wait longer than "
                    "the pipeline may be stopped.",
                ) from None
        except StoreUnreachable:
            # The upload may be complete, and only the answer lost.
            if not self._holds(receipt):
                raise

    def _holds(self, receipt: Receipt) -> bool:
        """Whether the object exists, is ours and has its full size. Keys are unique, and each part had its MD5."""
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
                f"It is unknown whether epoch {epoch.number} is committed to {self._name}"
                + (f": {unanswered.message}" if unanswered else ": its manifest was refused, but doesn't exist."),
                hint=unanswered.hint if unanswered else "",
            ) from unanswered
        return there

    def _committed(self, manifest: Manifest, *, rows: int, already: bool = False) -> Committed:
        reads = {"manifest": self._layout.manifest(manifest.epoch)}
        return Committed(manifest.position, rows=rows, already=already, reads=reads)

    def _forget(self, key: str) -> None:
        """Remove the receipts of a finished attempt, and their uploads unless the epoch was committed from them."""
        body = self._bucket.get(key)
        if body is None:
            return
        receipts = Receipts.from_json(body, key=key)
        manifest = self._manifests.read(receipts.epoch)
        if manifest is None or manifest.prepared != key:
            for each in receipts.uploads:  # for stores that don't list uploads
                self._bucket.abort_upload(each.key, each.upload)
            named = {each["key"] for each in manifest.objects} if manifest else set()
            left = [each.key for each in receipts.uploads if each.key not in named]
            if manifest is None:
                if any(self._bucket.head(each) for each in left):
                    # A commit has begun. Nothing is deleted while its manifest could still be put.
                    return
            elif manifest.prepared:  # one that was put anew names none of its epoch's objects
                self._bucket.delete(left)
        self._bucket.delete([key])
