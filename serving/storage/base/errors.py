"""Errors of storage. The model server shows them as the reason why a version is not ready.

    KnodelError
    └── StorageError             the artifact cannot be read, or its digest is wrong
        ├── TransferInterrupted  a connection failed or timed out; a later attempt resumes the transfer
        ├── HttpStatusError      the store responded with an error status
        ├── OutsideFolder        a link leads out of the folder that bounds the read
        └── RetryableStorageError       no room, or the files are being written; a later call may succeed

Messages name the URI without credentials and the remedy. They contain no path of this machine, except for the path of a
kept copy (`kept`).
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class StorageError(KnodelError):
    """The artifact of a storage URI cannot be read, or its digest is wrong. `str(error)` is one line."""


class TransferInterrupted(StorageError):
    """A connection failed, was closed early or timed out."""


class OutsideFolder(StorageError):
    """A link leads out of the folder that bounds the read."""


class RetryableStorageError(StorageError):
    """The same call may succeed later: there is no room, or the files are being written."""


class HttpStatusError(StorageError):
    """The store responded with the HTTP status `status`; `retry_after` is the requested delay in seconds."""

    def __init__(self, message: str, status: int, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
