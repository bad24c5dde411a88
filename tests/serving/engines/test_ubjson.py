"""The reader of UBJSON with complete and damaged files, built by hand."""

from __future__ import annotations

import pytest

from serving.engines.trees import ubjson

WHOLE = b"{L\0\0\0\0\0\0\0\1a[$d#L\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0i\1b[#i\2TSi\2xyU\1c{i\1dI\0\1}}"


def test_a_whole_file_is_taken() -> None:
    assert ubjson.begins(WHOLE)
    value = ubjson.read(WHOLE)
    assert value["a"].tolist() == [0.0, 0.0] and value["b"] == [True, "xy"] and value["c"] == {"d": 1}
    for text in (b"{}", b'{"a": 1}', b"{ }", b"", b"{"):
        assert not ubjson.begins(text)


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_file_that_is_cut_off_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        ubjson.read(WHOLE[:cut])


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize(
    "damaged",
    [
        WHOLE + b"Z",
        b"{i\xff",
        b"{x",
        b"[$S#i\1",
        b"[$d#L" + b"\xff" * 8,
        b"[" * 1000,
        b"[$d#L\x7f" + b"\xff" * 7,
        b"?",
        b"{i\1aTi\1aF}",
    ],
)
def test_a_file_that_lies_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="file"):
        ubjson.read(damaged)
