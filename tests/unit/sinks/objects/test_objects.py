"""The objects sink without Spark, against moto: what is prepared here comes from Arrow batches of the test's own."""

import hashlib
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from io import BytesIO
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import unquote

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, NoCredentialsError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws
from pyspark.sql import Row, functions
from pyspark.sql.types import StringType, StructField, StructType

from sinks.contract import Epoch, Position, Prepared
from sinks.errors import (
    CommitUnknown,
    ConfigurationError,
    Fenced,
    PositionMismatch,
    PreparedLost,
    SinkError,
    StoreUnreachable,
    UnsafeStore,
    UnsupportedFormat,
)
from sinks.objects import S3Objects
from sinks.objects.bucket import Bucket
from sinks.objects.layout import NULL, Layout, folder, newest
from sinks.objects.manifest import Manifest, gone
from sinks.objects.receipts import Receipts
from sinks.objects.refusals import about
from sinks.objects.rows import upload
from sinks.objects.upload import METADATA, Receipt, Target, Upload, uploaded
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.optional import Forgetful
from sinks.s3.client import S3Options, bucket_and_prefix, client
from sinks.spark.checksum import Fingerprint

MIB = 1024 * 1024
NO_ROWS: Any = None
OPTIONS = S3Options(region="us-east-1", max_attempts=1)


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        made = client(OPTIONS)
        made.create_bucket(Bucket="lake")
        yield made


def sink(pipeline: str = "p", **changes: Any) -> S3Objects:
    """As a new process would open it."""
    changes = {"format": "json_lines", "options": OPTIONS, **changes}
    return S3Objects(None, "s3://lake/t/", pipeline=pipeline, **changes)  # type: ignore[arg-type]


def epoch(expected: Position | None, *, attempt: int, owner: str = "run-1", pipeline: str = "p") -> Epoch:
    number = expected.epoch + 1 if expected else 1
    ranges = (OffsetRange("t", 0, 0, number),)
    return Epoch(pipeline, number, owner, ranges, Offsets({TopicPartition("t", 0): number}), {}, None, expected,
                 attempt=attempt)  # fmt: skip


def batch(values: list[str], at: list[str] | None = None) -> Any:
    import pyarrow as pa

    columns = {"row": pa.array(values)} | ({"at": pa.array(at)} if at else {})
    return pa.RecordBatch.from_pydict(columns)


def target(layout: Layout, number: int, attempt: int, **changes: Any) -> Target:
    mark = json.dumps({"pipeline": layout.pipeline, "epoch": number}, separators=(",", ":"))
    made = Target("lake", layout.root, layout.stem(number, attempt, "0123abcd"), mark, "json_lines", (), OPTIONS, MIB)
    return replace(made, **changes)


def prepare(s3: Any, work: Epoch, *objects: list[str]) -> Prepared:
    """One object for each list of lines."""
    layout = Layout("t", work.pipeline)
    where = target(layout, work.number, work.attempt)
    receipts = [
        receipt for task, lines in enumerate(objects) for receipt in uploaded([batch(lines)], where, task=task, s3=s3)
    ]
    key = layout.receipt(work.attempt, "0123abcd")
    s3.put_object(Bucket="lake", Key=key, Body=Receipts(work.number, work.attempt, receipts).to_json())
    return Prepared(sum(each.rows for each in receipts), "", {"prepared": key})


def put(s3: Any, attempt: int, *objects: list[str], owner: str = "run-1", pipeline: str = "p") -> Epoch:
    work = epoch(sink(pipeline).position(), attempt=attempt, owner=owner, pipeline=pipeline)
    sink(pipeline).commit(work, prepare(s3, work, *objects))
    return work


def lines(s3: Any) -> list[str]:
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="lake").get("Contents", [])]
    objects = [s3.get_object(Bucket="lake", Key=key)["Body"].read() for key in keys if "_lakelock/" not in key]
    return sorted(line for body in objects for line in body.decode().splitlines())


def uploads(s3: Any) -> list[str]:
    return [each["Key"] for each in s3.list_multipart_uploads(Bucket="lake").get("Uploads", [])]


