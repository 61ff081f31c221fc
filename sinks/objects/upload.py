"""Runs on an executor: turns Arrow batches into objects whose parts are all uploaded. The commit completes them.

Memory is limited to a row group and four parts of an upload: one that is being filled, two in flight, one in between.
This module needs none of Spark's.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sinks.objects.layout import SUFFIXES, folder
from sinks.s3.client import S3Options, client

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Schema

Format = Literal["parquet", "json_lines"]
METADATA = "lakelock"
"""``x-amz-meta-lakelock``: JSON that says which pipeline, epoch and attempt made an object."""
_PART = 8 * 1024 * 1024
_MOST_PARTS = 10_000
_ROW_GROUP = 32 * 1024 * 1024
_LINES = 1024


class Receipt(NamedTuple):
    """What is needed to complete one object, and what the object contains."""

    key: str
    upload: str
    etags: list[str]
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Target:
    """Where and how the rows of one prepare call are stored. Sent to the executors."""

    bucket: str
    root: str
    stem: str
    mark: str
    format: Format
    partition_by: tuple[str, ...]
    options: S3Options
    max_object_bytes: int
    """The size in bytes at which an object is closed."""

    @property
    def part_bytes(self) -> int:
        """The size of a part in bytes, large enough for S3's limit on the number of parts."""
        # Twice, because one write may take an object beyond its limit.
        return max(_PART, 2 * self.max_object_bytes // _MOST_PARTS)

    def key(self, at: str, task: int, number: int) -> str:
        """The key of an object. ``task`` is the ID of a task attempt, so a retry never makes the same key."""
        return f"{self.root}{at}{self.stem}-{task:06d}-{number:05d}.{SUFFIXES[self.format]}"

    def parameters(self) -> dict[str, Any]:
        """The parameters of the request that creates the upload."""
        kind = {"parquet": "application/vnd.apache.parquet", "json_lines": "application/x-ndjson"}[self.format]
        stored = {"StorageClass": self.options.storage_class} if self.options.storage_class else {}
        return {"ContentType": kind, "Metadata": {METADATA: self.mark}, **stored, **self.options.encryption()}


class Upload:
    """A file-like object that writes into a multipart upload. Nobody sees the data before the upload is completed."""

    def __init__(
        self, s3: Any, bucket: str, key: str, parameters: Mapping[str, Any], *, part_bytes: int = _PART
    ) -> None:
        self.key = key
        self.bytes = 0
        self.closed = False
        self._s3 = s3
        self._at = {"Bucket": bucket, "Key": key}
        self._part_bytes = part_bytes
        self._buffer = bytearray()
        self._sha256 = hashlib.sha256()
        self._parts: list[Future[str]] = []
        self._id: str = s3.create_multipart_upload(**self._at, **parameters)["UploadId"]
        self._pool = ThreadPoolExecutor(2)

    def write(self, data: Any) -> int:
        """Add bytes. Raises the error of a part that failed earlier."""
        count = memoryview(data).nbytes
        self._sha256.update(data)
        self._buffer += data
        self.bytes += count
        while len(self._buffer) >= self._part_bytes:
            self._send(self._part_bytes)
        return count

    def flush(self) -> None:
        """Does nothing, because all parts except the last need S3's smallest size."""

    def close(self) -> None:
        """Mark the file as closed."""
        self.closed = True

    def receipt(self, rows: int) -> Receipt:
        """Send the last part, wait for all parts, and return the receipt."""
        if self._buffer or not self._parts:
            self._send(len(self._buffer))
        etags = [part.result() for part in self._parts]
        self._pool.shutdown()
        return Receipt(self.key, self._id, etags, rows, self.bytes, self._sha256.hexdigest())

    def abort(self) -> None:
        """Abort the upload of a failed task. If that fails too, ``abort`` of the sink finds the upload by its key."""
        self._pool.shutdown(cancel_futures=True)
        try:
            self._s3.abort_multipart_upload(**self._at, UploadId=self._id)
        except Exception:  # the error of the task is the one to report
            return

    def _send(self, count: int) -> None:
        if len(self._parts) > 1:
            self._parts[-2].result()  # at most two in flight, and a failure is raised early
        body = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._parts.append(self._pool.submit(self._send_part, len(self._parts) + 1, body))

    def _send_part(self, number: int, body: bytes) -> str:
        digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        answer = self._s3.upload_part(**self._at, UploadId=self._id, PartNumber=number, Body=body, ContentMD5=digest)
        return str(answer["ETag"])


class _ParquetRows:
    """Collects batches into row groups. A row group per batch would be too small to read well."""

    def __init__(self, file: Upload, schema: Schema, group_bytes: int) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression="snappy")
        self._group_bytes = group_bytes
        self._pending: list[RecordBatch] = []
        self._pending_bytes = 0

    def write(self, rows: RecordBatch) -> None:
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._group_bytes:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
        self._pending, self._pending_bytes = [], 0


