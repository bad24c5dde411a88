"""`gs://BUCKET/KEY`: Google Cloud Storage, by its XML API, which lists and answers as S3 does.

Without a key the store is asked anonymously, unless the administrator allows the host of the metadata service: then the
Pod's own identity is used (`gs_token`).
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Final
from urllib.parse import quote, urlencode

from serving.storage.sources.gs_token import Tokens, tokens_of
from serving.storage.sources.objects import Objects, split
from serving.storage.sources.source import Access
from serving.storage.transfer.addresses import shown
from serving.storage.transfer.web import Request

ENDPOINT: Final = "https://storage.googleapis.com"


def source(uri: str, access: Access) -> Objects:
    """The object or prefix at the URI. Raises StorageError."""
    bucket, key = split(uri)
    return Objects(uri, key, GoogleBucket(bucket, shown(uri), access), access.downloader)


class GoogleBucket:
    """A bucket that is asked with an access token, or anonymously."""

    def __init__(self, bucket: str, name: str, access: Access) -> None:
        self._bucket = bucket
        self._name = name
        self._access = access
        self._endpoint = access.credentials.get("STORAGE_EMULATOR_HOST", ENDPOINT).rstrip("/")
        self._lock = threading.Lock()  # of the token: threads that download files wait for one new token

    def get(self, key: str) -> Request:
        """The request for an object. Raises StorageError."""
        return self._request(f"/{quote(key)}")

    def list(self, prefix: str, after: str) -> Request:
        """The request for a page of keys. Raises StorageError."""
        more = {"continuation-token": after} if after else {}
        return self._request("?" + urlencode({"list-type": "2", "prefix": prefix, "encoding-type": "url", **more}))

    def _request(self, rest: str) -> Request:
        with self._lock:
            token = self._tokens()
        secrets = {"Authorization": f"Bearer {token}"} if token else {}
        return Request(f"{self._endpoint}/{self._bucket}{rest}", self._name, secrets=secrets)

    @cached_property
    def _tokens(self) -> Tokens:
        return tokens_of(self._access, self._name)
