"""`s3://BUCKET/KEY`: Amazon S3 and what speaks like it. botocore signs the addresses, offline; the requests are ours.

s3fs would connect by itself: hosts could not be checked when they are connected to, nor its downloads be continued.
Without a key of our own or one of the sources of `_CHAIN` in the environment the store is asked anonymously; the
machine's own role (its metadata service) is never used.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from serving.storage.addresses import parse, shown
from serving.storage.credentials import Credentials
from serving.storage.errors import StorageError
from serving.storage.objects import Objects, split
from serving.storage.source import Access
from serving.storage.web import Request

REGION: Final = "us-east-1"  # where nothing else is said; other stores ignore it
SIGNED_FOR: Final = 3600  # s; as long as one download may take
PAGE: Final = 1000  # keys; S3's most
_CHAIN: Final = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_PROFILE",
                 "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")  # fmt: skip
"""Any of them in the environment: botocore finds the credentials (a service account's role, a file)."""


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
        from botocore.exceptions import BotoCoreError

        try:
            url = self._client.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, **parameters}, ExpiresIn=SIGNED_FOR
            )
        except (BotoCoreError, ValueError) as error:  # ValueError: of an endpoint that is no URL
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
        key, secret = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
        signed = bool(key) or any(name in self._credentials.environ for name in _CHAIN)
        endpoint = get("AWS_ENDPOINT_URL_S3") or get("AWS_ENDPOINT_URL")
        if endpoint:
            parse(endpoint)
        return botocore.session.Session().create_client(
            "s3",
            region_name=get("AWS_REGION") or get("AWS_DEFAULT_REGION") or REGION,
            endpoint_url=endpoint or None,
            aws_access_key_id=key or None,
            aws_secret_access_key=secret or None,
            aws_session_token=get("AWS_SESSION_TOKEN") or None,
            config=Config(
                signature_version="s3v4" if signed else UNSIGNED,
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )
