"""`hf://ORG/REPO[:REVISION][/PATH]`: files of a model on the Hugging Face Hub, all of one commit.

The source calls the Hub's HTTP API itself. `huggingface_hub` follows redirects to any host, through the proxies of the
environment and with a transport of its own (hf-xet), so no host could be checked. The revision is a branch, tag or
commit (default `main`); `@` instead of `:` is accepted too, as in `HfFileSystem`. Files in LFS are verified with the
digest from the Hub.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from clusters.base.redact import redact_url
from serving.storage.base import digest as digests
from serving.storage.base.errors import HttpStatusError, StorageError
from serving.storage.base.uri_patterns import HUB
from serving.storage.sources.folder_download import RemoteFile, download_files
from serving.storage.sources.single_file import plain_filename
from serving.storage.sources.source import FOLDER, PARTS, DownloadedFile, DownloadedFolder, SourceContext
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download
from serving.storage.transfer.progress import Progress

ENDPOINT: Final = "https://huggingface.co"
LARGEST_LISTING: Final = 16 << 20  # bytes; the listing of a repository with 10 000 files has some 4 MB
_NO_ACCESS: Final = (401, 403, 404)  # the Hub does not distinguish them for repositories that are not public
_URI: Final = re.compile(rf"{HUB}(?:/(?P<path>[^?#]*))?", re.ASCII)


class _Lfs(msgspec.Struct):
    sha256: str = ""


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class _Listing(msgspec.Struct):
    sha: str
    siblings: list[_Sibling]


class HuggingFaceSource:
    """A repository, a folder of it, or one file."""

    is_image: Final = False

    def __init__(self, uri: str, context: SourceContext) -> None:
        found = _URI.fullmatch(uri)
        if found is None:
            raise StorageError(f"{redact_url(uri)}: write hf://ORG/REPO, hf://ORG/REPO:REVISION or hf://ORG/REPO/PATH")
        self._name = redact_url(uri)
        self._repo, self._revision = found["repo"], found["revision"] or "main"
        self._path = (found["path"] or "").strip("/")
        self._downloader = context.downloader
        self._endpoint = context.credentials.get("HF_ENDPOINT", ENDPOINT).rstrip("/")
        token = context.credentials.get("HF_TOKEN")
        self._secrets = {"Authorization": f"Bearer {token}"} if token else {}
        self.filename = plain_filename(self._path) if self._path else ""

    def download(self, work: Path, progress: Progress) -> DownloadedFile | DownloadedFolder:
        """Download the files of the revision's present commit. Raises StorageError."""
        listing = self._downloader.retry.run(self._list)
        for sibling in listing.siblings:
            if self._path and sibling.rfilename == self._path:
                file = self._remote_file(sibling, listing.sha, "")
                path = work / PARTS / "0"
                wanted = Download(self._name, file.request, path, file.size, digest=file.digest)
                return DownloadedFile(path, self._downloader.save(wanted, progress))
        folder = f"{self._path}/" if self._path else ""
        files = [
            self._remote_file(sibling, listing.sha, folder)
            for sibling in listing.siblings
            if sibling.rfilename.startswith(folder)
        ]
        downloaded = download_files(files, work, self._downloader, self._name, progress)
        return DownloadedFolder(work / FOLDER, downloaded, digests.of_folder(downloaded))

    def _list(self) -> _Listing:
        url = f"{self._endpoint}/api/models/{self._repo}/revision/{self._revision}?blobs=true"
        client = self._downloader.client
        with client.stream(self._request(url)) as response:
            if response.status in _NO_ACCESS:
                remedy = "check the name and the revision, and HF_TOKEN in the Secret if it is private"
                raise HttpStatusError(f"{self._name}: the Hub answered {response.status}: {remedy}", response.status)
            response.raise_for_status()
            body = client.read(response, LARGEST_LISTING)
        try:
            return msgspec.json.decode(body, type=_Listing)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(
                f"{self._name}: the response is not that of a Hugging Face Hub: check HF_ENDPOINT"
            ) from error

    def _remote_file(self, sibling: _Sibling, commit: str, folder: str) -> RemoteFile:
        url = f"{self._endpoint}/{self._repo}/resolve/{quote(commit, safe='')}/{quote(sibling.rfilename)}"
        digest = digests.PREFIX + sibling.lfs.sha256 if sibling.lfs and sibling.lfs.sha256 else ""
        name = sibling.rfilename.removeprefix(folder)
        return RemoteFile(name, partial(self._request, url), sibling.size, digest)

    def _request(self, url: str) -> StoreRequest:
        return StoreRequest(url, self._name, secrets=self._secrets)
