"""What the driver has to know of Spark's S3A: which store it talks to, and whether two writers are safe there."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from sinks.errors import ConfigurationError, SinkError, UnsafeStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_STORES = ("lakelock.ConditionalLogStore", "io.delta.storage.S3DynamoDBLogStore")
"""Classes that make a commit only where none is: ours asks the store, Delta's asks a table of DynamoDB."""

log = logging.getLogger("lakelock.s3")


class Place(NamedTuple):
    bucket: str
    key: str
    """Without slashes at its ends."""


def place(url: str) -> Place | None:
    """Of an s3:// or s3a:// URL; None for every other. Paths are taken as they are written: Hadoop knows no escapes."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("s3", "s3a"):
        return None
    bucket, _, key = rest.partition("/")
    return Place(bucket, key.strip("/"))


def client(spark: SparkSession, bucket: str) -> Any:
    """A boto3 client for the store that S3A finds this bucket in, with the same keys.

    From the session's ``fs.s3a.*`` settings (``spark.hadoop.fs.s3a.*`` at its start); what isn't given there, boto3
    finds as it always does. Settings that only Hadoop's own files hold (core-site.xml, a credential store) aren't seen.

    Raises ConfigurationError where boto3 isn't installed.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise ConfigurationError(
            "boto3 isn't installed, and tables on S3 need it.", hint='Install it: pip install "lakelock[s3]".'
        ) from None

    def setting(name: str) -> str | None:
        return _setting(spark, bucket, name)

    endpoint = setting("endpoint") or None
    if endpoint and "://" not in endpoint:
        secure = (setting("connection.ssl.enabled") or "true").lower() == "true"
        endpoint = f"{'https' if secure else 'http'}://{endpoint}"
    path_style = (setting("path.style.access") or "false").lower() == "true"
    config = Config(
        s3={"addressing_style": "path" if path_style else "auto"},
        retries={"mode": "standard", "total_max_attempts": 10},
        # Stores that aren't Amazon's often don't know the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client(
        "s3",
        config=config,
        endpoint_url=endpoint,
        region_name=setting("endpoint.region") or None,
        aws_access_key_id=setting("access.key") or None,
        aws_secret_access_key=setting("secret.key") or None,
        aws_session_token=setting("session.token") or None,
    )


def folders(spark: SparkSession, at: Place) -> list[str]:
    """Names of the folders in this place."""
    prefix = f"{at.key}/" if at.key else ""
    pages = client(spark, at.bucket).get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=at.bucket, Prefix=prefix, Delimiter="/")
    names = (each["Prefix"] for page in found for each in page.get("CommonPrefixes", ()))
    return sorted(name.removeprefix(prefix).rstrip("/") for name in names)


def remove(spark: SparkSession, at: Place) -> None:
    """The folder with all that is in it, and S3A's marker of it. Whoever looks sees parts of it go."""
    if not at.key:
        raise ValueError(f"s3a://{at.bucket} is a whole bucket: not removed")
    s3 = client(spark, at.bucket)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=at.bucket, Prefix=f"{at.key}/"):
        keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]  # a page and a deletion: 1000 keys each
        if keys:
            failed = s3.delete_objects(Bucket=at.bucket, Delete={"Objects": keys, "Quiet": True}).get("Errors")
            if failed:
                what = f"{failed[0].get('Code')}: {failed[0].get('Message')}"
                raise SinkError(f"{len(failed)} objects under s3://{at.bucket}/{at.key} can't be deleted: {what}")


