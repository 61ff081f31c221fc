"""An S3 client, and what a pipeline file can say about it. Credentials are none of its business.

boto3 looks them up itself, where every AWS tool does: environment, profile, web identity, the machine's role. So they
stand in no pipeline file, no log and no Spark plan, and a worker finds its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.client import BaseClient


@dataclass(frozen=True)
class S3Options:
    """Sent to the executors as it is: holds no secret."""

    endpoint: str | None = None
    """Of a store other than AWS's: ``https://minio.internal:9000``."""
    region: str | None = None
    path_style: bool = False
    """``https://host/bucket/key`` rather than ``https://bucket.host/key``."""
    server_side_encryption: Literal["AES256", "aws:kms"] | None = None
    """None: as the bucket has it."""
    kms_key_id: str | None = None
    storage_class: str | None = None
    """Of the rows' objects; Lakelock's own small ones always have the bucket's standard."""
    max_attempts: int = 10
    """Of each request, the first one included."""

    def encryption(self) -> dict[str, str]:
        """Parameters of every request that makes an object."""
        asked = {"ServerSideEncryption": self.server_side_encryption, "SSEKMSKeyId": self.kms_key_id}
        return {name: value for name, value in asked.items() if value is not None}


def client(options: S3Options) -> Any:
    """A boto3 client that waits longer and longer after a 5xx, SlowDown or broken connection. Threads can share it."""
    import boto3
    from botocore.config import Config

    config = Config(
        region_name=options.region,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        connect_timeout=10,
        # Completing an upload of many parts may take S3 minutes, in which it sends blanks only now and then.
        read_timeout=120,
        tcp_keepalive=True,
        max_pool_connections=16,
        s3={"addressing_style": "path" if options.path_style else "auto"},
        # Every part is sent with its MD5, which all stores understand; boto3's own default isn't understood by many.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # A session of its own: boto3's default one must not be used by two threads while it makes a client.
    made: BaseClient = boto3.session.Session().client("s3", endpoint_url=options.endpoint, config=config)
    return made


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """``s3://bucket/a/b/`` -> ``bucket``, ``a/b``. ``s3a``, as Hadoop writes it, is the same."""
    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme not in ("s3", "s3a") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise ConfigurationError(
            "The place of objects in S3 is written s3://bucket/prefix.",
            hint="Credentials are never part of it: give them as AWS's own tools take them, e.g. in the environment.",
        )
    return parts.netloc, "/".join(part for part in parts.path.split("/") if part)
