"""`hf://ORG/REPO[:REVISION][/PATH]`: files of a model on the Hugging Face Hub, all of one commit.

By the Hub's HTTP API and our own requests: `huggingface_hub` follows redirects to wherever they lead, by proxies of the
environment and by a transport of its own (hf-xet), and no host of them could be checked. The revision is a branch, tag
or commit [main]; `@` in place of `:` is taken too, as `HfFileSystem` writes it. Files in LFS are verified by the digest
that the Hub tells.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from serving.storage.base import digest as digests
from serving.storage.base.errors import Refused, StorageError
from serving.storage.base.patterns import HUB
from serving.storage.sources.files import Remote, bring_files
from serving.storage.sources.source import FOLDER, PARTS, Access, File, Folder
from serving.storage.sources.web_file import plain_filename
from serving.storage.transfer.addresses import shown
from serving.storage.transfer.http import Download
from serving.storage.transfer.progress import Progress
from serving.storage.transfer.web import Request

ENDPOINT: Final = "https://huggingface.co"
LARGEST_LISTING: Final = 16 << 20  # bytes; a repository of 10 000 files has some 4 MB
_NOT_FOR_US: Final = (401, 403, 404)  # the Hub tells strangers no difference
_FORM: Final = re.compile(rf"{HUB}(?:/(?P<path>[^?#]*))?", re.ASCII)


class _Lfs(msgspec.Struct):
    sha256: str = ""


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class _Listing(msgspec.Struct):
    sha: str
    siblings: list[_Sibling]


class HubFiles:
    """A repository, a folder of it, or one file."""

    is_image: Final = False

    def __init__(self, uri: str, access: Access) -> None:
        found = _FORM.fullmatch(uri)
        if found is None:
            raise StorageError(f"{shown(uri)}: write hf://ORG/REPO, hf://ORG/REPO:REVISION or hf://ORG/REPO/PATH")
        self._name = shown(uri)
        self._repo, self._revision = found["repo"], found["revision"] or "main"
        self._path = (found["path"] or "").strip("/")
        self._downloader = access.downloader
        self._endpoint = access.credentials.get("HF_ENDPOINT", ENDPOINT).rstrip("/")
        token = access.credentials.get("HF_TOKEN")
        self._secrets = {"Authorization": f"Bearer {token}"} if token else {}
        self.filename = plain_filename(self._path) if self._path else ""

    def bring(self, work: Path, progress: Progress) -> File | Folder:
        """Bring the files of the commit that the revision is now. Raises StorageError."""
        listing = self._downloader.retry.run(self._list)
        for sibling in listing.siblings:
            if self._path and sibling.rfilename == self._path:
                return self._file(self._remote(sibling, listing.sha, ""), work, progress)
        inside = f"{self._path}/" if self._path else ""
        files = [
            self._remote(sibling, listing.sha, inside)
            for sibling in listing.siblings
            if sibling.rfilename.startswith(inside)
        ]
        brought = bring_files(files, work, self._downloader, self._name, progress)
        return Folder(work / FOLDER, brought, digests.of_folder(brought))

    def _file(self, file: Remote, work: Path, progress: Progress) -> File:
        path = work / PARTS / "0"
        wanted = Download(self._name, file.request, path, file.size, digest=file.digest)
        return File(path, self._downloader.save(wanted, progress))

    def _list(self) -> _Listing:
        url = f"{self._endpoint}/api/models/{self._repo}/revision/{self._revision}?blobs=true"
        web = self._downloader.web
        with web.ask(self._request(url)) as answer:
            if answer.status in _NOT_FOR_US:
                remedy = "check the name and the revision, and HF_TOKEN in the Secret if it is private"
                raise Refused(f"{self._name}: the Hub answered {answer.status}: {remedy}", answer.status)
            answer.check()
            body = web.read(answer, LARGEST_LISTING)
        try:
            return msgspec.json.decode(body, type=_Listing)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(
                f"{self._name}: the answer is not that of a Hugging Face Hub: check HF_ENDPOINT"
            ) from error

    def _remote(self, sibling: _Sibling, commit: str, inside: str) -> Remote:
        url = f"{self._endpoint}/{self._repo}/resolve/{quote(commit, safe='')}/{quote(sibling.rfilename)}"
        digest = digests.PREFIX + sibling.lfs.sha256 if sibling.lfs and sibling.lfs.sha256 else ""
        name = sibling.rfilename.removeprefix(inside)
        return Remote(name, partial(self._request, url), sibling.size, digest)

    def _request(self, url: str) -> Request:
        return Request(url, self._name, secrets=self._secrets)
