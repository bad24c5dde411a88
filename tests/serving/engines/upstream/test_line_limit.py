"""Which lines of an engine are logged when a caller makes it write many."""

from __future__ import annotations

import pytest

from serving.engines.upstream.line_limit import BURST, MOST_KINDS, PERIOD, UNMARKED_BURST, LineLimit

FAULT = "0.07.216.015 E ggml_cuda: an illegal memory access was encountered"
VLLM_FAULT = "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:12] EngineCore failed"


def refusal(task: int) -> str:
    return f"0.00.{task:03d}.015 E srv send_error: task id = {task}, error: failed to parse grammar"


def flood(limit: LineLimit, requests: int, now: float) -> int:
    """Return how many lines of requests with faulty grammars are logged."""
    lines = [line for number in range(requests) for line in ("root ::= (", f"x{number} ::= y", refusal(number))]
    return sum(limit.admit(line, now) is not None for line in lines)


@pytest.mark.parametrize("fault", [FAULT, VLLM_FAULT])
def test_faulty_grammars_fill_no_log_and_hide_no_fault_of_the_engine(fault: str) -> None:
    limit = LineLimit()
    assert flood(limit, 10_000, 0.0) == BURST + UNMARKED_BURST
    assert limit.admit(fault, 0.0) == 0
    assert limit.admit("llama_model_load: a line without a level", 0.0) is None


def test_later_lines_tell_how_many_were_left_out() -> None:
    limit = LineLimit()
    told = [limit.admit(refusal(number), 0.0) for number in range(BURST + 5)]
    assert told == [0] * BURST + [None] * 5
    assert limit.admit(refusal(1), PERIOD / 2) is None
    assert limit.admit(refusal(2), PERIOD) == 6
    assert limit.admit(refusal(3), PERIOD) is None
    assert limit.admit(refusal(4), 1e6) == 1  # a long silence: the whole burst again
    assert [limit.admit(refusal(5), 1e6) for _ in range(BURST)] == [0] * (BURST - 1) + [None]


def test_the_kinds_that_are_told_apart_are_bounded() -> None:
    limit = LineLimit()
    lines = [f"0.00.216.015 E unrecognized type {'x' * number}" for number in range(10 * MOST_KINDS)]
    assert sum(limit.admit(line, 0.0) is not None for line in lines) == MOST_KINDS + BURST
