"""Upload to a registry: the blobs of an image in chunks, several at once, and its manifest last.

A registry stores a manifest only with all its blobs, so an image that is not complete does not exist. The record of a
blob keeps the URL of its unfinished upload. A registry that refuses a chunk gets the whole blob in one request.
Source: the OCI distribution specification, "Pushing a blob in chunks" and "Pushing manifests".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urljoin

from serving.storage.sources.oci_reference import parse_reference
from serving.storage.sources.registry import PUSH, Registry
from serving.storage.transfer.client import StoreRequest
from serving.storage.upload import content
from serving.storage.upload.answers import Answer
from serving.storage.upload.content import Blob
from serving.storage.upload.docker_login import docker_login
from serving.storage.upload.image import MANIFEST, Image
from serving.storage.upload.records import UploadRecord
from serving.storage.upload.uploader import Uploader

_BINARY: Final = {"Content-Type": "application/octet-stream"}
_CREATED: Final = (201, 204)
_REFUSED_CHUNK: Final = (400, 404, 405, 411, 413, 416, 501)
"""Statuses with which registries refuse chunks, or the order of chunks."""
_RANGE: Final = re.compile(r"(?:bytes=)?0-([0-9]{1,15})")
_ENDED: Final = (400, 404, 405, 416)
"""Statuses for an upload that the registry does not have any more, or whose state is not that of the record."""


class RegistryUploads:
    """Uploads to the repository of `uri`, `oci://REGISTRY/REPOSITORY`, with the user's Docker login."""

    def __init__(self, uri: str, uploader: Uploader, environ: Mapping[str, str]) -> None:
        reference = parse_reference(uri)
        host = reference.host
        self._uri = uri
        self._uploader = uploader
        self._base = reference.base
        self._remedy = f"check that your own login may push to {uri}; for another one, `docker login {host}`"
        self._registry = Registry(
            reference, docker_login(environ, host), uploader.client, uploader.retry, uploader.name,
            actions=PUSH, remedy=self._remedy,
        )  # fmt: skip

    def has(self, image: Image) -> bool:
        """Return whether the registry has the whole image. Raises StorageError."""
        accept = {"Accept": MANIFEST}
        request = self._request(f"/manifests/{image.manifest.digest}", "HEAD", headers=accept)
        return self._uploader.send(request, (200, 404), self._remedy).status == 200

    def upload(self, image: Image) -> None:
        """Store an image, with a tag of its digest: registries delete manifests without tags. Raises StorageError."""
        self._uploader.run_all([partial(self._upload, blob) for blob in image.blobs])
        tag = f"knodel-{image.manifest.digest.removeprefix('sha256:')}"
        body = image.manifest.part(0)
        request = self._request(f"/manifests/{tag}", "PUT", body, {"Content-Type": MANIFEST})
        self._uploader.send(request, (200, 201), self._remedy)

    def _upload(self, blob: Blob) -> None:
        with self._uploader.records.open(f"{self._uri}@{blob.digest}") as record:
            request = self._request(f"/blobs/{blob.digest}", "HEAD")
            if self._uploader.send(request, (200, 404), self._remedy).status == 200:
                self._uploader.counter.add(blob.size)
                record.delete()
                return
            if blob.size <= content.PART or not self._send_chunks(blob, record):
                self._send_whole(blob)
            record.delete()

    def _send_chunks(self, blob: Blob, record: UploadRecord) -> bool:
        """Send the chunks of a blob that the registry does not have yet; return False if it refuses chunks."""
        location, offset = self._stored(record.session) or (self._begin(), 0)
        self._uploader.counter.add(offset)
        record.save(location)
        while offset < blob.size:
            index, skipped = divmod(offset, content.PART)
            part = blob.part(index)[skipped:]
            place = {**_BINARY, "Content-Range": f"{offset}-{offset + len(part) - 1}"}
            request = self._request(location, "PATCH", headers=place)
            answer = self._uploader.send_part(request, (201, 202, 204, *_REFUSED_CHUNK), self._remedy, part)
            if answer.status in _REFUSED_CHUNK:
                self._uploader.counter.add(-offset - len(part))
                return False
            location = _location(location, answer)
            offset += len(part)
            record.save(location)
        self._uploader.send(self._request(_end(location, blob), "PUT", b"", _BINARY), _CREATED, self._remedy)
        return True

    def _send_whole(self, blob: Blob) -> None:
        """Send a blob in one request."""
        request = self._request(_end(self._begin(), blob), "PUT", headers=_BINARY)
        self._uploader.send_part(request, _CREATED, self._remedy, blob.content)

    def _begin(self) -> str:
        """Begin the upload of a blob, and return its URL."""
        answer = self._uploader.send(self._request("/blobs/uploads/", "POST", b""), (201, 202), self._remedy)
        return _location(f"{self._base}/blobs/uploads/", answer)

    def _stored(self, session: str) -> tuple[str, int] | None:
        """Return the URL of an unfinished upload and the bytes that the registry has; None if it does not have it."""
        if not session.startswith(self._base):
            return None
        answer = self._uploader.send(self._request(session), (200, 204, *_ENDED), self._remedy)
        found = _RANGE.fullmatch(answer.header("range"))
        if answer.status in _ENDED or found is None:
            return None
        last = int(found[1])  # registries respond 0-0 for no byte too
        return _location(session, answer), last + 1 if last else 0

    def _request(
        self, path: str, method: str = "", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Callable[[], StoreRequest]:
        return lambda: self._registry.request(path, headers, method, body)


def _location(url: str, answer: Answer) -> str:
    """Return the URL with which an upload goes on."""
    return urljoin(url, answer.header("location") or url)


def _end(location: str, blob: Blob) -> str:
    """Return the URL that ends the upload of a blob."""
    return f"{location}{'&' if '?' in location else '?'}digest={blob.digest}"


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """An image for the repository `prefix`, `oci://REGISTRY/REPOSITORY`."""

    image: Image
    prefix: str

    @property
    def uri(self) -> str:
        """The storage URI, with the digest of the manifest."""
        return f"{self.prefix}@{self.digest}"

    @property
    def digest(self) -> str:
        """The digest of the manifest, which replicas verify."""
        return self.image.manifest.digest

    @property
    def size(self) -> int:
        """The size of all blobs in bytes."""
        return sum(blob.size for blob in self.image.blobs)

    def send(self, uploader: Uploader, environ: Mapping[str, str]) -> None:
        """Store the image, unless the registry has it. Raises StorageError."""
        registry = RegistryUploads(self.prefix, uploader, environ)
        if registry.has(self.image):
            uploader.counter.add(self.size)
        else:
            registry.upload(self.image)
