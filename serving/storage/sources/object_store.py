"""Object stores with the REST API of S3: an object, an archive, or all objects below a prefix.

A `Bucket` makes the requests, with signed URLs or a token. Our client sends them, so that each hop is checked and
bounded, and each download can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote_plus
from xml.etree import ElementTree  # nosec B405 - see `parse_page`

from clusters.base.redact import redact_url
from serving.storage.base import digest as digests
from serving.storage.base.disk import MOST_FILES
from serving.storage.base.errors import HttpStatusError, StorageError
from serving.storage.base.uri_patterns import bucket_fault
from serving.storage.sources.folder_download import RemoteFile, download_files
from serving.storage.sources.single_file import plain_filename
from serving.storage.sources.source import FOLDER, PARTS, DownloadedFile, DownloadedFolder
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download, Downloader
from serving.storage.transfer.progress import Progress

LARGEST_LISTING: Final = 16 << 20  # bytes of one page; 1000 keys of 1024 bytes, three times as long when encoded
MOST_PAGES: Final = 1000  # of one listing; a store may return short pages
_LONGEST_KEY: Final = 1024  # bytes
_ABSENT: Final = (301, 400, 403, 404)
"""Statuses that stores return for an absent key. The listing has a better reason, such as the bucket's region."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing: keys with their sizes in bytes, and the token of the next page ("" for the last one)."""

    keys: tuple[tuple[str, int], ...]
    next: str


class Bucket(Protocol):
    """Makes the requests for one bucket."""

    def get(self, key: str) -> StoreRequest:
        """Return the request for an object (GetObject)."""
        ...

    def list(self, prefix: str, after: str) -> StoreRequest:
        """Return the request for a page of keys (ListObjectsV2); `after` is the token of the former page."""
        ...


class ObjectStoreSource:
    """The object with a key, or all objects below it if the key ends with `/` or no such object exists."""

    is_image: Final = False

    def __init__(self, uri: str, key: str, bucket: Bucket, downloader: Downloader) -> None:
        self._name = redact_url(uri)
        self._key = key
        self._bucket = bucket
        self._downloader = downloader
        self.filename = "" if not key or key.endswith("/") else plain_filename(key)

    def download(self, work: Path, progress: Progress) -> DownloadedFile | DownloadedFolder:
        """Download the object, or all objects below it. Raises StorageError."""
        absent: HttpStatusError | None = None
        if self.filename:
            path = work / PARTS / "0"
            wanted = Download(self._name, partial(self._bucket.get, self._key), path)
            try:
                return DownloadedFile(path, self._downloader.save(wanted, progress))
            except HttpStatusError as error:
                if error.status not in _ABSENT:
                    raise
                absent = error
        return self._download_folder(work, progress, absent)

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys with a prefix, and their sizes in bytes. Raises StorageError."""
        after = ""
        for _ in range(MOST_PAGES):
            page = self._downloader.retry.run(partial(self._page, prefix, after))
            yield from page.keys
            if not page.next:
                return
            after = page.next
        raise StorageError(f"{self._name}: the listing has too many pages: name the model's own folder or file")

    def _download_folder(self, work: Path, progress: Progress, absent: HttpStatusError | None) -> DownloadedFolder:
        prefix = self._key.rstrip("/") + "/" if self._key else ""
        files = []
        for key, size in self.keys(prefix):
            if not key.endswith("/"):  # consoles create such objects to display folders
                files.append(RemoteFile(key.removeprefix(prefix), partial(self._bucket.get, key), size))
            if len(files) > MOST_FILES:
                break  # `download_files` refuses them
        if not files and absent is not None:
            raise HttpStatusError(
                f"{absent}, and no object is below it: check bucket and key, and the Secret", absent.status
            )
        downloaded = download_files(files, work, self._downloader, self._name, progress)
        return DownloadedFolder(work / FOLDER, downloaded, digests.of_folder(downloaded))

    def _page(self, prefix: str, after: str) -> Page:
        client = self._downloader.client
        with client.stream(self._bucket.list(prefix, after)) as response:
            region = response.header("x-amz-bucket-region")
            if response.status != 200 and region:
                raise HttpStatusError(
                    f"{self._name}: the store answered {response.status}: the bucket is in {region[:40]!r}; "
                    "check AWS_REGION and the keys in the Secret", response.status,
                )  # fmt: skip
            response.raise_for_status()
            return parse_page(client.read(response, LARGEST_LISTING), prefix, self._name)


def parse_page(body: bytes, prefix: str, name: str) -> Page:
    """Parse a ListBucketResult in any namespace (S3's and Google's differ). Raises StorageError."""
    # A document type could define entities, and no listing has one. NUL bytes occur in UTF-16, which would hide it.
    if b"<!" in body or b"\0" in body:
        raise StorageError(f"{name}: the listing is not a ListBucketResult")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - without document types, and bounded
        encoded = root.findtext("{*}EncodingType") == "url"
        keys = []
        for entry in root.iterfind("{*}Contents"):
            key = entry.findtext("{*}Key") or ""
            keys.append((unquote_plus(key) if encoded else key, int(entry.findtext("{*}Size") or "0")))
    except (ElementTree.ParseError, ValueError) as error:
        raise StorageError(f"{name}: the listing is not a ListBucketResult") from error
    if any(not key.startswith(prefix) or size < 0 for key, size in keys):
        raise StorageError(f"{name}: the listing has keys without the requested prefix, or invalid sizes")
    return Page(tuple(keys), root.findtext("{*}NextContinuationToken") or "")


def split_bucket_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key of `SCHEME://BUCKET/KEY`, without decoding. Raises StorageError.

    Example:
        split_bucket_uri("s3://models/a/b.onnx")  # ("models", "a/b.onnx")
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if fault := bucket_fault(scheme, bucket):
        raise StorageError(f"{redact_url(uri)}: {fault}")
    if len(key.encode()) > _LONGEST_KEY or not key.isprintable() or "?" in key or "#" in key:
        raise StorageError(f"{redact_url(uri)}: write {scheme}://BUCKET/KEY, without ?, # and control characters")
    return bucket, key
