"""Read vLLM's page of metrics. Pure.

There is one line of each metric for each engine core, of which there are several with data parallelism:

    vllm:num_requests_running{engine="0",model_name="m"} 4.0
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.program import EngineLoad

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
KV_SHARE: Final = "vllm:kv_cache_usage_perc"
SLEEP: Final = "vllm:engine_sleep_state"
CONFIG: Final = "vllm:cache_config_info"
_AWAKE: Final = 'sleep_state="awake"'
_CONCURRENCY: Final = re.compile(r'kv_cache_max_concurrency="([^"]*)"')


def read_load(page: str) -> EngineLoad:
    """Return what the engine is doing. Raises InferenceFailed if the page lacks it."""
    running, waiting = _values(page, RUNNING), _values(page, WAITING)
    if not running or not waiting:
        raise InferenceFailed(f"the metrics of vLLM lack {RUNNING} or {WAITING}: use vLLM 0.32 or later")
    shares = _values(page, KV_SHARE)
    share = min(1.0, max(shares)) if shares else None
    return EngineLoad(int(sum(running)), int(sum(waiting)), share, 0.0 in _values(page, SLEEP, _AWAKE))


def read_concurrency(page: str) -> int:
    """Return how many requests of the maximum length the KV cache holds, of all cores together; 0 if unknown."""
    total = 0.0
    for labels, _ in _samples(page, CONFIG):
        found = _CONCURRENCY.search(labels)
        with suppress(ValueError, OverflowError):
            total += max(0, int(float(found[1]))) if found else 0
    return int(total)


def _values(page: str, name: str, label: str = "") -> Sequence[float]:
    found = []
    for labels, value in _samples(page, name):
        if label in labels:
            with suppress(ValueError):
                found.append(float(value))
    return found


def _samples(page: str, name: str) -> Sequence[tuple[str, str]]:
    """Return labels and value of each line of a metric."""
    return re.findall(rf"^{re.escape(name)}\{{(.*)\}} (\S+)$", page, re.MULTILINE)
