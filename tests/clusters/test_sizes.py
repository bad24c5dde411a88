"""Sizes in messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusters.base.sizes import format_size

ROOT = Path(__file__).resolve().parents[2]
RAW = re.compile(r"\{(?:self\.)?_?(?:limits?\.\w+|LARGEST\w*|LONGEST_ANSWER|MAX_\w+|most|limit)\} bytes")
"""A limit that a message writes in bytes, whatever its size is."""


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (1500, "1500 bytes"), (1024, "1 KiB"), (32 << 10, "32 KiB"), (64 << 20, "64 MiB"),
        (1500 << 20, "1500 MiB"), (2 << 30, "2 GiB"), ((64 << 20) + 1, "64.1 MiB"), (10 << 29, "5 GiB"),
        (int(2.5 * (1 << 30)) + 1, "2.6 GiB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_its_largest_unit(count: int, text: str) -> None:
    assert format_size(count) == text


def test_no_message_writes_a_limit_in_bytes() -> None:
    places = [path for package in ("clusters", "eventing", "serving") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): RAW.findall(path.read_text(encoding="utf-8")) for path in places}

    assert {name: texts for name, texts in found.items() if texts} == {
        "serving/modelserver/pool/assignment_file.py": ["{_MAX_SIZE} bytes"],  # of a file that the server writes itself
        "serving/engines/child/messages.py": ["{MAX_TENSOR} bytes"],  # between two of its processes
        "clusters/embedded/kubelet/process/zygote.py": ["{MAX_REQUEST} bytes"],
    }
