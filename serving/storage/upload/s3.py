"""Upload to Amazon S3 and compatible stores. Each request has the SHA-256 of its body, which the store verifies.

A file of more than one part is a multipart upload: its object appears when all parts are there. The record keeps the
id of the upload, and ListParts returns the parts that the store has, with their checksums.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring  # nosec B405 - documents are only written here

from serving.storage.base.errors import HttpStatusError, StorageError
from serving.storage.sources.object_store import MOST_PAGES, parse_page
from serving.storage.sources.s3 import AMBIENT_REMEDY, S3Bucket
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.credentials import Credentials
from serving.storage.upload.answers import error_code, parse_xml
from serving.storage.upload.content import Blob
from serving.storage.upload.prefix import ArtifactPrefix
from serving.storage.upload.records import UploadRecord
from serving.storage.upload.uploader import Uploader

_OK: Final = (200,)
_ABSENT: Final = (403, 404)
"""Statuses of HeadObject for an absent object: 403 without the right to list the bucket."""


@dataclass(frozen=True, slots=True)
class _Multipart:
    """An unfinished multipart upload: its record with the id, and the ETags of its stored parts by index."""

    key: str
    blob: Blob
    record: UploadRecord
    etags: dict[int, str] = field(default_factory=dict)


class S3Uploads:
    """Uploads to the bucket of a prefix, with the credentials that botocore finds for the user of this machine."""

    def __init__(self, prefix: ArtifactPrefix, uploader: Uploader, environ: Mapping[str, str]) -> None:
        self._bucket = S3Bucket(prefix.bucket, uploader.name, Credentials(environ), ambient=True)
        self._prefix = prefix
        self._uploader = uploader
        self._remedy = (
            f"check that bucket {prefix.bucket} exists in your AWS_REGION, and that your own credentials may write to "
            f"it; for others, {AMBIENT_REMEDY}"
        )

    def has(self, key: str, blob: Blob) -> bool:
        """Return whether the store has the whole object. Raises StorageError."""
        request = self._request("head_object", "HEAD", Key=key, ChecksumMode="ENABLED")
        answer = self._uploader.send(request, (200, *_ABSENT), self._remedy)
        checksum = answer.header("x-amz-checksum-sha256").partition("-")[0]  # without the number of parts
        size = answer.header("content-length")
        return answer.status == 200 and size == str(blob.size) and checksum in ("", _checksum(blob))

    def sizes(self, prefix: str) -> dict[str, int] | None:
        """Return the sizes of all objects below a prefix by key; None without the right to list them."""
        sizes: dict[str, int] = {}
        after = ""
        for _ in range(MOST_PAGES):
            answer = self._uploader.send(partial(self._bucket.list, prefix, after), (200, 403), self._remedy)
            if answer.status == 403:
                return None
            page = parse_page(answer.body, prefix, self._uploader.name)
            sizes |= page.keys
            after = page.next
            if not after:
                break
        return sizes

    def upload(self, blobs: Mapping[str, Blob]) -> None:
        """Store objects by their keys, several parts at once. Raises StorageError."""
        with ExitStack() as records:
            large = [
                self._begin(key, blob, records.enter_context(self._uploader.records.open(self._prefix.uri(key))))
                for key, blob in blobs.items()
                if len(blob.parts) > 1
            ]
            small = [partial(self._put, key, blob) for key, blob in blobs.items() if len(blob.parts) == 1]
            parts = [
                partial(self._put_part, one, index)
                for one in large
                for index in range(len(one.blob.parts))
                if index not in one.etags
            ]
            self._uploader.run_all([*small, *parts])
            self._uploader.run_all([partial(self._complete, one) for one in large])

    def write(self, key: str, content: bytes) -> None:
        """Store a small object. Raises StorageError."""
        checksum = _base64(hashlib.sha256(content).digest())
        self._uploader.send(self._checked("put_object", checksum, content, Key=key), _OK, self._remedy)

    def _put(self, key: str, blob: Blob) -> None:
        request = self._checked("put_object", _base64(blob.parts[0]), Key=key)
        self._uploader.send_part(request, _OK, self._remedy, blob.part(0))

    def _begin(self, key: str, blob: Blob, record: UploadRecord) -> _Multipart:
        """Continue the upload of the record, or create one."""
        etags = self._stored_parts(key, blob, record.session) if record.session else None
        if etags is None:
            record.save(self._create(key))
        else:
            self._uploader.counter.add(sum(map(blob.length, etags)))
        return _Multipart(key, blob, record, etags or {})

    def _create(self, key: str) -> str:
        request = self._request("create_multipart_upload", "POST", b"", Key=key, ChecksumAlgorithm="SHA256")
        root = parse_xml(self._uploader.send(request, _OK, self._remedy).body)
        session = root.findtext("{*}UploadId") if root is not None else ""
        if not session:
            raise StorageError(
                f"{self._uploader.name}: cannot be uploaded: the store is not S3: check AWS_ENDPOINT_URL"
            )
        return session

    def _stored_parts(self, key: str, blob: Blob, session: str) -> dict[int, str] | None:
        """Return the ETags of the right parts that the store has, by index; None if it does not have the upload."""
        etags: dict[int, str] = {}
        marker = 0
        for _ in range(MOST_PAGES):
            more: dict[str, Any] = {"PartNumberMarker": marker} if marker else {}
            request = self._request("list_parts", Key=key, UploadId=session, **more)
            answer = self._uploader.send(request, (200, 400, 404), self._remedy)  # 400: not an id of this store
            root = parse_xml(answer.body)
            if answer.status != 200 or root is None:
                return None
            for part in root.iterfind("{*}Part"):
                index = _number(part, "PartNumber") - 1
                if 0 <= index < len(blob.parts) and _is_part(part, blob, index):
                    etags[index] = part.findtext("{*}ETag") or ""
            marker = _number(root, "NextPartNumberMarker")
            if root.findtext("{*}IsTruncated") != "true" or not marker:
                return etags
        return None

    def _put_part(self, upload: _Multipart, index: int) -> None:
        request = self._checked(
            "upload_part", _base64(upload.blob.parts[index]),
            Key=upload.key, UploadId=upload.record.session, PartNumber=index + 1,
        )  # fmt: skip
        answer = self._uploader.send_part(request, _OK, self._remedy, upload.blob.part(index))
        upload.etags[index] = answer.header("etag")

    def _complete(self, upload: _Multipart) -> None:
        body = _parts_document(upload.blob, upload.etags)
        request = self._request(
            "complete_multipart_upload", "POST", body, Key=upload.key, UploadId=upload.record.session
        )
        answer = self._uploader.send(request, (200, 404), self._remedy)
        code = error_code(answer.body)  # S3 may respond 200 and end with an error
        if code and not self.has(upload.key, upload.blob):  # an earlier attempt may have completed it
            reason = f"the store could not put its parts together ({code}): run the same command again"
            raise HttpStatusError(f"{upload.blob.name}: cannot be uploaded: {reason}", answer.status)
        upload.record.delete()

    def _checked(
        self, operation: str, checksum: str, body: bytes | None = None, **named: Any
    ) -> Callable[[], StoreRequest]:
        return self._request(
            operation, "PUT", body, {"x-amz-checksum-sha256": checksum}, ChecksumSHA256=checksum, **named
        )

    def _request(
        self, operation: str, method: str = "", body: bytes | None = None, headers: Mapping[str, str] | None = None,
        **named: Any,
    ) -> Callable[[], StoreRequest]:  # fmt: skip
        """Return the factory of a request; its headers must be those that botocore signs."""
        signed = dict(headers or {})
        if "ChecksumAlgorithm" in named:
            signed["x-amz-checksum-algorithm"] = named["ChecksumAlgorithm"]
        if "ChecksumMode" in named:
            signed["x-amz-checksum-mode"] = named["ChecksumMode"]

        def make() -> StoreRequest:
            made = self._bucket.signed(operation, **named)
            return StoreRequest(made.url, made.name, signed, body=body, method=method)

        return make


def _checksum(blob: Blob) -> str:
    """Return the checksum of a whole object: that of its part, or of several parts' checksums."""
    return _base64(blob.parts[0] if len(blob.parts) == 1 else hashlib.sha256(b"".join(blob.parts)).digest())


def _is_part(part: Element, blob: Blob, index: int) -> bool:
    """Return whether a stored part is that of the blob, by its checksum, else by its ETag (the MD5 of the part)."""
    if _number(part, "Size") != blob.length(index):
        return False
    checksum = part.findtext("{*}ChecksumSHA256")
    if checksum:
        return checksum == _base64(blob.parts[index])
    md5 = hashlib.md5(blob.part(index), usedforsecurity=False).hexdigest()
    return (part.findtext("{*}ETag") or "").strip('"') == md5


def _parts_document(blob: Blob, etags: Mapping[int, str]) -> bytes:
    root = Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    for index, checksum in enumerate(blob.parts):
        part = SubElement(root, "Part")
        for name, value in (
            ("PartNumber", str(index + 1)), ("ETag", etags[index]), ("ChecksumSHA256", _base64(checksum)),
        ):  # fmt: skip
            SubElement(part, name).text = value
    return tostring(root)


def _number(element: Element, name: str) -> int:
    text = element.findtext(f"{{*}}{name}") or ""
    return int(text) if text.isascii() and text.isdigit() else 0


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
