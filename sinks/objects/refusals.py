"""What S3, or the way to it, says no with: one paragraph and what to do, without keys, signatures or tokens."""

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
    "s3:ListBucket and s3:ListBucketMultipartUploads for the bucket, and with aws:kms kms:GenerateDataKey and "
    "kms:Decrypt for the key; executors too."
)


def facts(error: Exception) -> dict[str, str]:
    """The code, operation and message of an error of boto3's: plain text, which an executor can send to the driver."""
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
    """``url``: the sink's. The messages of known codes are our own: S3's may name keys of the account."""
    code, operation = what["code"], what["operation"]
    if code == "NoSuchBucket":
        return ConfigurationError(
            f"There is no bucket for {url}.",
            hint="Make the bucket, or correct the sink's url, endpoint and region. Lakelock never makes a bucket.",
        )
    if code in _CREDENTIALS:
        return ConfigurationError(
            f"S3 was not given credentials that it takes for {url} ({code}).",
            hint="Give them as AWS's own tools take them: environment, profile or the machine's role, on the executors "
            "too. Never in the pipeline file.",
        )
    if code in _RIGHTS:
        return ConfigurationError(f"S3 doesn't allow {operation} at {url} ({code}).", hint=_RIGHTS_NEEDED)
    if code in _REGION:
        return ConfigurationError(f"{url} isn't in the region that was asked ({code}).", hint="Correct the region.")
    if code.startswith("KMS.") or code in _REFUSED:
        return ConfigurationError(
            f"S3 refuses {operation} at {url}: {code}: {what['message']}",
            hint="Look at the sink's server_side_encryption, kms_key_id and storage_class.",
        )
    if code in _UNREACHABLE:
        return StoreUnreachable(
            f"S3 gave {operation} at {url} no good answer, however often it was tried ({code}).",
            hint="Look at the endpoint and the network; after SlowDown wait, or write fewer, larger objects.",
        )
    return SinkError(f"S3 answered {operation} at {url} with {code}: {what['message']}".rstrip(": "))


@contextmanager
def about(url: str) -> Iterator[None]:
    """Turn boto3's errors into Lakelock's."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise explained(facts(error), url) from error
