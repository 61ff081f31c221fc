"""What the driver must know of Spark's S3A: which store a bucket is in, and whether two writers are safe there."""

from __future__ import annotations

import logging
import os
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from sinks.errors import ConfigurationError, SinkError, UnsafeStore
from sinks.plurals import plural
from sinks.s3.at_start import at_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_STORES = ("lakelock.ConditionalLogStore", "io.delta.storage.S3DynamoDBLogStore")
"""Log stores that create a commit only if there is none: ours asks the object store, Delta's a DynamoDB table."""

_REFUSING = frozenset(
    (
        "",
        "file",
        "hdfs",
        "webhdfs",
        "swebhdfs",
        "viewfs",
        "ofs",
        "o3fs",
        "gs",
        "abfs",
        "abfss",
        "adl",
        "wasb",
        "wasbs",
        "dbfs",
    )
)
"""Schemes of file systems that refuse a second writer by themselves, with the log store that Delta takes there."""
_OF_FILE_SYSTEMS = frozenset(
    ("AzureLogStore", "GCSLogStore", "HDFSLogStore", "LocalLogStore", "S3SingleDriverLogStore")
)
"""Delta's log stores that rely on those file systems. With another one they look first, and then overwrite."""

log = logging.getLogger("lakelock.s3")


class Place(NamedTuple):
    """A bucket and a key in it."""

    bucket: str
    key: str
    """Without slashes at the start and the end."""


def place(url: str) -> Place | None:
    """The place of an s3:// or s3a:// URL, or None for any other URL. Hadoop has no escapes, so none are resolved."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("s3", "s3a"):
        return None
    bucket, _, key = rest.partition("/")
    return Place(bucket, key.strip("/"))


def client(spark: SparkSession, bucket: str) -> Any:
    """A boto3 client for the same store, with the same keys, that S3A uses for this bucket.

    Takes the session's ``fs.s3a.*`` settings (``spark.hadoop.fs.s3a.*`` at Spark's start). boto3 finds whatever they
    don't give. Settings that are only in Hadoop's own files (core-site.xml, a credential store) aren't used.

    Raises ConfigurationError if boto3 isn't installed.
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
        # Stores other than Amazon's often don't support the newer checksums.
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
    """The names of the folders in this place, sorted."""
    prefix = f"{at.key}/" if at.key else ""
    pages = client(spark, at.bucket).get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=at.bucket, Prefix=prefix, Delimiter="/")
    names = (each["Prefix"] for page in found for each in page.get("CommonPrefixes", ()))
    return sorted(name.removeprefix(prefix).rstrip("/") for name in names)


def remove(spark: SparkSession, at: Place) -> None:
    """Delete the folder with everything in it, and S3A's marker of it. The deletion isn't atomic.

    Raises ValueError for a whole bucket, SinkError if objects can't be deleted.
    """
    if not at.key:
        raise ValueError(f"s3a://{at.bucket} is a whole bucket: not removed")
    s3 = client(spark, at.bucket)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=at.bucket, Prefix=f"{at.key}/"):
        keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]  # at most 1000, as delete_objects takes
        if keys:
            failed = s3.delete_objects(Bucket=at.bucket, Delete={"Objects": keys, "Quiet": True}).get("Errors")
            if failed:
                what = f"{failed[0].get('Code')}: {failed[0].get('Message')}"
                raise SinkError(
                    f"{plural(len(failed), 'object')} under s3://{at.bucket}/{at.key} can't be deleted: {what}"
                )


