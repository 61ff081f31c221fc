"""An S3 client, and the options that a pipeline file has for it. Credentials aren't among them.

boto3 finds credentials itself, as all AWS tools do: environment, profile, web identity or instance role. So they appear
in no pipeline file, log or Spark plan, and each worker finds its own.
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
    """Options of the S3 client. They contain no secret, and are sent to the executors as they are."""

    endpoint: str | None = None
    """The endpoint of a store other than AWS S3: ``https://minio.internal:9000``."""
    region: str | None = None
    path_style: bool = False
    """``https://host/bucket/key`` rather than ``https://bucket.host/key``."""
    server_side_encryption: Literal["AES256", "aws:kms"] | None = None
    """None: the bucket's setting."""
    kms_key_id: str | None = None
    storage_class: str | None = None
    """The storage class of the objects with rows. Lakelock's own small objects always have the bucket's standard."""
    max_attempts: int = 10
    """The number of attempts for each request, including the first one."""

    def encryption(self) -> dict[str, str]:
        """The encryption parameters of every request that creates an object."""
        asked = {"ServerSideEncryption": self.server_side_encryption, "SSEKMSKeyId": self.kms_key_id}
        return {name: value for name, value in asked.items() if value is not None}


def client(options: S3Options) -> Any:
    """A boto3 client that retries a 5xx, SlowDown or broken connection with exponential backoff. It is thread-safe."""
    import boto3
    from botocore.config import Config

    config = Config(
        region_name=options.region,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        connect_timeout=10,
        # S3 may take minutes to complete an upload of many parts. Meanwhile it sends a blank now and then.
        read_timeout=120,
        tcp_keepalive=True,
        max_pool_connections=16,
        s3={"addressing_style": "path" if options.path_style else "auto"},
        # Every part is sent with its MD5, which all stores support. Many don't support boto3's default checksum.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # A separate session: two threads must not use boto3's default session while it creates a client.
    made: BaseClient = boto3.session.Session().client("s3", endpoint_url=options.endpoint, config=config)
    return made


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Split ``s3://bucket/a/b/`` into ``bucket`` and ``a/b``. ``s3a``, Hadoop's scheme, is accepted too.

    Raises ConfigurationError for anything else.
    """
    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme not in ("s3", "s3a") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise ConfigurationError(
            "Write the place of objects in S3 as s3://bucket/prefix.",
            hint="It must not contain credentials: give them as for AWS's own tools, for example in the environment.",
        )
    return parts.netloc, "/".join(part for part in parts.path.split("/") if part)