class _Lines:
    """Writes lines of JSON."""

    def __init__(self, file: Upload) -> None:
        self._file = file

    def write(self, lines: Array) -> None:
        self._file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    def close(self) -> None:
        """Does nothing, because every line is written at once."""


class _Object:
    """The object that a task is writing."""

    def __init__(self, at: str, upload: Upload, content: _ParquetRows | _Lines) -> None:
        self.at = at
        self.upload = upload
        self._content = content
        self._rows = 0

    def write(self, rows: Any) -> None:
        self._content.write(rows)
        self._rows += len(rows)

    def finish(self) -> Receipt:
        self._content.close()
        return self.upload.receipt(self._rows)


def uploaded(batches: Iterable[RecordBatch], target: Target, *, task: int, s3: Any) -> Iterator[Receipt]:
    """Upload one task's rows and yield a receipt per object.

    The first column of a batch is the row, as a struct or as JSON. The second contains its partition values as a JSON
    list. Consecutive rows of one partition share an object, so sorted rows make the fewest objects. Any order is right.
    """
    current: _Object | None = None
    number = 0
    try:
        for batch in batches:
            for at, rows in _runs(batch, target):
                if current and (current.at != at or current.upload.bytes >= target.max_object_bytes):
                    finished = current.finish()
                    current = None
                    yield finished
                if current is None:
                    key = target.key(at, task, number)
                    file = Upload(s3, target.bucket, key, target.parameters(), part_bytes=target.part_bytes)
                    current = _Object(at, file, _content(file, rows, target))
                    number += 1
                current.write(rows)
        if current:
            yield current.finish()
            current = None
    except BaseException:
        if current:
            current.upload.abort()
        raise


def _content(file: Upload, rows: Any, target: Target) -> _ParquetRows | _Lines:
    if target.format == "json_lines":
        return _Lines(file)
    return _ParquetRows(file, rows.schema, min(_ROW_GROUP, target.max_object_bytes))


def _runs(batch: RecordBatch, target: Target) -> Iterator[tuple[str, Any]]:
    """(folder, rows) for consecutive rows of one partition. Lines come in small runs, so objects keep their size."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = target.format == "json_lines"
    rows = batch.column(0) if lines else pa.RecordBatch.from_struct_array(batch.column(0))
    if not target.partition_by:
        bounds = [("", 0, len(rows))]
    else:
        encoded = pc.run_end_encode(batch.column(1))
        ends = encoded.run_ends.to_pylist()
        bounds = [
            (folder(target.partition_by, json.loads(values)), start, end)
            for values, start, end in zip(encoded.values.to_pylist(), [0, *ends], ends, strict=False)
        ]
    for at, start, end in bounds:
        step = _LINES if lines else max(1, end - start)
        for first in range(start, end, step):
            yield at, rows.slice(first, min(step, end - first))


@cache
def _client(options: S3Options) -> Any:
    """A client per worker process, which runs many tasks: making one takes longer than a small upload."""
    return client(options)


def on_executor(target: Target) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """The function for ``mapInArrow``. It sends S3's errors to the driver as text that the driver can parse."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow as pa
        from botocore.exceptions import BotoCoreError, ClientError
        from pyspark import TaskContext

        from sinks.objects.refusals import facts
        from sinks.spark.row_errors import raise_text

        context = TaskContext.get()
        task = context.taskAttemptId() if context else 0
        try:
            for receipt in uploaded(batches, target, task=task, s3=_client(target.options)):
                yield pa.RecordBatch.from_pylist([receipt._asdict()], schema=_schema())
        except (BotoCoreError, ClientError) as error:
            raise RuntimeError(raise_text("s3", **facts(error))) from None

    return run


RECEIPTS = "key STRING, upload STRING, etags ARRAY<STRING>, rows BIGINT, bytes BIGINT, sha256 STRING"


def _schema() -> Schema:
    import pyarrow as pa

    text, count = pa.string(), pa.int64()
    kinds = [text, text, pa.list_(text), count, count, text]
    return pa.schema(list(zip(Receipt._fields, kinds, strict=True)))
