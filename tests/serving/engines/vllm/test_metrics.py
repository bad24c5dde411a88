"""vLLM's metrics, as vLLM 0.32 wrote them."""

from __future__ import annotations

import pytest

from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.program import EngineLoad
from serving.engines.vllm.metrics import read_concurrency, read_load
from tests.support.vllm_stub import page


def test_an_idle_engine() -> None:
    assert read_load(page("metrics-idle")) == EngineLoad(0, 0, 0.0)


def test_a_busy_engine() -> None:
    found = read_load(page("metrics-busy"))
    assert (found.running, found.waiting, found.sleeping) == (4, 2, False)
    assert found.kv_share is not None
    assert 0 < found.kv_share < 0.01


def test_a_sleeping_engine() -> None:
    assert read_load(page("metrics-asleep")).sleeping


def test_the_cores_of_data_parallelism_are_added() -> None:
    lines = [line for line in page("metrics-busy").splitlines() if line.startswith("vllm:")]
    second = "\n".join(line.replace('engine="0"', 'engine="1"') for line in lines)
    both = page("metrics-busy") + second + "\n"
    assert read_load(both)[:2] == (8, 4)
    assert read_concurrency(both) == 2 * read_concurrency(page("metrics-busy"))


def test_the_concurrency_is_that_of_requests_of_the_maximum_length() -> None:
    assert read_concurrency(page("metrics-idle")) == 256
    assert read_concurrency('vllm:cache_config_info{kv_cache_max_concurrency="45.5"} 1.0') == 45
    assert read_concurrency('vllm:cache_config_info{kv_cache_max_concurrency="None"} 1.0') == 0
    assert read_concurrency('vllm:cache_config_info{kv_cache_max_concurrency="inf"} 1.0') == 0
    assert read_concurrency("") == 0


@pytest.mark.parametrize("text", ["", "# vllm:num_requests_running 3", 'vllm:num_requests_running{engine="0"} x'])
def test_a_page_of_another_program_is_an_error(text: str) -> None:
    with pytest.raises(InferenceFailed, match=r"lack vllm:num_requests_running .* use vLLM"):
        read_load(text)
