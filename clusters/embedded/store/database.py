"""The SQLite file of the store: rows of encoded objects, checked when it is opened, and written in transactions.

It is neither asynchronous nor thread-safe: `Store` calls it from one thread at a time. The file is in WAL mode with
`synchronous=FULL`, so a committed transaction survives a power failure.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from errno import EACCES
from pathlib import Path
from typing import NamedTuple

from clusters.base.errors import KnodelError, Unavailable
from clusters.base.objects import Key

APPLICATION_ID = 0x4B6E6F64
"""`Knod`, in the file's header (PRAGMA application_id): identifies our file among SQLite files."""
FORMAT = 2
"""PRAGMA user_version; incremented when the contents of the tables change."""
INDEXED = 1
"""The format with names as the primary key, which is upgraded when the file is opened. Names with hashes are spread
over the whole index, so writes to it took half of each transaction."""
RETRY_AFTER = 1.0
"""s; a full disk rarely has space again sooner."""
LEAST_ROOM = 1 << 20
"""Bytes: the largest objects are larger. With less free space, some writes would fail and others would not."""
PAGE = 8192
"""Bytes of a page of a new file. Most objects have 1 to 2 KB, so pages of twice SQLite's default have less unused
space, and a commit writes half as many."""
CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log before a checkpoint; SQLite's default."""

_OBJECTS = """
CREATE TABLE objects (
    id INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    checksum INTEGER NOT NULL, value BLOB NOT NULL
);
"""
_COUNTER = """
CREATE TABLE counter (only INTEGER PRIMARY KEY CHECK (only = 1), version INTEGER NOT NULL);
INSERT INTO counter VALUES (1, 1);
"""
_UPGRADE = (
    "BEGIN IMMEDIATE",
    "ALTER TABLE objects RENAME TO indexed",
    _OBJECTS,
    "INSERT INTO objects (resource, namespace, name, checksum, value) "
    "SELECT resource, namespace, name, checksum, value FROM indexed",
    "DROP TABLE indexed",
    f"PRAGMA user_version={FORMAT}",
    "COMMIT",
)
_PUT = """
INSERT INTO objects (id, resource, namespace, name, checksum, value) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET checksum = excluded.checksum, value = excluded.value
"""
_DROP = "DELETE FROM objects WHERE id = ?"


class StoreError(KnodelError):
    """The state file is corrupt, of another program, or of a newer version."""


class Row(NamedTuple):
    """One object as stored: JSON, or None to remove it."""

    resource: str
    key: Key
    value: bytes | None


