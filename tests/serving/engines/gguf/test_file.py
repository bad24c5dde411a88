"""The head of a GGUF file: what is read from a whole one, and that no damaged one does harm."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.base.errors import LoadFailed
from serving.engines.gguf.file import MAX_BLOCKS, MAX_ELEMENTS, MAX_TEXT, TENSOR_TYPES, parts_of, read_head
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
    assert head.vocabulary == len(small_gguf.TOKENS)
    assert not head.pools
    assert not head.encodes


def test_a_whole_file_of_embeddings(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    small_gguf.write_encoder(str(path))
    head = read_head(path, "model.gguf")
    assert head.encodes
    assert head.pools
    assert not head.reranks


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


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def head_of(*pairs: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs) + bytes(64)


def number(key: bytes, value: int = 1) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def texts(key: bytes, *values: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(key: bytes, kind: int, count: int) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, kind, count) + bytes(4 * count)


TOKENS = texts(b"tokenizer.ggml.tokens", b"a", b"b")
NAME = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([number(b"general.architecture")], "'general.architecture' that is not a text"),
        ([number(b"tokenizer.ggml.model")], "'tokenizer.ggml.model' that is not a text"),
        ([number(b"tokenizer.chat_template")], "'tokenizer.chat_template' that is not a text"),
        ([texts(b"tokenizer.chat_template.tool_use", b"x")], "'tokenizer.chat_template.tool_use' that is not a text"),
        ([number(b"tokenizer.ggml.tokens")], "'tokenizer.ggml.tokens' that is not an array of texts"),
        ([numbers(b"tokenizer.ggml.tokens", 4, 2)], "'tokenizer.ggml.tokens' that is not an array of texts"),
        ([TOKENS, numbers(b"tokenizer.ggml.scores", 6, 1)], "'tokenizer.ggml.scores' that is not an array with a"),
        ([TOKENS, numbers(b"tokenizer.ggml.scores", 4, 2)], "'tokenizer.ggml.scores' that is not an array with a"),
        ([TOKENS, numbers(b"tokenizer.ggml.token_type", 5, 3)], "'tokenizer.ggml.token_type' that is not an array"),
        ([NAME, number(b"llama.block_count", 2**32 - 1)], f"4294967295 layers: at most {MAX_BLOCKS}"),
        ([number(b"general.alignment", 48)], "the alignment 48: it must be a power of two"),
    ],
)
def test_values_that_llama_cpp_trusts_are_checked(tmp_path: Path, pairs: list[bytes], words: str) -> None:
    assert words in damage(tmp_path, head_of(*pairs))


def test_values_of_the_right_type_are_taken(tmp_path: Path) -> None:
    names = texts(b"tokenizer.chat_templates", b"tool_use")
    whole = head_of(TOKENS, names, numbers(b"tokenizer.ggml.scores", 6, 2), numbers(b"tokenizer.ggml.token_type", 5, 2))
    assert damage(tmp_path, whole) == ""


HOLES = 10 << 30
"""Bytes. Holes of a file cost nothing to make, and read as zeros."""


@pytest.mark.parametrize(
    ("arrays", "length", "words"),
    [(1, 0, "twice"), (2, 0, "elements of arrays"), (1, MAX_TEXT, "has a head of more than")],
)
def test_a_file_of_holes_ends_soon(tmp_path: Path, arrays: int, length: int, words: str) -> None:
    path = tmp_path / "damaged.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 4096))
        for array in range(arrays):
            file.write(text(b"k%d" % array) + struct.pack("<IIQ", 9, 8, MAX_ELEMENTS))
            start = file.tell()
            for place in range(20 if length else 0):
                file.seek(start + place * (8 + length))
                file.write(struct.pack("<Q", length))
            file.seek(start + 8 * MAX_ELEMENTS)
        file.truncate(HOLES)
    began = time.process_time()
    with pytest.raises(LoadFailed, match=words):
        read_head(path, "damaged.gguf")
    assert time.process_time() - began < 5  # less than a second where nothing else runs