def require_conditional_writes(spark: SparkSession, url: str) -> None:
    """Find out whether of two writers that make the same commit of the table at ``url`` one is refused.

    Two things are needed: a log store that asks for it, and an object store that does as it is asked (``If-None-Match:
    *`` on a PUT). The second is tried with an object under ``<url>/_lakelock/``, which is removed again. Tables that
    aren't on S3 pass: their file systems refuse by themselves.

    Raises UnsafeStore, or SinkError where the object store can't be asked.
    """
    at = place(url)
    # Databricks has a commit service of its own between its clusters.
    if at is None or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    scheme = urlsplit(url).scheme
    log_store = _conf(spark, f"spark.delta.logStore.{scheme}.impl") or _conf(spark, "spark.delta.logStore.class")
    if log_store not in LOG_STORES:
        raise UnsafeStore(
            f"{url}: this Spark session writes Delta's commits on {scheme}:// without asking the store to refuse a "
            f"second one ({log_store or 'S3SingleDriverLogStore, the default'}): of two runs, one could replace the "
            "other's commit, with its rows and its position.",
            hint=f"Start the session with spark.delta.logStore.{scheme}.impl={LOG_STORES[0]} and, in spark.jars, "
            f"connector/jars/lakelock-s3.jar of the lakelock package (Hadoop 3.4.2 or later), or with "
            f"{LOG_STORES[1]}. Without an active session Lakelock starts one that is set so.",
        )
    if log_store == LOG_STORES[1]:
        return
    hadoop = _hadoop(spark)
    if hadoop is not None and tuple(map(int, re.findall(r"\d+", hadoop)[:3])) < (3, 4, 2):
        raise UnsafeStore(
            f"{url}: this Spark has Hadoop {hadoop}, and S3A has conditional writes from 3.4.2 on.",
            hint=f"Spark 4.1 has that Hadoop; or keep commits apart with DynamoDB: {LOG_STORES[1]}.",
        )
    if (_setting(spark, at.bucket, "create.conditional.enabled") or "true").lower() == "false":
        raise UnsafeStore(
            f"{url}: fs.s3a.create.conditional.enabled is false: no write can be made to fail where another was first.",
            hint=f"Leave that setting out; or keep commits apart with DynamoDB: {LOG_STORES[1]}.",
        )
    _try(spark, at, url)


def _hadoop(spark: SparkSession) -> str | None:
    """Its version, for an error before the first commit; None where Spark doesn't tell: the log store refuses, too."""
    from pyspark.errors import PySparkException

    try:
        row = spark.sql("SELECT reflect('org.apache.hadoop.util.VersionInfo', 'getVersion') AS version").first()
    except PySparkException:
        return None
    return str(row["version"]) if row else None


def _try(spark: SparkSession, at: Place, url: str) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    s3 = client(spark, at.bucket)
    probe = {"Bucket": at.bucket, "Key": f"{at.key}/_lakelock/probe-{uuid.uuid4()}".lstrip("/")}
    try:
        try:
            # A first try whose answer was lost has made the object: then the retry, refused, says all there is to know.
            refused = any(_refused(s3, probe) for _ in range(2))
        finally:
            _delete(s3, probe)
    except ClientError as error:
        known = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{url}: the store answers a conditional write with {known.get('Code')}: {known.get('Message')}"
        if status in (400, 501):
            raise UnsafeStore(
                f"{said}. Without it, two runs could replace one another's commits.", hint=_WAYS
            ) from None
        raise SinkError(said, hint="The driver needs the right to put and delete objects there.") from None
    except BotoCoreError as error:
        raise SinkError(
            f"{url}: the store can't be asked whether it refuses a second writer: {error}",
            hint="boto3 uses the session's fs.s3a.* settings, else its own: environment, profile, instance role.",
        ) from None
    if not refused:
        raise UnsafeStore(
            f"{url}: the store took a second write with `If-None-Match: *` of an object that was there: two runs "
            "could replace one another's commits.",
            hint=_WAYS,
        )


_WAYS = (
    "Use a store with conditional writes (Amazon S3, a recent MinIO ...), or keep commits apart with "
    f"DynamoDB: {LOG_STORES[1]}."
)


def _refused(s3: Any, probe: dict[str, str]) -> bool:
    from botocore.exceptions import ClientError

    try:
        s3.put_object(**probe, Body=b"", IfNoneMatch="*")
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 412:
            raise
        return True
    return False


def _delete(s3: Any, probe: dict[str, str]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        s3.delete_object(**probe)
    except (BotoCoreError, ClientError) as error:
        log.warning("s3://%s/%s may be left, and can be deleted: %s", probe["Bucket"], probe["Key"], error)


def _setting(spark: SparkSession, bucket: str, name: str) -> str | None:
    """As S3A reads it: a bucket's own setting before the general one, a session's own before that of its start."""
    return next(_settings(spark, bucket, name), None)


def _settings(spark: SparkSession, bucket: str, name: str) -> Iterator[str]:
    for key in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
        for prefix in ("", "spark.hadoop."):
            found = _conf(spark, prefix + key)
            if found is not None:
                yield found.strip()


def _conf(spark: SparkSession, key: str) -> str | None:
    return spark.conf.get(key, None)
