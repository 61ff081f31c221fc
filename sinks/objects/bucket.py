"""One bucket: the few requests that the sink makes, with S3's answers told apart."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from sinks.errors import StoreUnreachable, UnsafeStore
from sinks.objects.refusals import about, facts
from sinks.s3.client import S3Options, client

_ABSENT = {"NoSuchKey", "404"}
_LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
_UNTOLD = {"AccessDenied", "403", "MethodNotAllowed", "405", "NotImplemented", "501"}
_CONFLICTS = 10


class UploadLost(Exception):
    """Raised when S3 doesn't know the upload, or not with these parts: it was completed, aborted or never existed."""


class Bucket:
    """The requests of the sink to one bucket. ``url`` is the sink's URL, for errors."""

    def __init__(self, name: str, options: S3Options, *, url: str) -> None:
        self.name = name
        self.url = url
        self._options = options

    @cached_property
    def _client(self) -> Any:
        return client(self._options)

    def get(self, key: str) -> bytes | None:
        """The content of an object. None if it doesn't exist."""
        from botocore.exceptions import ClientError

        with about(self.url):
            try:
                body: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
            except ClientError as error:
                if facts(error)["code"] in _ABSENT:
                    return None
                raise
            return body

    def put(self, key: str, body: bytes) -> None:
        """Write a small object, also over an existing one."""
        with about(self.url):
            self._client.put_object(**self._small(key, body))

    def put_new(self, key: str, body: bytes) -> bool:
        """Write a small object if there is none. Of several writers one succeeds.

        Returns False if the object exists, also when it is this call's own whose first answer was lost.
        """
        from botocore.exceptions import ClientError

        for tried in range(_CONFLICTS):
            with about(self.url):
                try:
                    self._client.put_object(**self._small(key, body), IfNoneMatch="*")
                    return True
                except ClientError as error:
                    code = facts(error)["code"]
                    if code in ("PreconditionFailed", "412"):
                        return False
                    if code in ("NotImplemented", "501"):
                        raise unsafe(self.url) from error
                    if code not in ("ConditionalRequestConflict", "409"):
                        raise
            # Another writer was active at the same moment: one of the two has to ask again.
            time.sleep(min(2.0, 0.05 * 2**tried))
        raise StoreUnreachable(f"S3 answered {_CONFLICTS} times that another writer is busy with {key} at {self.url}.")

    def _small(self, key: str, body: bytes) -> dict[str, Any]:
        # Not in the sink's storage class, because archived objects can't be read back.
        encrypted = self._options.encryption()
        return {"Bucket": self.name, "Key": key, "Body": body, "ContentType": "application/json", **encrypted}

    def first_after(self, folder: str, key: str) -> str | None:
        """The first key in ``folder`` after ``key``. Takes one request, whatever the size of the folder."""
        with about(self.url):
            page = self._client.list_objects_v2(Bucket=self.name, Prefix=folder, StartAfter=key, MaxKeys=1)
        return next((each["Key"] for each in page.get("Contents", ())), None)

    def keys(self, folder: str) -> list[str]:
        """All keys in ``folder``, sorted."""
        with about(self.url):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=folder)
            return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, if they exist. One by one: many stores don't support a list, or require its checksum."""
        with about(self.url):
            for key in keys:
                self._client.delete_object(Bucket=self.name, Key=key)

    def expires(self, folder: str) -> bool | None:
        """Whether a rule of the bucket removes objects in ``folder`` when they are old. None: it isn't told."""
        from botocore.exceptions import ClientError

        with about(self.url):
            try:
                rules = self._client.get_bucket_lifecycle_configuration(Bucket=self.name)["Rules"]
            except ClientError as error:
                code = facts(error)["code"]
                if code in _UNTOLD:
                    return None
                if code == "NoSuchLifecycleConfiguration":
                    return False
                raise
        return any(_removes(rule, folder) for rule in rules)

    def head(self, key: str) -> tuple[int, Mapping[str, str]] | None:
        """Size in bytes, and metadata. None if the object doesn't exist."""
        from botocore.exceptions import ClientError

        with about(self.url):
            try:
                found = self._client.head_object(Bucket=self.name, Key=key)
            except ClientError as error:
                if facts(error)["code"] in _ABSENT:
                    return None
                raise
        return found["ContentLength"], found["Metadata"]

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        """Complete a multipart upload. Raises UploadLost."""
        from botocore.exceptions import ClientError

        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
        with about(self.url):
            try:
                self._client.complete_multipart_upload(
                    Bucket=self.name, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                if facts(error)["code"] in _LOST:
                    raise UploadLost(key) from error
                raise

    def uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        """(key, upload ID) of all unfinished uploads. Some stores (MinIO) list them only for a complete key."""
        with about(self.url):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name, Prefix=folder)
            for page in pages:
                yield from [(each["Key"], each["UploadId"]) for each in page.get("Uploads", ())]

    def abort_upload(self, key: str, upload: str) -> None:
        """Abort an upload, if it exists. A completed upload stays."""
        from botocore.exceptions import ClientError

        with about(self.url):
            try:
                self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
            except ClientError as error:
                if facts(error)["code"] not in _LOST | {"404"}:
                    raise


def _removes(rule: Mapping[str, Any], folder: str) -> bool:
    """Whether a lifecycle rule removes objects in ``folder``. They have no tags."""
    chosen = rule.get("Filter", rule)
    chosen = chosen.get("And", chosen)
    tagged = "Tag" in chosen or "Tags" in chosen
    aged = not {"Days", "Date"}.isdisjoint(rule.get("Expiration", ()))
    return rule["Status"] == "Enabled" and aged and not tagged and folder.startswith(chosen.get("Prefix", ""))


def unsafe(url: str) -> UnsafeStore:
    """The error for a store without conditional writes."""
    return UnsafeStore(
        f"The store of {url} overwrites an existing object in spite of If-None-Match: of two runs that commit the same "
        "epoch, it would tell both that they succeeded.",
        hint="Use a store with conditional writes: S3, or a recent version of MinIO, Ceph or R2.",
    )