def require_conditional_writes(spark: SparkSession, url: str) -> None:
    """Check that one of two writers that make the same commit of the table at ``url`` is refused.

    This needs a log store that writes conditionally, and an object store that supports it (``If-None-Match: *`` on a
    PUT). The second is tested with an object under ``<url>/_lakelock/``, which is deleted again. File systems that are
    known to refuse by themselves pass. Any other needs a log store that is made for it: by default Delta writes there
    as on HDFS, and most file systems of object stores rename over what is there.

    Raises UnsafeStore, or SinkError when the object store can't be tested.
    """
    scheme, at = _scheme(url), place(url)
    # On Databricks a commit service coordinates the clusters.
    if scheme in _REFUSING or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    log_store = _log_store(spark, scheme)
    if at is None:
        _refuse_default(url, scheme, log_store)
        return
    if log_store not in LOG_STORES:
        raise UnsafeStore(
            f"{url}: this Spark writes Delta's commits to {scheme}:// without conditional writes "
            f"({log_store or 'S3SingleDriverLogStore, the default'}). One of two runs could overwrite the other's "
            "commit, with its rows and its position.",
            hint=f"Start Spark's driver, or the Spark Connect server, with spark.delta.logStore.{scheme}.impl="
            f"{LOG_STORES[0]} and, in spark.jars, connector/spark/jars/lakelock-s3.jar of the lakelock package (Hadoop "
            f"3.4.2 or later), or with {LOG_STORES[1]}. In a session that is there, the setting has no effect. If no "
            "session is active, and without a server, Lakelock starts Spark with these settings.",
        )
    if log_store == LOG_STORES[1]:
        return
    hadoop = _hadoop(spark)
    if hadoop is not None and tuple(map(int, re.findall(r"\d+", hadoop)[:3])) < (3, 4, 2):
        raise UnsafeStore(
            f"{url}: this Spark has Hadoop {hadoop}, and S3A supports conditional writes only from 3.4.2 on.",
            hint=f"Use Spark 4.1, which has that Hadoop, or coordinate commits with DynamoDB: {LOG_STORES[1]}.",
        )
    if (_setting(spark, at.bucket, "create.conditional.enabled") or "true").lower() == "false":
        raise UnsafeStore(
            f"{url}: fs.s3a.create.conditional.enabled is false, which turns conditional writes off.",
            hint=f"Remove that setting, or coordinate commits with DynamoDB: {LOG_STORES[1]}.",
        )
    _try(spark, at, url)


def _refuse_default(url: str, scheme: str, log_store: str | None) -> None:
    """Raises UnsafeStore unless Delta's log store there is one that somebody has made for such a file system."""
    if log_store and log_store.rpartition(".")[2] not in _OF_FILE_SYSTEMS:
        return
    raise UnsafeStore(
        f"{url}: nothing tells that {scheme}:// refuses a second writer of the same commit, and the log store with "
        f"which Delta writes there ({log_store or 'HDFSLogStore, the default'}) relies on that. One of two runs could "
        "overwrite the other's commit, with its rows and its position.",
        hint=f"Start Spark's driver, or the Spark Connect server, with a log store that is made for {scheme}://: "
        f"spark.delta.logStore.{scheme}.impl, with its jar (Delta has io.delta.storage.IBMCOSLogStore for cos, and "
        "io.delta.storage.OracleOCILogStore for oci). Or put the table on s3a, gs, abfss or hdfs.",
    )


def _scheme(url: str) -> str:
    """The scheme, as Delta reads it. Empty for a path."""
    scheme, colon, _ = url.partition("/")[0].partition(":")
    return scheme.lower() if colon else ""


def _hadoop(spark: SparkSession) -> str | None:
    """Hadoop's version, for an error before the first commit. None if Spark doesn't tell: the log store checks too."""
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
            # The first attempt creates the object, even if its answer is lost. The second must be refused.
            refused = any(_refused(s3, probe) for _ in range(2))
        finally:
            _delete(s3, probe)
    except ClientError as error:
        known = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{url}: the store answers a conditional write with {known.get('Code')}: {known.get('Message')}"
        if status in (400, 501):
            raise UnsafeStore(
                f"{said}. Without conditional writes, two runs could overwrite each other's commits.", hint=_WAYS
            ) from None
        raise SinkError(said, hint="The driver needs permission to put and delete objects there.") from None
    except BotoCoreError as error:
        raise SinkError(
            f"{url}: conditional writes of the store can't be tested: {error}",
            hint="boto3 uses the session's fs.s3a.* settings, or else its own: environment, profile, instance role.",
        ) from None
    if not refused:
        raise UnsafeStore(
            f"{url}: the store accepted a second write with `If-None-Match: *` of an existing object. Two runs could "
            "overwrite each other's commits.",
            hint=_WAYS,
        )


_WAYS = (
    "Use a store with conditional writes (Amazon S3, a recent MinIO ...), or coordinate commits with "
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
        log.warning("s3://%s/%s may remain. You can delete it: %s", probe["Bucket"], probe["Key"], error)


def _log_store(spark: SparkSession, scheme: str) -> str | None:
    """The log store that Delta takes there. None: its own default. Delta asks what Spark was started with."""
    started = at_start(spark)
    return started.get(f"spark.delta.logStore.{scheme}.impl") or started.get("spark.delta.logStore.class")


def _setting(spark: SparkSession, bucket: str, name: str) -> str | None:
    """The setting as S3A reads it: a bucket's before the general one, the session's own before that of Spark's start.

    In a session, ``spark.hadoop.*`` has no effect.
    """
    for key in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
        found = spark.conf.get(key, None)
        if found is None:
            found = at_start(spark).get(f"spark.hadoop.{key}")
        if found is not None:
            return found.strip()
    return None
