"""The headers of files in the form of safetensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.base.errors import LoadFailed
from serving.engines.base.safetensors import read_header
from tests.support.small_llama import safetensors, weights

WHOLE = safetensors({"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)})


def read(path: Path, content: bytes) -> Any:
    path.write_bytes(content)
    with FileIO(path) as file:
        return read_header(file, len(content), "it")


def changed(change: Callable[[dict[str, Any]], object], data: int = 40) -> bytes:
    """Return the file with another header."""
    length = struct.unpack("<Q", WHOLE[:8])[0]
    header = json.loads(WHOLE[8 : 8 + length])
    change(header)
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + bytes(data)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "m", safetensors(weights()))
    assert found.keys() == weights().keys()
    assert found["lm_head.weight"].shape == [259, 64]
    assert read(tmp_path / "m", changed(lambda header: header["a"].update(dtype="FUTURE"))).keys() == {"a", "b"}


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no header: it is truncated"),
        (WHOLE[:20], "ends inside its header .* truncated"),
        (WHOLE[:-1], "'b' ends at byte 40 of 39: the file is truncated"),
        (WHOLE + b"x", "1 bytes that belong to no tensor"),
        (struct.pack("<Q", 2**63) + WHOLE[8:], "not a file of safetensors"),
        (b"PK\x03\x04" * 100, "not a file of safetensors"),
        (struct.pack("<Q", 4) + b"[[[[", "not a file of safetensors"),
        (struct.pack("<Q", 6) + b"[" * 6, "not a file of safetensors"),
        (changed(lambda header: header["a"].update(shape=[2, 4])), "'a' has 24 bytes, not those of its shape"),
        (changed(lambda header: header["a"].update(shape=[-2, -3])), "'a' has a negative size"),
        (changed(lambda header: header["a"].update(shape=["2"])), "not a file of safetensors"),
        (changed(lambda header: header["b"].update(data_offsets=[20, 36])), "'b' overlaps another one or leaves a gap"),
        (changed(lambda header: header["b"].update(data_offsets=[28, 44]), 44), "'b' overlaps another one or leaves"),
        (changed(lambda header: header["b"].update(data_offsets=[24, 20])), "'b' overlaps another one or leaves a gap"),
        (changed(lambda header: header["a"].update(data_offsets=[-24, 0])), "'a' overlaps another one or leaves a gap"),
        (changed(lambda header: header.update({"__metadata__": {"a": 1}})), "not a file of safetensors"),
        (changed(lambda header: header.update(a=3)), "not a file of safetensors"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        read(tmp_path / "m", content)


@given(st.integers(0, len(WHOLE) - 41), st.integers(1, 255))
def test_a_changed_byte_of_the_header_is_read_or_refused(tmp_path_factory: Any, place: int, change: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    try:
        read(tmp_path_factory.getbasetemp() / "damaged", bytes(damaged))
    except LoadFailed as error:
        assert str(error).startswith("it")
