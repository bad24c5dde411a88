"""Folders for libraries that load from paths: copies, and the removal of leftovers."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import PREFIX, ModelFolder, only_file
from serving.engines.upstream.process import MAX_PATH, SocketFolder
from serving.storage.base.artifact import Artifact
from tests.support.tabular import folder

HOLD_ON = """
import signal
from pathlib import Path
from serving.engines.base.folder import ModelFolder
from serving.engines.upstream.process import SocketFolder
from serving.storage.base.artifact import Artifact
made, socket = ModelFolder(Artifact(Path("m"), b"content"), "file"), SocketFolder()
print(made.path, flush=True)
print(socket.socket.parent, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a temporary folder of this test for copies, with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


def test_a_folder_of_which_nothing_was_promised_is_used_where_it_is_or_copied(tmp_path: Path) -> None:
    artifact = folder(tmp_path / "m", a__txt=b"1")
    with ModelFolder(artifact) as used:
        assert used.path == tmp_path / "m"
    with ModelFolder(artifact, copy=True) as copied:
        (tmp_path / "m" / "a.txt").write_bytes(b"2")
        assert (copied.path / "a.txt").read_bytes() == b"1"
    assert not copied.path.exists() and (tmp_path / "m").exists()


def test_what_a_killed_server_left_goes_and_what_a_living_one_has_stays(temporary: Path) -> None:
    servers = [subprocess.Popen([sys.executable, "-c", HOLD_ON], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        paths = []
        for server in servers:
            assert server.stdout is not None
            paths += [Path(server.stdout.readline().strip()) for _ in range(2)]
        servers[0].send_signal(signal.SIGKILL)
        servers[0].wait()
        assert all(path.exists() for path in paths)
        other = temporary / "another"
        other.mkdir()
        made = SocketFolder()
        assert sorted(temporary.iterdir()) == sorted([made.socket.parent, *paths[2:], other])
        assert (paths[2] / "file").read_bytes() == b"content"
        made.close()
        with ModelFolder(Artifact(Path("m"), b"content"), "file") as copied:
            assert sorted(temporary.iterdir()) == sorted([copied.path, *paths[2:], other])
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def test_a_link_that_only_looks_like_a_leftover_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(victim)
    ModelFolder(Artifact(Path("m"), b"content"), "file").close()
    assert victim.exists()


def test_a_place_for_copies_that_cannot_be_written_is_an_error_with_a_remedy(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(LoadFailed, match=r"\$TMPDIR"):
        ModelFolder(Artifact(Path("m"), b"content"), "file")


def test_a_socket_has_a_short_path(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = temporary / ("x" * MAX_PATH)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = SocketFolder()
    assert len(str(folder.socket)) <= MAX_PATH and folder.socket.parent.stat().st_mode & 0o077 == 0
    folder.close()
    assert not folder.socket.parent.exists() and not list(long.iterdir())


def test_files_are_found_as_formats_are_without_regard_to_case(tmp_path: Path) -> None:
    artifact = folder(tmp_path / "m", Model__UBJ=b"", notes__txt=b"")
    assert only_file(artifact, (".ubj", "model.json")) == "Model.UBJ"
