"""The state file: every way in which it can be unusable is reported, and none resets it."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.base.objects import Key
from clusters.embedded.store.database import Database, Row, StoreError
from clusters.embedded.store.store import Store


def filled(folder: Path, rows: int = 400) -> Path:
    """Return a closed state file with some objects."""
    path = folder / "store.db"
    database = Database.open(path)
    value = b'{"metadata":{"name":"x"},"spec":"' + b"payload " * 20 + b'"}'
    database.write([Row("models.knodel.dev", Key("ns", f"m{n}"), value) for n in range(rows)], 2 + rows)
    database.close()
    return path


def test_a_file_that_may_not_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.chmod(0o444)
    program = (
        "import sys; from pathlib import Path; from clusters.embedded.store.store import Store; "
        "Store.open(Path(sys.argv[1]))"
    )
    rights = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write any file

    done = subprocess.run([*rights, sys.executable, "-c", program, path], capture_output=True, text=True, check=False)

    assert re.search(rf"StoreError: .*cannot be written \(Permission denied\).*`chmod u\+w {path}`", done.stderr), (
        done.stderr
    )


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Damage the file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def truncate_half(path: Path) -> None:
    """Cut the file in two."""
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def truncate_whole(path: Path) -> None:
    """Leave an empty file."""
    os.truncate(path, 0)


def garble_header(path: Path) -> None:
    """Overwrite the header, so that it is not a database."""
    overwrite(path, 0, b"not a database at all")


def garble_page(path: Path) -> None:
    """Damage a page in the middle."""
    overwrite(path, 4096 * 5, os.urandom(4096))


def flip_payload(path: Path) -> None:
    """Change one letter of a value, which SQLite does not detect."""
    content = path.read_bytes()
    overwrite(path, content.rindex(b"payload"), b"P")


def text_file(path: Path) -> None:
    """Replace the file by a text."""
    path.write_text("hello\n" * 1000)


@pytest.mark.parametrize("damage", [truncate_half, truncate_whole, garble_header, garble_page, flip_payload, text_file])
def test_a_damaged_file_is_told_and_left_as_it_is(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = filled(tmp_path)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreError) as told:
        Store.open(path)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="format 99"):
        Store.open(path)


def test_a_value_that_is_no_object_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = Database.open(path)
    database.write([Row("models.knodel.dev", Key("ns", "m"), b"[1]")], 2)
    database.close()
    with pytest.raises(StoreError, match="models"):
        Store.open(path)


def test_a_log_without_its_file_is_told(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.unlink()
    Path(f"{path}-wal").write_bytes(b"rest")
    with pytest.raises(StoreError, match="log"):
        Store.open(path)
    assert not path.exists()


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open"):
        Store.open(tmp_path / "absent" / "store.db")


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Store.open(tmp_path)


def test_a_file_left_by_a_crash_at_the_first_start_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "store.db.new").write_bytes(b"half a file")
    Database.open(tmp_path / "store.db").close()
    assert not (tmp_path / "store.db.new").exists()


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = filled(tmp_path)
    assert path.stat().st_mode & 0o077 == 0


def test_the_last_version_and_rows_come_back(tmp_path: Path) -> None:
    path = filled(tmp_path, rows=3)
    database = Database.open(path)
    database.write([Row("models.knodel.dev", Key("ns", "m0"), None)], 77)
    database.close()
    database = Database.open(path)
    assert {row.key.name for row in database.load()} == {"m1", "m2"}
    assert database.version() == 77
    database.close()


def as_indexed(path: Path, options: str) -> None:
    """Convert a state file to the format with names as the primary key, `WITHOUT ROWID` in its first form."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("ALTER TABLE objects RENAME TO new")
    connection.execute(
        "CREATE TABLE objects (resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, "
        f"checksum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (resource, namespace, name)) {options}"
    )
    connection.execute("INSERT INTO objects SELECT resource, namespace, name, checksum, value FROM new")
    connection.execute("DROP TABLE new")
    connection.execute("PRAGMA user_version=1")
    connection.close()


@pytest.mark.parametrize("options", ["", "WITHOUT ROWID"])
def test_a_file_with_names_as_its_key_is_renewed_with_all_that_is_in_it(tmp_path: Path, options: str) -> None:
    path = filled(tmp_path)
    before = sorted(Database.open(path).load())
    as_indexed(path, options)
    database = Database.open(path)
    assert sorted(database.load()) == before
    assert database.version() == 402
    database.write([Row("models.knodel.dev", Key("ns", "m7"), None), before[8]._replace(value=b'{"a":1}')], 403)
    database.close()
    again = Database.open(path)
    kept = {row.key: row.value for row in again.load()}
    assert len(kept) == 399 and kept[before[8].key] == b'{"a":1}'
    again.close()


def test_an_object_with_two_rows_is_reported(tmp_path: Path) -> None:
    path = filled(tmp_path, rows=1)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("INSERT INTO objects SELECT 7, resource, namespace, name, checksum, value FROM objects")
    connection.close()
    with pytest.raises(StoreError, match=r"duplicate models\.knodel\.dev ns/m0"):
        Store.open(path)


def test_an_object_that_comes_back_and_one_that_changes_have_one_row(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = Database.open(path)
    m, n = Key("ns", "m"), Key("ns", "n")
    for version, (key, value) in enumerate([(m, b"1"), (n, b"1"), (m, None), (m, b"2"), (n, b"2")], start=2):
        database.write([Row("models.knodel.dev", key, value)], version)
    database.close()
    database = Database.open(path)
    assert {row.key: row.value for row in database.load()} == {m: b"2", n: b"2"}
    database.close()
