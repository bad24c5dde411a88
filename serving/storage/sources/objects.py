"""Object stores that speak S3's REST API: an object, an archive, or all objects below a prefix.

A `Bucket` says how its objects and lists are asked for (signed addresses, a token); the requests are ours, so that each
hop is checked, bounded, continued and shown as any download is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote_plus
from xml.etree import ElementTree  # nosec B405 - `parse_page` says why

from serving.storage.base import digest as digests
from serving.storage.base.disk import MOST_FILES
from serving.storage.base.errors import Refused, StorageError
from serving.storage.base.patterns import bucket_fault
from serving.storage.sources.files import Remote, bring_files
from serving.storage.sources.source import FOLDER, PARTS, File, Folder
from serving.storage.sources.web_file import plain_filename
from serving.storage.transfer.addresses import shown
from serving.storage.transfer.http import Download, Downloader
from serving.storage.transfer.progress import Progress
from serving.storage.transfer.web import Request

LARGEST_LISTING: Final = 16 << 20  # bytes of one page; 1000 keys of 1024 bytes, three times as long when encoded
MOST_PAGES: Final = 1000  # of one list; a store may put fewer keys on a page than it could
_LONGEST_KEY: Final = 1024  # bytes
_ABSENT: Final = (301, 400, 403, 404)
"""What a store may answer for a key that is not there; a list tells more, of a bucket in another region too."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: keys with their bytes, and what asks for the next part ("": it is the last)."""

    keys: tuple[tuple[str, int], ...]
    next: str


class Bucket(Protocol):
    """How one bucket is asked."""

    def get(self, key: str) -> Request:
        """The request for an object."""
        ...

    def list(self, prefix: str, after: str) -> Request:
        """The request for the list (version 2) of keys with a prefix, after the page that told `after`."""
        ...


class Objects:
    """What is at a key, or below it when the key ends with `/` or there is no such object."""

    is_image: Final = False

    def __init__(self, uri: str, key: str, bucket: Bucket, downloader: Downloader) -> None:
        self._name = shown(uri)
        self._key = key
        self._bucket = bucket
        self._downloader = downloader
        self.filename = "" if not key or key.endswith("/") else plain_filename(key)

    def bring(self, work: Path, progress: Progress) -> File | Folder:
        """Bring the object, or all below. Raises StorageError."""
        refused: Refused | None = None
        if self.filename:
            path = work / PARTS / "0"
            wanted = Download(self._name, partial(self._bucket.get, self._key), path)
            try:
                return File(path, self._downloader.save(wanted, progress))
            except Refused as error:
                if error.status not in _ABSENT:
                    raise
                refused = error
        return self._bring_folder(work, progress, refused)

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]:
        """All keys with a prefix, and their bytes. Raises StorageError."""
        after = ""
        for _ in range(MOST_PAGES):
            page = self._downloader.retry.run(partial(self._page, prefix, after))
            yield from page.keys
            if not page.next:
                return
            after = page.next
        raise StorageError(f"{self._name}: the store's list does not end: name the model's own folder or file")

    def _bring_folder(self, work: Path, progress: Progress, refused: Refused | None) -> Folder:
        prefix = self._key.rstrip("/") + "/" if self._key else ""
        files = []
        for key, size in self.keys(prefix):
            if not key.endswith("/"):  # consoles make such objects, to show folders
                files.append(Remote(key.removeprefix(prefix), partial(self._bucket.get, key), size))
            if len(files) > MOST_FILES:
                break  # bring_files refuses it
        if not files and refused is not None:
            raise Refused(f"{refused}, and nothing is below it: check bucket and key, and the Secret", refused.status)
        brought = bring_files(files, work, self._downloader, self._name, progress)
        return Folder(work / FOLDER, brought, digests.of_folder(brought))

    def _page(self, prefix: str, after: str) -> Page:
        web = self._downloader.web
        with web.ask(self._bucket.list(prefix, after)) as answer:
            region = answer.header("x-amz-bucket-region")
            if answer.status != 200 and region:
                raise Refused(
                    f"{self._name}: the store answered {answer.status}: the bucket is in {region[:40]!r}; "
                    "check AWS_REGION and the keys in the Secret", answer.status,
                )  # fmt: skip
            answer.check()
            return parse_page(web.read(answer, LARGEST_LISTING), prefix, self._name)


def parse_page(body: bytes, prefix: str, name: str) -> Page:
    """A ListBucketResult (S3's and Google's namespaces differ). Raises StorageError."""
    # No such list has a document type, in which entities could be defined; a NUL byte is a sign of UTF-16.
    if b"<!" in body or b"\0" in body:
        raise StorageError(f"{name}: the store's list is no ListBucketResult")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - see above; its length is bounded
        encoded = root.findtext("{*}EncodingType") == "url"
        keys = []
        for entry in root.iterfind("{*}Contents"):
            key = entry.findtext("{*}Key") or ""
            keys.append((unquote_plus(key) if encoded else key, int(entry.findtext("{*}Size") or "0")))
    except (ElementTree.ParseError, ValueError) as error:
        raise StorageError(f"{name}: the store's list is no ListBucketResult") from error
    if any(not key.startswith(prefix) or size < 0 for key, size in keys):
        raise StorageError(f"{name}: the store lists what was not asked for")
    return Page(tuple(keys), root.findtext("{*}NextContinuationToken") or "")


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of `SCHEME://BUCKET/KEY`, taken as they are written. Raises StorageError."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if fault := bucket_fault(scheme, bucket):
        raise StorageError(f"{shown(uri)}: {fault}")
    if len(key.encode()) > _LONGEST_KEY or not key.isprintable() or "?" in key or "#" in key:
        raise StorageError(f"{shown(uri)}: write {scheme}://BUCKET/KEY, without ?, # and control signs")
    return bucket, key
