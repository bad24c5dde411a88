"""The head of a GGUF file: what is read from a whole one, and that no damaged one does harm."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.base.errors import LoadFailed
from serving.engines.gguf.file import TENSOR_TYPES, parts_of, read_head
from tests.support import small_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "whole.gguf"
    small_gguf.write(str(path))
    return path.read_bytes()


def damage(tmp_path: Path, content: bytes) -> str:
    """Return why this content is refused; "" if it is not."""
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    try:
        read_head(path, "damaged.gguf")
    except LoadFailed as error:
        return str(error)
    return ""


def test_a_whole_file(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    head = read_head(path, "model.gguf")
    assert head.architecture == "llama"
    assert head.number("context_length") == 256
    assert head.numbers("attention.head_count_kv", 2, 0) == [2, 2]
    assert head.tensor_bytes == sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)
    assert head.tensors == len(gguf.GGUFReader(path).tensors)


def test_the_types_are_those_of_ggml() -> None:
    assert {kind.value: size for kind, size in gguf.GGML_QUANT_SIZES.items()} == TENSOR_TYPES


def test_a_file_that_is_cut_off_names_the_tensor(tmp_path: Path, whole: bytes) -> None:
    assert "is cut off: the tensor" in damage(tmp_path, whole[:-100])


@pytest.mark.parametrize("number", range(40))
def test_damaged_heads_are_refused_or_harmless(tmp_path: Path, whole: bytes, number: int) -> None:
    chosen = random.Random(number)
    content = bytearray(whole)
    for _ in range(chosen.randint(1, 30)):
        place = chosen.randrange(4, 4000)
        content[place : place + chosen.choice((1, 4, 8))] = chosen.randbytes(chosen.choice((1, 4, 8)))
    reason = damage(tmp_path, bytes(content))
    assert reason == "" or reason.startswith("damaged.gguf ")


@given(st.binary(max_size=2000))
def test_any_bytes_end_in_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert damage(tmp_path_factory.mktemp("any"), b"GGUF" + struct.pack("<I", 3) + content)


@given(st.integers(0, 120_000))
def test_every_shorter_file_is_refused(whole: bytes, tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    assert damage(tmp_path_factory.mktemp("cut"), whole[:length])


HUGE = 2**63


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "in the middle of its head"),
        (b"PK\x03\x04" + bytes(100), "does not begin with GGUF"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "little endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), "keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE), "a text of"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "unknown type 99"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1), "an array of the type 9"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, HUGE), "elements at 'k'"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (struct.pack("<Q", 1) + b"k" + struct.pack("<IB", 0, 1)),
            "twice",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + bytes(20), "not UTF-8"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 9), "9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 4, 77, 0), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 5, 2, 0), "does not allow"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 4, 0, 7), "not aligned"),
    ],
)
def test_each_fault_has_its_words(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in damage(tmp_path, content)


def test_a_split_file_needs_all_its_parts() -> None:
    names = [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    assert parts_of(names[0], names) == names
    assert parts_of("m.gguf", ["m.gguf"]) == ["m.gguf"]
    with pytest.raises(LoadFailed, match=r"1 are missing, such as .'m-00002-of-00003.gguf'"):
        parts_of(names[0], [names[0], names[2]])