class Database:
    """An open state file. It keeps the row ids of all objects in memory, because the file has no other index."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Raises StoreError for an object with two rows."""
        self.path = path
        self._connection = connection
        self._rows: dict[tuple[str, Key], int] = {}
        for row, resource, namespace, name in connection.execute("SELECT id, resource, namespace, name FROM objects"):
            if self._rows.setdefault((resource, Key(namespace, name)), row) != row:
                raise StoreError(
                    f"the state file {path} is corrupt: duplicate {resource} {namespace}/{name}: {_RESTORE}"
                )
        self._next = max(self._rows.values(), default=0) + 1

    @classmethod
    def open(cls, path: Path) -> Database:
        """Open the file, or create it. Raises StoreError; never resets anything."""
        try:
            if not path.exists():
                _make(path)
            _require_writable(path)
            if path.stat().st_size == 0:  # SQLite would take it for a new database
                raise StoreError(f"the state file {path} is empty, so it was truncated: {_RESTORE}")
            connection = _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot open the state file {path}: {error}{_remedy(error)}") from error
        try:
            _check(path, connection)
            if _format_of(connection) == INDEXED:
                for statement in _UPGRADE:
                    connection.execute(statement)
            return cls(path, connection)
        except sqlite3.Error as error:
            connection.close()
            raise StoreError(f"cannot open the state file {path}: {error}{_remedy(error)}") from error
        except BaseException:
            connection.close()
            raise

    def load(self) -> Iterator[Row]:
        """Yield every object. Raises StoreError for an object with a wrong checksum."""
        query = "SELECT resource, namespace, name, checksum, value FROM objects"
        try:
            for resource, namespace, name, checksum, value in self._connection.execute(query):
                if zlib.crc32(value) != checksum:
                    raise StoreError(
                        f"the state file {self.path} is corrupt at {resource} {namespace}/{name}: {_RESTORE}"
                    )
                yield Row(resource, Key(namespace, name), value)
        except sqlite3.Error as error:
            raise StoreError(f"the state file {self.path} is corrupt ({error}): {_RESTORE}") from error

    def version(self) -> int:
        """Return the last resourceVersion that was assigned."""
        row = self._connection.execute("SELECT version FROM counter").fetchone()
        if row is None:
            raise StoreError(f"the state file {self.path} is corrupt (no version): {_RESTORE}")
        return int(row[0])

    def write(self, rows: Sequence[Row], version: int) -> None:
        """Write all rows, one for each object, in one transaction. They are on disk when this returns.

        Raises Unavailable if nothing was written.
        """
        fresh: dict[tuple[str, Key], int] = {}
        puts, drops = [], []
        for resource, key, value in rows:
            place = (resource, key)
            row = self._rows.get(place)
            if value is None:
                drops.append((row,))
                continue
            if row is None:
                row = fresh[place] = self._next + len(fresh)
            puts.append((row, resource, *key, zlib.crc32(value), value))
        self._commit(puts, drops, version)
        self._rows |= fresh
        self._next += len(fresh)
        for resource, key, value in rows if drops else ():
            if value is None:
                self._rows.pop((resource, key), None)

    def _commit(self, puts: Sequence[tuple[object, ...]], drops: Sequence[tuple[int | None]], version: int) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_PUT, puts)
            self._connection.executemany(_DROP, drops)
            self._connection.execute("UPDATE counter SET version = ?", (version,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._unwritable(error) from error

    def has_room(self) -> bool:
        """Return whether there is free space for more than the smallest transactions; False if that is unknown."""
        try:
            return shutil.disk_usage(self.path.parent).free >= LEAST_ROOM
        except OSError:
            return False

    def try_write(self) -> None:
        """Write to the file without changing its contents.

        Raises Unavailable if that fails, or if there is little free space.
        """
        if not self.has_room():
            raise Unavailable(f"the disk of the state file {self.path} is full: free some space", RETRY_AFTER)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for step in (1, -1):  # SQLite does not write a value that one statement leaves unchanged
                self._connection.execute("UPDATE counter SET version = version + ?", (step,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Checkpoint the log and close the file."""
        self._connection.close()

    def _unwritable(self, error: sqlite3.Error) -> Unavailable:
        return Unavailable(f"cannot write to the state file {self.path}: {error}", RETRY_AFTER)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


_RESTORE = "restore it from a copy, or move it away to start with an empty state"


def _remedy(error: Exception) -> str:
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return f": {_RESTORE}"
    return ""


def _make(path: Path) -> None:
    """Create the file under a temporary name first, so that a crash never leaves a partial state file."""
    if Path(f"{path}-wal").exists():
        raise StoreError(f"the state file {path} is missing but its log {path}-wal exists: {_RESTORE} (with the log)")
    fresh = path.with_name(path.name + ".new")
    for leftover in (fresh, Path(f"{fresh}-journal"), Path(f"{fresh}-wal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_RDWR, 0o600))  # it contains secrets
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size={PAGE}")
        connection.executescript(
            f"BEGIN; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT};{_OBJECTS}{_COUNTER}COMMIT;"
        )
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _require_writable(path: Path) -> None:
    """Raise StoreError when the file or its log cannot be written: SQLite would open them anyway."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            file.open("r+b").close()
        except FileNotFoundError:
            continue
        except OSError as error:
            remedy = f"run `chmod u+w {file}` as its owner" if error.errno == EACCES else "check its disk"
            raise StoreError(f"the state file {file} cannot be written ({error.strerror}): {remedy}") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("busy_timeout=1000", "trusted_schema=OFF", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # reads the header
    except BaseException:
        connection.close()
        raise
    return connection


def _format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check(path: Path, connection: sqlite3.Connection) -> None:
    def pragma(name: str) -> object:
        row = connection.execute(f"PRAGMA {name}").fetchone()
        return row[0] if row else None

    if pragma("application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program: use a separate state folder for Knodel")
    if _format_of(connection) not in (FORMAT, INDEXED):
        raise StoreError(
            f"the state file {path} has format {_format_of(connection)}, this version of Knodel reads {FORMAT}: "
            "use the version that wrote it"
        )
    try:
        fault = pragma("quick_check")
        if fault != "ok":
            raise StoreError(f"the state file {path} is corrupt ({str(fault).splitlines()[-1]}): {_RESTORE}")
        if pragma("journal_mode=WAL") != "wal":
            raise StoreError(f"the state file {path} cannot use a write-ahead log: move it to a local disk")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    except sqlite3.Error as error:
        raise StoreError(f"the state file {path} is corrupt ({error}): {_RESTORE}") from error
