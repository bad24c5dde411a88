"""An engine with continuous batching, as vLLM: one model on one GPU, with a KV cache and a limit of running requests.

The engine computes one step after another. A step generates one token for each running request and computes up to
`chunk` tokens of prompts, in order of arrival. Its duration is linear in the running requests, in the cached tokens and
in the tokens of prompts (`Speed`). A request starts when the cache has room for its prompt and answer, so that no
request is preempted; engines that start earlier preempt instead.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

EXACT = 1e-9
"""Seconds by which a step may be over and still count as running, for the rounding of floats."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The durations of a step in seconds, and sizes in tokens. The defaults are of Llama 2 7B in FP16 on one A100-80G.

    Source: LMDeploy 0.1.0, docs/en/benchmark/a100_fp16.md (github.com/InternLM/lmdeploy, commit 3e391df), "llama2-7b":
    the median time of a token is 10 ms alone, 14 ms for 64 requests of 128 + 128 tokens, 20 ms and 31 ms for 16 and 32
    requests of 2048 + 128; the first token of a prompt of 2048 tokens takes 139 ms. These values reproduce all of them
    to within 10 %. A cached token takes 2 x 32 layers x 4096 x 2 bytes = 512 KiB; 90 % of the GPU's memory without
    13.5 GB of weights and 1 GB of buffers has room for 110 000 of them. The chunk is vLLM's default.
    """

    step: float = 10e-3
    per_request: float = 0.03e-3
    per_cached: float = 0.28e-6
    per_prompt: float = 61e-6
    cache: int = 110_000
    chunk: int = 2_048


@dataclass(slots=True)
class Request:
    """A request: its tokens, and its weight in slots.

    `left`: tokens of the prompt that are not computed yet. `admitted` and `first`: times of its start and first token.
    """

    number: int
    prompt: int
    generated: int
    weight: float = 1.0
    left: int = 0
    admitted: float = math.nan
    first: float = math.nan


@dataclass(slots=True)
class Finished:
    """The requests that received their first and their last token in a segment."""

    first: list[Request] = field(default_factory=list)
    last: list[Request] = field(default_factory=list)


class Engine:
    """One engine. It computes in segments: one step with tokens of prompts, or as many steps as end no request."""

    def __init__(self, slots: int, speed: Speed) -> None:
        self.slots = slots
        self.weight = 0.0
        """Sum of the weights of its requests."""
        self.end = math.inf
        """Time at which the segment ends; inf while the engine is idle."""
        self._speed = speed
        self._waiting: deque[Request] = deque()
        self._prompts: deque[Request] = deque()
        self._answers: list[tuple[int, int, Request]] = []  # by the step of their last token
        self._parts: list[tuple[Request, int]] = []  # prompt tokens of this segment
        self._steps = self._planned = 0
        self._cached = self._reserved = 0
        self._began = 0.0

    @property
    def active(self) -> int:
        """Return the requests that wait or run."""
        return len(self._waiting) + len(self._prompts) + len(self._answers)

    @property
    def waiting(self) -> int:
        """Return the requests that wait for a start."""
        return len(self._waiting)

    @property
    def kv_share(self) -> float:
        """Return the used part of the KV cache, from 0 to 1."""
        return self._cached / self._speed.cache

    def add(self, request: Request, now: float) -> None:
        """Queue a request. It joins the batch at the end of the current step."""
        request.left = request.prompt
        self._waiting.append(request)
        self.weight += request.weight
        if math.isinf(self.end):
            self._plan(now)
        elif not self._parts:
            self._cut(now)

    def finish(self) -> Finished:
        """End the segment and begin the next one."""
        found, now = Finished(), self.end
        self._steps += self._planned
        self._cached += self._planned * len(self._answers)
        while self._answers and self._answers[0][0] <= self._steps:
            self._release(heapq.heappop(self._answers)[2], found)
        for request, tokens in self._parts:
            request.left -= tokens
            self._cached += tokens
        while self._prompts and self._prompts[0].left == 0:
            request = self._prompts.popleft()
            request.first = now
            found.first.append(request)
            self._cached += 1
            if request.generated <= 1:
                self._release(request, found)
            else:
                heapq.heappush(self._answers, (self._steps + request.generated - 1, request.number, request))
        self._plan(now)
        return found

    def _release(self, request: Request, found: Finished) -> None:
        self.weight = self.weight - request.weight if self.active else 0.0  # no rest of rounding
        self._cached -= request.prompt + max(1, request.generated)
        self._reserved -= _size(request)
        found.last.append(request)

    def _plan(self, now: float) -> None:
        self._parts = self._take_prompts(now)
        self._began = now
        if self._parts:
            self._planned = 1
        elif self._answers:
            self._planned = max(1, self._answers[0][0] - self._steps)
        else:
            self.end = math.inf
            return
        self.end = now + self._seconds(self._planned)

    def _take_prompts(self, now: float) -> list[tuple[Request, int]]:
        """Return the tokens of prompts for the next step."""
        parts: list[tuple[Request, int]] = []
        budget = self._speed.chunk
        for request in self._prompts:
            parts.append((request, min(request.left, budget)))
            budget -= parts[-1][1]
        while budget > 0 and self._waiting and self._has_room(self._waiting[0]):
            request = self._waiting.popleft()
            request.admitted = now
            self._reserved += _size(request)
            self._prompts.append(request)
            parts.append((request, min(request.left, budget)))
            budget -= parts[-1][1]
        return parts

    def _has_room(self, request: Request) -> bool:
        running = len(self._prompts) + len(self._answers)
        fits = self._reserved + _size(request) <= self._speed.cache
        return running < self.slots and (fits or running == 0)

    def _seconds(self, steps: int) -> float:
        """Return the duration of the next `steps` steps; each one adds a token per running request to the cache."""
        speed, answers = self._speed, len(self._answers)
        tokens = sum(tokens for _, tokens in self._parts)
        one = speed.step + speed.per_request * (answers + len(self._parts)) + speed.per_cached * self._cached
        return steps * one + speed.per_prompt * tokens + speed.per_cached * answers * steps * (steps - 1) / 2

    def _cut(self, now: float) -> None:
        """End a segment of many steps after the current one."""
        least, most = 1, self._planned
        while least < most:
            middle = (least + most) // 2
            if self._began + self._seconds(middle) >= now - EXACT:
                most = middle
            else:
                least = middle + 1
        self._planned = least
        self.end = self._began + self._seconds(least)


def _size(request: Request) -> int:
    return request.prompt + max(1, request.generated)
