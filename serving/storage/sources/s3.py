"""`s3://BUCKET/KEY`: Amazon S3 and compatible stores. botocore signs the URLs offline; our client sends the requests.

s3fs opens connections itself, so addresses could not be checked, and downloads could not be resumed. Without a key in
the Secret and without a source of `_CHAIN` in the environment, requests are anonymous. The role of the machine (from
its metadata service) is never used.
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from clusters.base.redact import redact_url
from serving.storage.base.errors import StorageError
from serving.storage.sources.object_store import ObjectStoreSource, split_bucket_uri
from serving.storage.sources.source import SourceContext
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.urls import parse_url

REGION: Final = "us-east-1"  # the default; other stores ignore it
SIGNED_FOR: Final = 3600  # s; the limit of one download
PAGE: Final = 1000  # keys, the limit of S3
_KEY: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CHAIN: Final = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_PROFILE",
                 "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")  # fmt: skip
"""With any of them in the environment, botocore finds credentials (the role of a service account, a file)."""
AMBIENT_REMEDY: Final = (
    "log in with `aws configure` or `aws sso login`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_TOKEN_SERVICE: Final = MappingProxyType(
    {"connect_timeout": 10, "read_timeout": 10, "retries": {"total_max_attempts": 1}}  # s
)
"""Limits of the requests that botocore itself sends for a role; retries of the download repeat them."""


def s3_source(uri: str, context: SourceContext) -> ObjectStoreSource:
    """Return the source of an object or prefix. Raises StorageError."""
    bucket, key = split_bucket_uri(uri)
    return ObjectStoreSource(uri, key, S3Bucket(bucket, redact_url(uri), context.credentials), context.downloader)


class S3Bucket:
    """Makes requests with signed URLs; a listing has `page` keys per page.

    With `ambient`, every request is signed with what botocore finds for the user of this machine: also a default
    profile, a login and the role of the machine. That is for uploads, which no replica makes.
    """

    def __init__(
        self, bucket: str, name: str, credentials: Credentials, page: int = PAGE, *, ambient: bool = False
    ) -> None:
        self._bucket = bucket
        self._name = name
        self._credentials = credentials
        self._page = page
        self._ambient = ambient

    def get(self, key: str) -> StoreRequest:
        """Return the request for an object. Raises StorageError."""
        return self.signed("get_object", Key=key)

    def list(self, prefix: str, after: str) -> StoreRequest:
        """Return the request for a page of keys. Raises StorageError."""
        more = {"ContinuationToken": after} if after else {}
        return self.signed("list_objects_v2", Prefix=prefix, EncodingType="url", MaxKeys=self._page, **more)

    def signed(self, operation: str, **parameters: Any) -> StoreRequest:
        """Return a request with a signed URL for an operation of botocore's client. Raises StorageError."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            url = self._client.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, **parameters}, ExpiresIn=SIGNED_FOR
            )
        except (
            BotoCoreError,
            ClientError,
            ValueError,
        ) as error:  # ClientError: of AWS' token service; ValueError: an invalid endpoint
            reason = type(error).__name__
            remedy = AMBIENT_REMEDY if self._ambient else "check the AWS_… values"
            raise StorageError(f"{self._name}: the URL cannot be signed ({reason}): {remedy}") from error
        return StoreRequest(url, self._name)

    @cached_property
    def _client(self) -> Any:
        """The client that signs URLs. Raises StorageError, BotoCoreError."""
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config

        get = self._credentials.get
        key, secret, token = self._credentials.get_group(*_KEY)
        signed = self._ambient or bool(key) or any(name in self._credentials.environ for name in _CHAIN)
        session = botocore.session.Session()
        if not self._ambient:
            session.get_component("credential_provider").remove("iam-role")  # used even for anonymous requests
        session.set_default_client_config(Config(**_TOKEN_SERVICE))
        endpoint = get("AWS_ENDPOINT_URL_S3") or get("AWS_ENDPOINT_URL")
        if endpoint:
            parse_url(endpoint)  # raises StorageError
        region = get("AWS_REGION") or get("AWS_DEFAULT_REGION")
        if self._ambient and not region:
            region = session.get_config_variable("region")  # of the profile
        return session.create_client(
            "s3",
            region_name=region or REGION,
            endpoint_url=endpoint or None,
            aws_access_key_id=key or None,
            aws_secret_access_key=secret or None,
            aws_session_token=token or None,
            config=Config(
                signature_version="s3v4" if signed else UNSIGNED,
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )
