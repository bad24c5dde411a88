"""`s3://BUCKET/KEY`: Amazon S3 and what speaks like it. botocore signs the addresses, offline; the requests are ours.

s3fs would connect by itself: hosts could not be checked when they are connected to, nor its downloads be continued.
Without a key of our own or one of the sources of `_CHAIN` in the environment the store is asked anonymously; the
machine's own role (its metadata service) is never used.
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from serving.storage.base.errors import StorageError
from serving.storage.sources.objects import Objects, split
from serving.storage.sources.source import Access
from serving.storage.transfer.addresses import parse, shown
from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.web import Request

REGION: Final = "us-east-1"  # where nothing else is said; other stores ignore it
SIGNED_FOR: Final = 3600  # s; as long as one download may take
PAGE: Final = 1000  # keys; S3's most
_KEY: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CHAIN: Final = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_PROFILE",
                 "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")  # fmt: skip
"""Any of them in the environment: botocore finds the credentials (a service account's role, a file)."""
_TOKEN_SERVICE: Final = MappingProxyType(
    {"connect_timeout": 10, "read_timeout": 10, "retries": {"total_max_attempts": 1}}  # s
)
"""Of the calls that botocore makes for a role by itself; the download's own retries ask again."""


def source(uri: str, access: Access) -> Objects:
    """The object or prefix at the URI. Raises StorageError."""
    bucket, key = split(uri)
    return Objects(uri, key, S3Bucket(bucket, shown(uri), access.credentials), access.downloader)


class S3Bucket:
    """A bucket whose requests are signed addresses; a list has `page` keys at once."""

    def __init__(self, bucket: str, name: str, credentials: Credentials, page: int = PAGE) -> None:
        self._bucket = bucket
        self._name = name
        self._credentials = credentials
        self._page = page

    def get(self, key: str) -> Request:
        """The request for an object. Raises StorageError."""
        return self._signed("get_object", Key=key)

    def list(self, prefix: str, after: str) -> Request:
        """The request for a page of keys. Raises StorageError."""
        more = {"ContinuationToken": after} if after else {}
        return self._signed("list_objects_v2", Prefix=prefix, EncodingType="url", MaxKeys=self._page, **more)

    def _signed(self, operation: str, **parameters: Any) -> Request:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            url = self._client.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, **parameters}, ExpiresIn=SIGNED_FOR
            )
        except (BotoCoreError, ClientError, ValueError) as error:  # the second: of AWS' token service; an endpoint
            reason = type(error).__name__
            raise StorageError(f"{self._name}: cannot be asked for ({reason}): check the AWS_… values") from error
        return Request(url, self._name)

    @cached_property
    def _client(self) -> Any:
        """Raises StorageError, BotoCoreError."""
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config

        get = self._credentials.get
        key, secret, token = self._credentials.together(*_KEY)
        signed = bool(key) or any(name in self._credentials.environ for name in _CHAIN)
        session = botocore.session.Session()
        session.get_component("credential_provider").remove("iam-role")  # also looked for to sign nothing
        session.set_default_client_config(Config(**_TOKEN_SERVICE))
        endpoint = get("AWS_ENDPOINT_URL_S3") or get("AWS_ENDPOINT_URL")
        if endpoint:
            parse(endpoint)
        return session.create_client(
            "s3",
            region_name=get("AWS_REGION") or get("AWS_DEFAULT_REGION") or REGION,
            endpoint_url=endpoint or None,
            aws_access_key_id=key or None,
            aws_secret_access_key=secret or None,
            aws_session_token=token or None,
            config=Config(
                signature_version="s3v4" if signed else UNSIGNED,
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )
