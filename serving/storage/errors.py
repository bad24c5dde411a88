"""What storage reports: the model server shows it as the reason why a version is not ready.

    KnodelError
    └── StorageError      the artifact of a storage URI cannot be had, or is not the one that was promised

Messages name the URI (without credentials, see `addresses.shown`) and the remedy, and no other path of this machine.
"""

from __future__ import annotations

from clusters.errors import KnodelError


class StorageError(KnodelError):
    """The artifact of a storage URI cannot be had, or is not the one that was promised; `str(error)` is one line."""
