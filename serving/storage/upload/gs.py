"""Upload to Google Cloud Storage by resumable uploads of its JSON API.

An upload begins with the size and MD5 of the object, which the store verifies at its end; the object appears then.
Parts are sent in order, and each response has the number of stored bytes. The record keeps the URL of the session,
which is secret.
Source: https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from serving.storage.base.errors import HttpStatusError, StorageError
from serving.storage.sources.gs import ENDPOINT
from serving.storage.sources.gs_token import AMBIENT_REMEDY, GetToken, ambient_token_getter
from serving.storage.sources.object_store import MOST_PAGES
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.credentials import Credentials
from serving.storage.upload import content
from serving.storage.upload.answers import Answer
from serving.storage.upload.content import Blob
from serving.storage.upload.prefix import ArtifactPrefix
from serving.storage.upload.uploader import Uploader

_DONE: Final = (200, 201)
_INCOMPLETE: Final = 308
_ENDED: Final = (400, 404, 410)
"""Statuses for a session that the store does not have any more, or that is not one of this store."""
_RANGE: Final = re.compile(r"bytes=0-([0-9]{1,15})")


class GoogleUploads:
    """Uploads to the bucket of a prefix, with the login of the user of this machine."""

    def __init__(self, prefix: ArtifactPrefix, uploader: Uploader, environ: Mapping[str, str]) -> None:
        self._credentials = Credentials(environ)
        self._endpoint = self._credentials.get("STORAGE_EMULATOR_HOST", ENDPOINT).rstrip("/")
        self._objects = f"/storage/v1/b/{prefix.bucket}/o"
        self._prefix = prefix
        self._uploader = uploader
        self._lock = threading.Lock()  # so that threads request one new token together
        self._get_token: GetToken | None = None
        self._remedy = (
            f"check that bucket {prefix.bucket} exists, and that your own credentials may write to it; for others, "
            f"{AMBIENT_REMEDY}"
        )

    def has(self, key: str, blob: Blob) -> bool:
        """Return whether the store has the whole object. Raises StorageError."""
        request = self._request("", f"{self._objects}/{quote(key, safe='')}?fields=size,md5Hash")
        answer = self._uploader.send(request, (200, 403, 404), self._remedy)
        return answer.status == 200 and _is_same(answer.json(self._uploader.name), blob)

    def sizes(self, prefix: str) -> dict[str, int] | None:
        """Return the sizes of all objects below a prefix by key; None without the right to list them."""
        sizes: dict[str, int] = {}
        query = {"prefix": prefix, "fields": "items(name,size),nextPageToken"}
        for _ in range(MOST_PAGES):
            request = self._request("", f"{self._objects}?{urlencode(query)}")
            answer = self._uploader.send(request, (200, 403), self._remedy)
            if answer.status == 403:
                return None
            page = answer.json(self._uploader.name)
            sizes |= {str(item.get("name")): int(item.get("size") or 0) for item in page.get("items") or ()}
            query["pageToken"] = page.get("nextPageToken") or ""
            if not query["pageToken"]:
                break
        return sizes

    def upload(self, blobs: Mapping[str, Blob]) -> None:
        """Store objects by their keys, several at once. Raises StorageError."""
        self._uploader.run_all([partial(self._upload, key, blob) for key, blob in blobs.items()])

    def write(self, key: str, content: bytes) -> None:
        """Store a small object. Raises StorageError."""
        query = urlencode({"uploadType": "media", "name": key})
        self._uploader.send(self._request("POST", f"/upload{self._objects}?{query}", content), _DONE, self._remedy)

    def _upload(self, key: str, blob: Blob) -> None:
        with self._uploader.records.open(self._prefix.uri(key)) as record:
            offset = self._stored(blob, record.session)
            if offset is None:
                record.save(self._begin(key, blob))
                offset = 0
            self._uploader.counter.add(offset)
            if offset < blob.size or not blob.size:
                self._send_from(blob, record.session, offset)
            record.delete()

    def _begin(self, key: str, blob: Blob) -> str:
        query = urlencode({"uploadType": "resumable", "name": key})
        about = json.dumps({"name": key, "md5Hash": base64.b64encode(blob.md5).decode()}).encode()
        headers = {"Content-Type": "application/json", "X-Upload-Content-Length": str(blob.size)}
        request = self._request("POST", f"/upload{self._objects}?{query}", about, headers)
        session = self._uploader.send(request, _DONE, self._remedy).header("location")
        if not session:
            reason = "the store is not Google Cloud Storage: check STORAGE_EMULATOR_HOST"
            raise StorageError(f"{self._uploader.name}: cannot be uploaded: {reason}")
        return session

    def _stored(self, blob: Blob, session: str) -> int | None:
        """Return how many bytes the store has in the session; None without a session of this store."""
        if urlsplit(session).netloc != urlsplit(self._endpoint).netloc:
            return None
        request = self._put(session, f"bytes */{blob.size}", b"")
        answer = self._uploader.send(request, (*_DONE, _INCOMPLETE, *_ENDED), self._remedy)
        if answer.status in _ENDED:
            return None
        return blob.size if answer.status in _DONE else _received(answer)

    def _send_from(self, blob: Blob, session: str, offset: int) -> None:
        """Send the rest of a blob. The store may keep less of a part than was sent, in units of 256 KiB."""
        while True:
            index, skipped = divmod(offset, content.PART)
            part = blob.part(index)[skipped:]
            end = offset + len(part)
            request = self._put(session, f"bytes {offset}-{end - 1}/{blob.size}" if part else "bytes */0")
            answer = self._uploader.send_part(request, (*_DONE, _INCOMPLETE), self._remedy, part)
            if answer.status in _DONE:
                return
            received = _received(answer)
            if received <= offset or end == blob.size:
                reason = "the store did not keep its bytes: run the same command again"
                raise HttpStatusError(f"{blob.name}: cannot be uploaded: {reason}", answer.status)
            self._uploader.counter.add(received - end)
            offset = received

    def _put(self, session: str, place: str, body: bytes | None = None) -> Callable[[], StoreRequest]:
        """Return the factory of a request of a session, whose URL is its own credential."""
        return lambda: StoreRequest(session, self._uploader.name, {"Content-Range": place}, body=body, method="PUT")

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Callable[[], StoreRequest]:
        def make() -> StoreRequest:
            name = self._uploader.name
            with self._lock:
                if self._get_token is None:
                    self._get_token = ambient_token_getter(self._uploader.client, self._credentials, name)
                token = self._get_token()
            secrets = {"Authorization": f"Bearer {token}"} if token else {}
            return StoreRequest(f"{self._endpoint}{path}", name, headers or {}, secrets, body=body, method=method)

        return make


def _is_same(about: Mapping[str, str], blob: Blob) -> bool:
    """Return whether an object's metadata are those of the blob."""
    md5 = about.get("md5Hash")
    return str(about.get("size")) == str(blob.size) and md5 in (None, base64.b64encode(blob.md5).decode())


def _received(answer: Answer) -> int:
    """Return how many bytes the store has by its Range header, which is absent for none."""
    found = _RANGE.fullmatch(answer.header("range"))
    return int(found[1]) + 1 if found else 0
