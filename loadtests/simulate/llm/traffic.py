"""Traffic to language models from the traces, at a rate that needs several replicas.

Copies of a trace are overlaid, each one from a random time on, in a circle. Unlike a faster trace, this keeps the
length of bursts in seconds, as more callers of the same kind do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.scaling.table import FloatArray, IntArray
from loadtests.simulate.trace import Trace, open_trace

RAMP = 180.0
"""Seconds in which the rate rises from zero to that of the traces, so that no backlog of a start remains."""
LEAST_LIMIT = 16
"""Smallest `max_tokens`."""
BURST = 20.0
"""Seconds of an added burst."""
BETWEEN_BURSTS = 120.0
"""Mean seconds from one added burst to the next."""
BURST_RATE = 3.0
"""Rate of the added requests of a burst, as a multiple of the mean rate."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests in order of arrival: seconds from the start, tokens of prompt and answer, and the limit of the answer.

    The traces have no `max_tokens`. Here it is the power of two at or above the answer: callers know the length of
    their answers to a factor of two, which favours policies that use it.
    """

    name: str
    arrivals: FloatArray
    prompt: IntArray
    generated: IntArray

    def ramped(self, generator: np.random.Generator) -> Traffic:
        """Return the requests without some of those in the first `RAMP` seconds."""
        kept = generator.uniform(0.0, RAMP, len(self.arrivals)) < self.arrivals
        return replace(self, arrivals=self.arrivals[kept], prompt=self.prompt[kept], generated=self.generated[kept])

    @property
    def max_tokens(self) -> IntArray:
        """Return the limit of each answer in tokens."""
        least = np.maximum(self.generated, LEAST_LIMIT)
        return np.exp2(np.ceil(np.log2(least))).astype(np.int64)


def overlay(trace: Trace, copies: int, seconds: float, generator: np.random.Generator) -> Traffic:
    """Return `copies` copies of a trace over `seconds` seconds, each shifted by a random time."""
    length = float(trace.arrivals[-1]) + 1.0
    shifted = [(trace.arrivals + generator.uniform(0.0, length)) % length for _ in range(copies)]
    rows = np.tile(np.arange(len(trace.arrivals)), copies)
    return _sorted(trace.name, np.concatenate(shifted), trace, rows, seconds)


def with_bursts(trace: Trace, copies: int, seconds: float, generator: np.random.Generator) -> Traffic:
    """Return the same with added bursts at random times; their requests are drawn from the trace."""
    base = overlay(trace, copies, seconds, generator)
    rate = BURST_RATE * len(base.arrivals) / seconds
    times = []
    begin = generator.exponential(BETWEEN_BURSTS)
    while begin < seconds:
        times.append(begin + generator.uniform(0.0, BURST, generator.poisson(rate * BURST)))
        begin += BURST + generator.exponential(BETWEEN_BURSTS)
    arrivals = np.concatenate([*times, np.empty(0)])
    rows = generator.integers(0, len(trace.arrivals), len(arrivals))
    return merged(f"{trace.name}, bursts", base, _sorted("", arrivals, trace, rows, seconds))


def merged(name: str, *parts: Traffic) -> Traffic:
    """Return the requests of several sources together."""
    arrivals = np.concatenate([part.arrivals for part in parts])
    order = np.argsort(arrivals, kind="stable")
    prompt = np.concatenate([part.prompt for part in parts])
    generated = np.concatenate([part.generated for part in parts])
    return Traffic(name, arrivals[order], prompt[order], generated[order])


def _sorted(name: str, arrivals: FloatArray, trace: Trace, rows: IntArray, seconds: float) -> Traffic:
    order = np.argsort(arrivals, kind="stable")
    order = order[arrivals[order] < seconds]
    prompt, generated = (
        np.maximum(1, column[rows][order]).astype(np.int64) for column in (trace.context, trace.generated)
    )
    return Traffic(name, arrivals[order], prompt, generated)


Maker = Callable[[float, np.random.Generator], Traffic]


def _conv(seconds: float, generator: np.random.Generator) -> Traffic:
    return overlay(open_trace("conv"), 2, seconds, generator)


def _code(seconds: float, generator: np.random.Generator) -> Traffic:
    return overlay(open_trace("code"), 4, seconds, generator)


def _conv_bursts(seconds: float, generator: np.random.Generator) -> Traffic:
    return with_bursts(open_trace("conv"), 1, seconds, generator)


def _code_bursts(seconds: float, generator: np.random.Generator) -> Traffic:
    return with_bursts(open_trace("code"), 3, seconds, generator)


def _both(seconds: float, generator: np.random.Generator) -> Traffic:
    conv = overlay(open_trace("conv"), 1, seconds, generator)
    return merged("both", conv, overlay(open_trace("code"), 3, seconds, generator))


def make_traffic(kind: str, seconds: float, seed: int) -> Traffic:
    """Return traffic of a kind of `TRAFFIC` for this many seconds."""
    generator = np.random.default_rng(seed)
    return TRAFFIC[kind](seconds, generator).ramped(generator)


TRAFFIC: Mapping[str, Maker] = {
    "conv": _conv,
    "code": _code,
    "conv-bursts": _conv_bursts,
    "code-bursts": _code_bursts,
    "both": _both,
}
"""Traffic by name. `both` sends both traces to one model, so that the mean request changes with every burst of code."""