def answers(s3: Any, operation: str, status: int, code: str, *, times: int = 1) -> None:
    """Let S3 answer so, without doing anything."""
    left = [times]

    def answer(**_: object) -> tuple[AWSResponse, dict[str, Any]] | None:
        if left[0] == 0:
            return None
        left[0] -= 1
        parsed = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        return AWSResponse("", status, {}, None), parsed

    s3.meta.events.register_first(f"before-call.s3.{operation}", answer)


def done_but(s3: Any, operation: str, status: int, code: str) -> None:
    """Let S3 do what it is asked once, and answer so."""

    class Raw(BytesIO):
        def stream(self, **_: object) -> Iterator[bytes]:
            yield self.read()

    left = [1]

    def answer(request: Any, **_: object) -> AWSResponse | None:
        left[0] -= 1
        body = Raw(f"<Error><Code>{code}</Code></Error>".encode())
        return AWSResponse(request.url, status, {}, body) if left[0] == 0 else None

    s3.meta.events.register_first(f"before-send.s3.{operation}", answer)


def opened(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks use this client, with what it was told to answer."""
    monkeypatch.setattr("sinks.objects.bucket.client", lambda options: s3)


class TestNewest:
    @given(numbers=st.sets(st.integers(1, 5000)), known=st.integers(0, 6000))
    def test_it_is_the_highest_whatever_was_known(self, numbers: set[int], known: int) -> None:
        assert newest(after(numbers), known) == max(numbers, default=None)

    def test_few_questions_find_it_among_many(self) -> None:
        asked: list[int] = []
        assert newest(after(set(range(1, 1_000_001)), asked)) == 1_000_000
        assert len(asked) < 45

    def test_two_questions_tell_that_nothing_is_new(self) -> None:
        asked: list[int] = []
        assert newest(after(set(range(1, 1001)), asked), known=1000) == 1000
        assert len(asked) == 2


def after(numbers: set[int], asked: list[int] | None = None) -> Callable[[int], int | None]:
    from bisect import bisect_right

    ordered = sorted(numbers)

    def ask(number: int) -> int | None:
        if asked is not None:
            asked.append(number)
        at = bisect_right(ordered, number)
        return ordered[at] if at < len(ordered) else None

    return ask


class TestLayout:
    def test_partitions_are_escaped_as_hive_does(self) -> None:
        assert folder(["a", "b c"], ["x/y=1%", "ü "]) == "a=x%2Fy%3D1%25/b c=ü /"
        assert folder(["a", "b"], [None, ""]) == f"a={NULL}/b={NULL}/"

    @given(st.text(min_size=1).filter(lambda text: text != NULL))
    def test_a_partition_is_one_folder_that_tells_its_value(self, value: str) -> None:
        escaped = folder(["a"], [value])
        assert escaped.count("/") == 1
        assert unquote(escaped[2:-1]) == value

    def test_a_key_tells_whose_it_is(self) -> None:
        mine, other = Layout("t", "a"), Layout("t", "a-000000000001")
        key = f"t/day=1/{mine.stem(2, 7, '0123abcd')}-000003-00000.parquet"
        assert mine.attempt_of(key) == 7
        assert other.attempt_of(key) is None
        assert mine.attempt_of(key.replace("part-a", "part-a-000000000001")) is None
        assert mine.attempt_of("elsewhere/" + key) is None
        assert Layout("", "a").attempt_of(key.removeprefix("t/")) == 7
        # Of pipelines of the same name above and below, each with attempts of its own.
        assert Layout("", "a").attempt_of(key) is None
        assert mine.attempt_of(key.replace("t/", "t/prod/")) is None

    def test_urls(self) -> None:
        assert bucket_and_prefix("s3a://lake//a/b/") == ("lake", "a/b")
        assert bucket_and_prefix("s3://lake") == ("lake", "")
        for url in ("lake/a", "s3:///a", "https://lake/a", "s3://key:secret@lake/a"):
            with pytest.raises(ConfigurationError) as told:
                bucket_and_prefix(url)
            assert "secret" not in told.value.message + told.value.hint


class TestUpload:
    def test_a_stream_becomes_parts_and_one_object(self, s3: Any) -> None:
        upload = Upload(s3, "lake", "k", {}, part_bytes=5 * MIB)
        content = bytes(range(256)) * 4096 * 12  # 12 MiB
        for start in range(0, len(content), 700_001):
            upload.write(content[start : start + 700_001])
        receipt = upload.receipt(rows=3)
        assert len(receipt.etags) == 3
        assert (receipt.bytes, receipt.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert s3.list_objects_v2(Bucket="lake")["KeyCount"] == 0
        bucket().complete(receipt.key, receipt.upload, receipt.etags)
        assert s3.get_object(Bucket="lake", Key="k")["Body"].read() == content

    def test_a_part_that_fails_fails_the_upload(self, s3: Any) -> None:
        answers(s3, "UploadPart", 403, "AccessDenied")
        upload = Upload(s3, "lake", "k", {}, part_bytes=5 * MIB)
        upload.write(b"x")
        with pytest.raises(ClientError):
            upload.receipt(rows=1)
        upload.abort()
        assert uploads(s3) == []

    def test_no_more_than_two_parts_are_on_their_way(self) -> None:
        gate, running = threading.Event(), []

        class Slow:
            def create_multipart_upload(self, **_: object) -> dict[str, str]:
                return {"UploadId": "u"}

            def upload_part(self, **part: Any) -> dict[str, str]:
                running.append(part["PartNumber"])
                gate.wait(10)
                return {"ETag": "e"}

        upload = Upload(Slow(), "lake", "k", {}, part_bytes=1)
        writer = threading.Thread(target=lambda: upload.write(b"12345"))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert len(running) == 2
        gate.set()
        writer.join(10)
        assert len(upload.receipt(1).etags) == 5

    def test_an_object_is_closed_at_its_size_and_at_a_new_partition(self, s3: Any) -> None:
        where = target(Layout("t", "p"), 1, 1, partition_by=("d",), max_object_bytes=1500)
        at = ['["a"]'] * 3 + ["[null]"] * 1 + ['["a"]'] * 1
        receipts = list(uploaded([batch(["x" * 999] * 5, at)], where, task=4, s3=s3))
        found = [(each.key.split("/")[1], each.rows) for each in receipts]
        assert found == [("d=a", 3), (f"d={NULL}", 1), ("d=a", 1)]
        assert len({each.key for each in receipts}) == 3
        more = list(uploaded([batch(["x" * 999] * 2)] * 3, replace(where, partition_by=()), task=5, s3=s3))
        assert [each.rows for each in more] == [2, 2, 2]

    def test_a_task_without_rows_uploads_nothing(self, s3: Any) -> None:
        assert list(uploaded([batch([])], target(Layout("t", "p"), 1, 1), task=0, s3=s3)) == []
        assert uploads(s3) == []

    def test_a_task_that_fails_leaves_nothing_where_it_can(self, s3: Any) -> None:
        def broken() -> Iterator[Any]:
            yield batch(["a"])
            raise RuntimeError("the query failed")

        with pytest.raises(RuntimeError, match="the query failed"):
            list(uploaded(broken(), target(Layout("t", "p"), 1, 1), task=0, s3=s3))
        assert uploads(s3) == []

    def test_parquet_of_many_batches_has_few_row_groups(self, s3: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.array([{"a b": number} for number in range(100)])
        where = target(Layout("t", "p"), 1, 1, format="parquet")
        batches = [pa.RecordBatch.from_arrays([rows], ["row"])] * 20
        (receipt,) = uploaded(batches, where, task=0, s3=s3)
        bucket().complete(receipt.key, receipt.upload, receipt.etags)
        file = pq.ParquetFile(pa.BufferReader(s3.get_object(Bucket="lake", Key=receipt.key)["Body"].read()))
        assert (file.metadata.num_row_groups, file.metadata.num_rows) == (1, 2000)
        assert file.schema_arrow.names == ["a b"]

    def test_objects_are_encrypted_and_stored_as_asked(self, s3: Any) -> None:
        asked = replace(OPTIONS, server_side_encryption="aws:kms", kms_key_id="alias/k", storage_class="STANDARD_IA")
        where = target(Layout("t", "p"), 1, 1, options=asked)
        (receipt,) = uploaded([batch(["a"])], where, task=0, s3=s3)
        bucket().complete(receipt.key, receipt.upload, receipt.etags)
        found = s3.head_object(Bucket="lake", Key=receipt.key)
        assert (found["ServerSideEncryption"], found["StorageClass"]) == ("aws:kms", "STANDARD_IA")
        assert json.loads(found["Metadata"][METADATA])["pipeline"] == "p"
        Bucket("lake", asked, url="s3://lake").put("small", b"{}")
        small = s3.head_object(Bucket="lake", Key="small")
        assert small["ServerSideEncryption"] == "aws:kms"
        assert "StorageClass" not in small

    def test_what_goes_to_the_executors_can_be_pickled(self) -> None:
        where = target(Layout("t", "p"), 1, 1)
        assert pickle.loads(pickle.dumps(where)) == where


def bucket() -> Bucket:
    return Bucket("lake", OPTIONS, url="s3://lake/t")


class TestPrepare:
    """What doesn't need Spark of it: no rows are uploaded."""

    @pytest.fixture(autouse=True)
    def _no_rows(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        opened(s3, monkeypatch)
        monkeypatch.setattr("sinks.objects.sink.upload", lambda *_, **__: ([], Fingerprint(0, "")))

    def test_the_store_is_asked_once_whether_it_refuses_a_second_writer(self, s3: Any) -> None:
        puts: list[Any] = []
        s3.meta.events.register(
            "provide-client-params.s3.PutObject", lambda params, **_: puts.append(params.get("IfNoneMatch"))
        )
        made = sink()
        keys = [made.prepare(epoch(None, attempt=attempt), NO_ROWS).receipt["prepared"] for attempt in (1, 2)]
        assert puts == [None, "*", None]
        assert bucket().keys(Layout("t", "p").prepared) == keys
        assert Receipts.from_json(bucket().get(keys[0]) or b"", key="").zone == "UTC"

    def test_a_store_that_ignores_the_condition_is_refused(self, s3: Any) -> None:
        """It would tell two runs that each has put the manifest, and the later one would replace the other's."""
        s3.meta.events.register(
            "provide-client-params.s3.PutObject",
            lambda params, **_: {name: value for name, value in params.items() if name != "IfNoneMatch"},
        )
        made = sink()
        for attempt in (1, 2):
            with pytest.raises(UnsafeStore, match=r"s3://lake/t overwrites an existing object"):
                made.prepare(epoch(None, attempt=attempt), NO_ROWS)

    def test_a_store_that_doesn_t_know_the_condition_is_refused(self, s3: Any) -> None:
        def old(params: Any, **_: object) -> None:
            if "IfNoneMatch" in params:
                answers(s3, "PutObject", 501, "NotImplemented")

        s3.meta.events.register("provide-client-params.s3.PutObject", old)
        with pytest.raises(UnsafeStore, match=r"s3://lake/t overwrites an existing object") as told:
            sink().prepare(epoch(None, attempt=1), NO_ROWS)
        assert "conditional writes" in told.value.hint


class Frame:
    """A DataFrame of one task, which gets these batches. What Spark would compute of its rows isn't looked at."""

    schema = StructType([StructField("row", StringType())])
    columns = ("row",)
    sparkSession = None

    def __init__(self, *batches: Any) -> None:
        self._batches = batches

    def select(self, *_: object) -> "Frame":
        return self

    def mapInArrow(self, run: Callable[[Iterator[Any]], Iterator[Any]], _: str) -> "Frame":
        return Frame(*run(iter(self._batches)))

    def collect(self) -> list[Row]:
        return [Row(**row) for each in self._batches for row in each.to_pylist()]


class TestRows:
    @pytest.fixture(autouse=True)
    def _without_spark(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("col", "struct", "array", "to_json"):
            monkeypatch.setattr(functions, name, MagicMock())
        monkeypatch.setattr("sinks.objects.rows.ship", lambda _: None)
        monkeypatch.setattr("sinks.objects.rows.fingerprinted", lambda rows: (rows, lambda: Fingerprint(3, "sum")))
        monkeypatch.setattr("sinks.objects.upload._client", lambda _: s3)

    def test_the_receipts_have_the_rows_that_spark_has_counted(self, s3: Any) -> None:
        frame: Any = Frame(batch(["a", "b"]), batch(["c"]))
        receipts, found = upload(frame, target(Layout("t", "p"), 1, 1), url="s3://lake/t")
        assert sum(each.rows for each in receipts) == found.rows == 3
        assert uploads(s3) == [each.key for each in receipts]

    @pytest.mark.parametrize("others", [[["a", "b"]], [["a"], ["b"], ["c"], ["c"]], []])
    def test_rows_that_a_worker_leaves_out_or_repeats_stop_the_epoch(self, others: list[list[str]]) -> None:
        """Nobody audits objects: a row that is missing from the receipts would be missing for good."""
        frame: Any = Frame(*map(batch, others))
        arrived = sum(map(len, others))
        with pytest.raises(SinkError, match=rf"3 rows were to be uploaded to s3://lake/t, but {arrived} arrived"):
            upload(frame, target(Layout("t", "p"), 1, 1), url="s3://lake/t")


class TestCommit:
    def test_of_two_that_put_one_does(self, s3: Any) -> None:
        assert [bucket().put_new("k", b"1"), bucket().put_new("k", b"2")] == [True, False]
        assert bucket().get("k") == b"1"

    def test_a_conflict_is_asked_again(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        opened(s3, monkeypatch)
        answers(s3, "PutObject", 409, "ConditionalRequestConflict", times=2)
        assert bucket().put_new("k", b"1")

    def test_the_position_is_the_last_manifest_s(self, s3: Any) -> None:
        for attempt in range(1, 13):
            work = put(s3, attempt, [str(attempt)])
        found = sink().position()
        assert found is not None
        assert (found.epoch, found.owner, found.offsets) == (12, "run-1", work.offsets)
        assert [each["rows"] for each in sink().objects(3)] == [1, 1, 1]
        first = sink().objects(1)[0]
        body = s3.get_object(Bucket="lake", Key=first["key"])["Body"].read()
        assert (first["bytes"], first["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())

    def test_a_manifest_says_in_which_zone_its_folders_tell_a_time(self, s3: Any) -> None:
        """It is that of the prepare call: an earlier version may have prepared what this one commits."""
        put(s3, 1, ["a"])
        work = epoch(sink().position(), attempt=2)
        prepared = prepare(s3, work, ["b"])
        key = prepared.receipt["prepared"]
        receipts = Receipts.from_json(bucket().get(key) or b"", key=key)
        bucket().put(key, replace(receipts, zone="UTC").to_json())
        sink().commit(work, prepared)
        assert [each["zone"] for each in sink().objects(2)] == [None, "UTC"]

    def test_a_stranger_among_the_manifests_hides_none(self, s3: Any) -> None:
        put(s3, 1, ["a"])
        s3.put_object(Bucket="lake", Key=Layout("t", "p").manifests, Body=b"")
        s3.put_object(Bucket="lake", Key=Layout("t", "p").manifests + "0-notes.txt", Body=b"")
        put(s3, 2, ["b"])
        found = sink().position()
        assert found is not None
        assert found.epoch == 2

    def test_a_manifest_that_can_not_be_read_is_not_taken_for_none(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(s3, 1, ["a"])
        opened(s3, monkeypatch)
        answers(s3, "GetObject", 404, "NoSuchKey")
        with pytest.raises(SinkError, match="lists the manifest"):
            sink().position()

    def test_half_a_commit_is_completed_by_another_process(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"], ["b"])
        body = Receipts.from_json(bucket().get(prepared.receipt["prepared"]) or b"", key="")
        first = body.uploads[0]
        bucket().complete(first.key, first.upload, first.etags)
        assert lines(s3) == ["a"]
        assert sink().position() is None
        opened(s3, monkeypatch)
        answers(s3, "CompleteMultipartUpload", 404, "NoSuchUpload")  # to the first, which is completed already
        monkeypatch.setattr("sinks.objects.sink._AT_ONCE", 1)
        assert not sink().commit(work, prepared).already
        assert lines(s3) == ["a", "b"]

    def test_an_upload_that_is_gone_is_lost(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        opened(s3, monkeypatch)
        answers(s3, "CompleteMultipartUpload", 404, "NoSuchUpload")
        with pytest.raises(PreparedLost):
            sink().commit(work, prepared)
        assert sink().position() is None

    def test_an_object_of_another_size_is_not_ours(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        s3.put_object(Bucket="lake", Key=uploads(s3)[0], Body=b"other")
        opened(s3, monkeypatch)
        answers(s3, "CompleteMultipartUpload", 404, "NoSuchUpload")
        with pytest.raises(PreparedLost):
            sink().commit(work, prepared)

    def test_a_lost_answer_to_the_manifest_is_found_out(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """The put landed, its answer didn't come, and the client's own retry was refused."""
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        real = Bucket.put_new

        def landed(self: Bucket, key: str, body: bytes) -> bool:
            real(self, key, body)
            return real(self, key, body)

        monkeypatch.setattr(Bucket, "put_new", landed)
        assert sink().commit(work, prepared).position.epoch == 1
        assert lines(s3) == ["a"]

    def test_no_answer_to_the_manifest_is_unknown_and_then_known(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        opened(s3, monkeypatch)
        answers(s3, "PutObject", 503, "SlowDown")
        with pytest.raises(CommitUnknown):
            sink().commit(work, prepared)
        assert not sink().commit(work, prepared).already
        assert sink().commit(work, prepared).already
        assert lines(s3) == ["a"]

    @pytest.mark.parametrize("operation", ["PutObject", "CompleteMultipartUpload"])
    def test_an_answer_that_never_came_is_looked_up(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        opened(s3, monkeypatch)
        done_but(s3, operation, 503, "SlowDown")
        assert sink().commit(work, prepared).position.epoch == 1
        assert lines(s3) == ["a"]

    def test_no_answer_to_a_completion_leaves_the_epoch_to_the_next_commit(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        opened(s3, monkeypatch)
        answers(s3, "CompleteMultipartUpload", 503, "SlowDown")
        with pytest.raises(StoreUnreachable):
            sink().commit(work, prepared)
        assert sink().position() is None
        assert not sink().commit(work, prepared).already

    def test_the_one_whose_manifest_came_second_is_fenced(self, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        zombie = epoch(None, attempt=1, owner="zombie")
        prepared = prepare(s3, zombie, ["z"])
        slow = sink()
        real = Bucket.put_new

        def late(self: Bucket, key: str, body: bytes) -> bool:
            monkeypatch.setattr(Bucket, "put_new", real)
            put(s3, 2, ["a"], owner="winner")
            return real(self, key, body)

        monkeypatch.setattr(Bucket, "put_new", late)
        with pytest.raises(Fenced) as fenced:
            slow.commit(zombie, prepared)
        assert (fenced.value.owner, fenced.value.epoch) == ("winner", 1)
        assert [each["rows"] for each in sink().objects(1)] == [1]

    def test_an_epoch_that_others_followed_is_there_already(self, s3: Any) -> None:
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"])
        sink().commit(work, prepared)
        put(s3, 2, ["b"], owner="run-2")
        assert sink().commit(work, prepared).already

    def test_a_newer_format_is_refused(self, s3: Any) -> None:
        put(s3, 1, ["a"])
        key = Layout("t", "p").manifest(2)
        s3.put_object(Bucket="lake", Key=key, Body=b'{"lakelock": 2}')
        with pytest.raises(UnsupportedFormat):
            sink().position()
        s3.put_object(Bucket="lake", Key=key, Body=b"what?")
        with pytest.raises(SinkError):
            sink().position()


class TestAbort:
    def test_orphaned_uploads_are_found_by_their_keys(self, s3: Any) -> None:
        layout = Layout("t", "p")
        for attempt in (1, 2, 3):
            key = f"t/d=1/{layout.stem(1, attempt, '0123abcd')}-000000-00000.parquet"
            s3.create_multipart_upload(Bucket="lake", Key=key)
        s3.create_multipart_upload(Bucket="lake", Key="t/somebody-s.parquet")
        s3.create_multipart_upload(Bucket="lake", Key=f"t/{Layout('t', 'q').stem(1, 1, '0123abcd')}-0-0.parquet")
        sink().abort(before=3)
        assert sorted(key.rsplit("/", 1)[-1][:35] for key in uploads(s3)) == [
            "part-p-000000000001-000000000003-01", "part-q-000000000001-000000000001-01", "somebody-s.parquet",
        ]  # fmt: skip

    def test_two_pipelines_share_a_prefix(self, s3: Any) -> None:
        work = epoch(None, attempt=1, pipeline="q")
        prepared = prepare(s3, work, ["q"])
        put(s3, 1, ["p"])
        sink("p").abort(before=9)
        sink("q").commit(work, prepared)
        assert lines(s3) == ["p", "q"]

    def test_after_a_commit_nothing_is_left_but_what_counts(self, s3: Any) -> None:
        put(s3, 1, ["a"])
        sink().abort(before=2)
        sink().abort(before=2)
        assert lines(s3) == ["a"]
        assert bucket().keys(Layout("t", "p").prepared) == []
        assert len(bucket().keys(Layout("t", "p").own)) == 1

    def test_half_a_commit_that_was_prepared_anew_leaves_no_row_twice(self, s3: Any) -> None:
        """An upload was lost after the decision: the epoch is committed from other objects, and those that the first
        commit had completed go, but not before."""
        work = epoch(None, attempt=1)
        prepared = prepare(s3, work, ["a"], ["b"])
        first = Receipts.from_json(bucket().get(prepared.receipt["prepared"]) or b"", key="").uploads[0]
        bucket().complete(first.key, first.upload, first.etags)
        sink().abort(before=2)
        assert lines(s3) == ["a"], "its manifest isn't put yet: nothing is deleted"
        assert uploads(s3) == []
        put(s3, 2, ["a", "b"])
        sink().abort(before=3)
        assert lines(s3) == ["a", "b"]
        assert bucket().keys(Layout("t", "p").prepared) == []


def rule(s3: Any, status: str = "Enabled", expiration: Any = None, **chosen: Any) -> None:
    made = {"ID": "r", "Status": status, "Expiration": expiration or {"Days": 30}, **(chosen or {"Prefix": "t/"})}
    s3.put_bucket_lifecycle_configuration(Bucket="lake", LifecycleConfiguration={"Rules": [made]})


def remove(s3: Any, folder: str) -> None:
    """As a rule of the bucket does with old objects."""
    for key in bucket().keys(folder):
        s3.delete_object(Bucket="lake", Key=key)


class TestForgotten:
    def test_a_position_wants_to_be_written_again_each_day(self, s3: Any) -> None:
        put(s3, 1, ["a"])
        found = sink().position()
        assert found is not None
        assert found.committed_at is not None
        assert found.refresh_after == found.committed_at + timedelta(days=1)

    def test_where_a_rule_has_removed_all_manifests_the_last_one_is_put_anew(
        self, s3: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        rule(s3)
        put(s3, 1, ["a"])
        sink().abort(before=2)
        last = put(s3, 2, ["b"])
        assert isinstance(sink(), Forgetful)
        remove(s3, Layout("t", "p").manifests)
        found = sink().remind(last, {"manifest": "m"}, done=True)
        assert found is not None
        assert found.holds(last)
        assert sink().remind(last, {}, done=True) == found, "two processes may do so at once"
        sink().abort(before=9)
        assert lines(s3) == ["a", "b"], "its receipts are there, and it names no objects: they stay"
        assert bucket().keys(Layout("t", "p").prepared) == []
        put(s3, 3, ["c"])
        assert not caplog.records
        assert [each["rows"] for each in sink().objects(3)] == [1]
        assert "epochs 1 to 2 are gone from s3://lake/t" in caplog.text

    @pytest.mark.parametrize(("code", "why"), [("", "No rule"), ("AccessDenied", "isn't known")])
    def test_where_no_rule_is_known_to_have_removed_them_nothing_is_written(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch, code: str, why: str
    ) -> None:
        """They were removed by mistake, or this is another store."""
        last = put(s3, 1, ["a"])
        remove(s3, Layout("t", "p").manifests)
        if code:
            opened(s3, monkeypatch)
            answers(s3, "GetBucketLifecycleConfiguration", 403, code)
        with pytest.raises(PositionMismatch, match=r"are gone from s3://lake/t/_lakelock/p/.* log has epoch 1") as told:
            sink().remind(last, {}, done=True)
        assert why in told.value.message
        assert sink().position() is None

    def test_an_epoch_in_doubt_is_repeated_only_from_what_it_has_prepared(self, s3: Any) -> None:
        rule(s3)
        put(s3, 1, ["a"])
        work = epoch(sink().position(), attempt=2)
        prepared = prepare(s3, work, ["b"])
        remove(s3, Layout("t", "p").manifests)
        before = sink().remind(work, {}, done=False)
        assert before is not None
        assert (before.epoch, before.offsets) == (1, work.passed)
        assert not sink().commit(work, prepared).already
        assert lines(s3) == ["a", "b"]
        remove(s3, Layout("t", "p").own)
        with pytest.raises(PositionMismatch, match="Nothing tells whether epoch 2 was committed"):
            sink().remind(work, {}, done=False)
        assert sink().remind(epoch(None, attempt=3), {}, done=False) is None, "a first epoch follows no manifest"

    @pytest.mark.parametrize(
        ("removes", "made"),
        [
            (True, {"Prefix": ""}), (True, {"Filter": {"Prefix": "t/_lakelock/"}}), (False, {"Prefix": "other/"}),
            (True, {"expiration": {"Date": datetime(2030, 1, 1)}}), (False, {"status": "Disabled"}),
            (False, {"Filter": {"Tag": {"Key": "k", "Value": "v"}}}),
            (False, {"Filter": {"And": {"Prefix": "t/", "Tags": [{"Key": "k", "Value": "v"}]}}}),
            (False, {"expiration": {"ExpiredObjectDeleteMarker": True}}),
        ],
    )  # fmt: skip
    def test_a_rule_counts_if_it_removes_manifests(self, s3: Any, removes: bool, made: dict[str, Any]) -> None:
        rule(s3, **made)
        assert bucket().expires(Layout("t", "p").manifests) is removes

    @given(there=st.sets(st.integers(1, 12)), last=st.integers(1, 12))
    def test_the_epochs_of_all_manifests_that_are_gone_are_named(self, there: set[int], last: int) -> None:
        none, now = Offsets(), datetime(2026, 1, 1, tzinfo=timezone.utc)
        left = [Manifest("p", n, "", 0, none, [], "", now, after=n - 1) for n in sorted(there) if n <= last]
        named = [epoch for first, to in gone(left, last) for epoch in range(first, to + 1)]
        assert named == [epoch for epoch in range(1, last + 1) if epoch not in there]
        if left:
            untold = [replace(each, after=None) for each in left]
            assert gone(untold, left[-1].epoch) == [], "those of an earlier version don't tell"


class TestTrouble:
    def test_a_bucket_that_isn_t_there(self, s3: Any) -> None:
        with pytest.raises(ConfigurationError, match="doesn't exist"):
            S3Objects(None, "s3://nowhere/t", pipeline="p", format="parquet", options=OPTIONS).position()  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("AccessDenied", ConfigurationError), ("InvalidAccessKeyId", ConfigurationError),
            ("KMS.NotFoundException", ConfigurationError), ("SlowDown", StoreUnreachable), ("Strange", SinkError),
        ],
    )  # fmt: skip
    def test_every_no_has_a_paragraph(self, code: str, kind: type[Exception]) -> None:
        with pytest.raises(kind, match=r"s3://lake/t"), about("s3://lake/t"):
            raise ClientError({"Error": {"Code": code, "Message": "it says"}}, "PutObject")

    def test_no_credentials(self) -> None:
        with pytest.raises(ConfigurationError) as told, about("s3://lake/t"):
            raise NoCredentialsError
        assert "environment" in told.value.hint

    def test_receipts_keep_what_they_were(self) -> None:
        receipts = Receipts(1, 2, [Receipt("k", "u", ["e1", "e2"], 3, 4, "5")])
        assert Receipts.from_json(receipts.to_json(), key="k") == receipts
