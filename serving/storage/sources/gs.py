"""`gs://BUCKET/KEY`: Google Cloud Storage through its XML API, whose objects and lists are those of S3.

Without a key, requests are anonymous, unless the administrator allows the host of the metadata service. Then they use
the identity of the Pod (`gs_token`).
"""

from __future__ import annotations

import threading
from typing import Final
from urllib.parse import quote, urlencode

from clusters.base.redact import redact_url
from serving.storage.sources.gs_token import GetToken, token_getter
from serving.storage.sources.object_store import ObjectStoreSource, split_bucket_uri
from serving.storage.sources.source import SourceContext
from serving.storage.transfer.client import StoreRequest

ENDPOINT: Final = "https://storage.googleapis.com"


def gs_source(uri: str, context: SourceContext) -> ObjectStoreSource:
    """Return the source of an object or prefix. Raises StorageError."""
    bucket, key = split_bucket_uri(uri)
    return ObjectStoreSource(uri, key, GoogleBucket(bucket, redact_url(uri), context), context.downloader)


class GoogleBucket:
    """Makes requests with an access token, or anonymous ones."""

    def __init__(self, bucket: str, name: str, context: SourceContext) -> None:
        self._bucket = bucket
        self._name = name
        self._context = context
        self._endpoint = context.credentials.get("STORAGE_EMULATOR_HOST", ENDPOINT).rstrip("/")
        self._lock = threading.Lock()  # so that threads request one new token together
        self._get_token: GetToken | None = None

    def get(self, key: str) -> StoreRequest:
        """Return the request for an object. Raises StorageError."""
        return self._request(f"/{quote(key)}")

    def list(self, prefix: str, after: str) -> StoreRequest:
        """Return the request for a page of keys. Raises StorageError."""
        more = {"continuation-token": after} if after else {}
        return self._request("?" + urlencode({"list-type": "2", "prefix": prefix, "encoding-type": "url", **more}))

    def _request(self, rest: str) -> StoreRequest:
        with self._lock:
            client = self._context.downloader.client
            self._get_token = self._get_token or token_getter(client, self._context.credentials, self._name)
            token = self._get_token()
        secrets = {"Authorization": f"Bearer {token}"} if token else {}
        return StoreRequest(f"{self._endpoint}/{self._bucket}{rest}", self._name, secrets=secrets)
