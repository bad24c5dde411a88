"""What storage reports: the model server shows it as the reason why a version is not ready.

    KnodelError
    └── StorageError      the artifact of a storage URI cannot be had, or is not the one that was promised
        ├── Interrupted   a connection broke, was not made or took too long: what has come can be continued later
        ├── Refused       the store answered with an error; `status` is its HTTP status
        ├── Outside       a link leads out of the folder that bounds what may be read
        └── Later         the same call may succeed later: there is no room, or the files are being written

Messages name the URI (without credentials, see `addresses.shown`) and the remedy, and no other path of this machine
but that of a kept copy (`kept`).
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class StorageError(KnodelError):
    """The artifact of a storage URI cannot be had, or is not the one that was promised; `str(error)` is one line."""


class Interrupted(StorageError):
    """A connection broke, was not made or took too long."""


class Outside(StorageError):
    """A link leads out of the folder that bounds what may be read."""


class Later(StorageError):
    """The same call may succeed later: there is no room, or the files are being written."""


class Refused(StorageError):
    """The store answered with an error; `after` are the seconds that it wants to be left alone."""

    def __init__(self, message: str, status: int, after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.after = after
