"""Damaged files are refused and not kept, however small the damage is."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from tests.serving.storage.conftest import LOOPBACK, ONCE, Store

CONTENT = bytes(range(256)) * 40
OTHER = CONTENT[::-1]
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
TENTHS = range(10)
LOADS = 1000
NAMES = ("a.bin", "b.bin", "c.bin")


def get(uri: str, cache: Path, digest: str = DIGEST) -> Artifact:
    return fetch(uri, digest, cache / "cache", LOOPBACK, options=StorageOptions({}, limits=ONCE))


@pytest.mark.fault("M1")
@pytest.mark.parametrize("tenths", TENTHS)
def test_one_that_was_cut_is_refused_by_its_digest_and_not_kept(store: Store, tmp_path: Path, tenths: int) -> None:
    cut = CONTENT[: len(CONTENT) * tenths // 10]
    (tmp_path / "m.onnx").write_bytes(cut)
    for uri in (store.file("/m.onnx", cut), (tmp_path / "m.onnx").as_uri()):
        with pytest.raises(StorageError) as error:
            get(uri, tmp_path)
        assert DIGEST in str(error.value) and hashlib.sha256(cut).hexdigest() in str(error.value)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.fault("M1")
@given(st.integers(0, len(CONTENT) * 8 - 1))
def test_one_bit_is_enough(bit: int) -> None:
    flipped = bytearray(CONTENT)
    flipped[bit // 8] ^= 1 << bit % 8
    assert of_bytes(bytes(flipped)) != DIGEST


@pytest.mark.fault("M1")
@pytest.mark.parametrize("tenths", TENTHS)
def test_one_that_was_cut_in_the_cache_is_brought_anew(store: Store, tmp_path: Path, tenths: int) -> None:
    uri = store.file("/m.onnx", CONTENT)
    get(uri, tmp_path)
    [kept] = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept.write_bytes(CONTENT[: len(CONTENT) * tenths // 10])
    assert get(uri, tmp_path).read("m.onnx") == CONTENT
    assert kept.read_bytes() == CONTENT


@contextmanager
def replaced(path: Path, aside: Path) -> Iterator[None]:
    """Alternate the content of `path` during the block; each version is written to `aside` and renamed."""
    over = threading.Event()

    def work() -> None:
        turn = 0
        while not over.is_set():
            aside.write_bytes((OTHER, CONTENT)[turn % 2])
            aside.replace(path)
            turn += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def outcomes(read: Callable[[], bytes]) -> dict[bytes, int]:
    """Return the number of results of `read` by content; b"" counts refusals."""
    seen: dict[bytes, int] = {}
    for _ in range(LOADS):
        try:
            content = read()
        except StorageError:
            content = b""
        seen[content] = seen.get(content, 0) + 1
    return seen


@pytest.mark.fault("M2")
def test_of_a_file_that_is_replaced_all_the_time_the_verified_bytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CONTENT)
    with replaced(path, tmp_path / "aside"):
        seen = outcomes(lambda: get(path.as_uri(), tmp_path).read("m.onnx"))
    assert set(seen) <= {CONTENT, b""}
    assert seen.get(CONTENT)


@pytest.mark.fault("M2")
def test_of_a_folder_one_file_of_which_is_replaced_all_the_time_too(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(CONTENT)
    digest = of_folder(dict.fromkeys(NAMES, DIGEST))

    def read() -> bytes:
        artifact = get(folder.as_uri(), tmp_path, digest)
        return b"".join(artifact.read(name) for name in NAMES)

    with replaced(folder / "b.bin", tmp_path / "aside"):
        seen = outcomes(read)
    assert set(seen) <= {CONTENT * len(NAMES), b""}
