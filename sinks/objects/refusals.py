"""Turns errors of S3 and of the connection to it into one clear message, without keys, signatures or tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sinks.errors import ConfigurationError, LakelockError, SinkError, StoreUnreachable

_CREDENTIALS = {
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError", "InvalidAccessKeyId",
    "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
}  # fmt: skip
_RIGHTS = {"AccessDenied", "AllAccessDisabled", "Forbidden", "403"}
_REGION = {
    "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "NoRegionError", "301",
}  # fmt: skip
_REFUSED = {"InvalidStorageClass", "InvalidArgument", "InvalidRequest", "InvalidEncryptionAlgorithmError"}
_UNREACHABLE = {
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError",
    "ConnectionError", "ProxyConnectionError", "IncompleteReadError", "ResponseStreamingError", "SSLError", "SlowDown",
    "ServiceUnavailable", "InternalError", "RequestTimeout", "RequestTimeoutException", "Throttling",
    "ThrottlingException", "OperationAborted", "500", "502", "503", "504",
}  # fmt: skip
_RIGHTS_NEEDED = (
    "The pipeline needs s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload for the prefix, "
    "s3:ListBucket and s3:ListBucketMultipartUploads for the bucket (with a rule that expires objects also "
    "s3:GetLifecycleConfiguration), and with aws:kms kms:GenerateDataKey and "
    "kms:Decrypt for the key. The executors need the same."
)


def facts(error: Exception) -> dict[str, str]:
    """The code, operation and message of a boto3 error, as plain text that an executor can send to the driver."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return {"code": type(error).__name__, "operation": "a request", "message": ""}
    answer = response.get("Error", {})
    return {
        "code": str(answer.get("Code") or response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")),
        "operation": str(getattr(error, "operation_name", "a request")),
        "message": str(answer.get("Message") or ""),
    }


def explained(what: Mapping[str, str], url: str) -> LakelockError:
    """The error to raise for the sink at ``url``. Known codes get our own message: S3's may contain account keys."""
    code, operation = what["code"], what["operation"]
    if code == "NoSuchBucket":
        return ConfigurationError(
            f"The bucket of {url} doesn't exist.",
            hint="Create the bucket, or correct the sink's url, endpoint and region. Lakelock never creates a bucket.",
        )
    if code in _CREDENTIALS:
        return ConfigurationError(
            f"S3 rejected the credentials for {url}, or found none ({code}).",
            hint="Give credentials as for AWS's own tools: environment, profile or instance role, also on the "
            "executors. Never put them into the pipeline file.",
        )
    if code in _RIGHTS:
        return ConfigurationError(f"S3 doesn't allow {operation} at {url} ({code}).", hint=_RIGHTS_NEEDED)
    if code in _REGION:
        return ConfigurationError(f"{url} isn't in the region that was asked ({code}).", hint="Correct the region.")
    if code.startswith("KMS.") or code in _REFUSED:
        return ConfigurationError(
            f"S3 refuses {operation} at {url}: {code}: {what['message']}",
            hint="Check the sink's server_side_encryption, kms_key_id and storage_class.",
        )
    if code in _UNREACHABLE:
        return StoreUnreachable(
            f"S3 didn't answer {operation} at {url} properly, despite retries ({code}).",
            hint="Check the endpoint and the network. After SlowDown wait, or write fewer, larger objects.",
        )
    return SinkError(f"S3 answered {operation} at {url} with {code}: {what['message']}".rstrip(": "))


@contextmanager
def about(url: str) -> Iterator[None]:
    """Turn boto3's errors in the block into Lakelock's, for the sink at ``url``."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise explained(facts(error), url) from error
