"""Stack sizes of waiting threads: enough for the nesting of requests, and bounded in total."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serving.modelserver.execution.workers import MAX_WAITING, STACK_MEMORY, nesting_limit, stack_for, waiting_threads

MEBIBYTE = 1 << 20
DECODE = """
import sys, threading
from serving.modelserver.codec.protocol_v1 import _DECODER
sys.setrecursionlimit({limit})
threading.stack_size({stack})
said = []

def decode():
    try:
        _DECODER.decode(b'{{"instances": ' + b"[" * {limit} + b"]" * {limit} + b"}}")
    except RecursionError:
        said.append("refused")

thread = threading.Thread(target=decode)
thread.start()
thread.join()
assert said == ["refused"], said
"""


@pytest.mark.parametrize(("deep", "size"), [(1, 1), (1000, 1), (2995, 1), (3000, 2), (10_000, 4)])
def test_a_stack_has_room_for_each_level_in_whole_mebibytes(deep: int, size: int) -> None:
    assert stack_for(deep) == size * MEBIBYTE


@pytest.mark.parametrize("limit", [1000, 2900, 10_000])
def test_json_nested_as_deep_as_python_lets_it_is_refused_and_ends_no_process(limit: int) -> None:
    code = DECODE.format(limit=limit, stack=stack_for(limit))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_recursion_limit_of_a_model_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.modelserver.execution.workers.sys.getrecursionlimit", lambda: 50_000)
    assert nesting_limit() == 50_000


@pytest.mark.parametrize(
    ("slots", "stack", "threads"),
    [(4, MEBIBYTE, 4), (1000, MEBIBYTE, MAX_WAITING), (1000, 4 * MEBIBYTE, 128), (4, 2 * STACK_MEMORY, 1)],
)
def test_threads_are_bounded_by_slots_by_number_and_by_their_room(slots: int, stack: int, threads: int) -> None:
    assert waiting_threads(slots, stack) == threads
