"""One reading of one replica, and the checks that reject invalid readings.

`GET /stats` of the model server (management port) returns JSON with totals since its start. `busySeconds` is the
integral over time of its slots in use, including queued requests, so the difference of two readings is exact for any
interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from autoscaler.metrics.signals import Signals
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line, redact

LARGEST_TOTAL = 1e15  # slot-seconds or requests: 30 years of 10^6 slots; larger values such as 1e308 are rejected


STAGES = ("imports", "load", "warmup")
LONGEST_STAGE = 1e7  # ms; no start takes hours
FORMAT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")  # names of model formats; other text of a Pod is not repeated

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # names of adapters
LONGEST_FAULT: Final = 400  # characters of a fault of an adapter

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Startup = dict[str, float | bool | None]
"""The page's field: ms of each completed stage, else 0; whether the member was claimed; null for unknown values."""


class Tokens(NamedTuple):
    """Tokens of prompts and of completions; their totals since a replica's start, or a part of them."""

    prompt: float
    completion: float


class AdapterReport(NamedTuple):
    """The list of adapters that a replica of a language model works on, and the faults of adapters, by name."""

    list: str
    faults: Mapping[str, str]


class BadSample(KnodelError):
    """Raised for a reading that is not JSON, or has values that are NaN, infinite, negative or too large."""


class NoSample(KnodelError):
    """Raised when a replica did not answer in time or at all. This means neither zero load nor a failed replica."""


class NoPage(NoSample):
    """Raised when the page does not exist: no process listens on that port of the replica, or it does not serve the
    page.
    """


class _Stats(msgspec.Struct, rename="camel"):
    busy_seconds: float
    requests: float
    active: float = 0.0
    queued: float = 0.0
    slots: float = 0.0
    startup: Startup | None = None
    format: str | None = None
    digest: str | None = None
    tokens: Any = None
    adapters: Any = None
    gpu: Any = None
    kv_share: Any = None


class _AdapterPage(msgspec.Struct):
    list: Annotated[str, msgspec.Meta(max_length=64)]
    faults: Annotated[dict[str, str], msgspec.Meta(max_length=64)] = {}


_DECODER = msgspec.json.Decoder(_Stats)


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading at `at` (monotonic seconds of the reader): totals in slot-seconds and requests, then current slots.

    `lag`: seconds before `at` of which the reading may omit requests.
    """

    at: float
    busy_seconds: float
    requests: float
    active: float
    queued: float
    startup: Mapping[str, float] | None = None  # ms of the stages of the replica's start, if the server reports them
    lag: float = 0.0
    format: str = ""  # of the model, if the server reports it
    digest: str = ""  # of the model's files, if the server reports it
    tokens: Tokens | None = None  # of a language model
    adapters: AdapterReport | None = None  # of a language model that loads adapters while it serves
    signals: Signals | None = None  # of a replica with GPUs or a KV cache; no decision is made from them

    @property
    def in_flight(self) -> float:
        """Slots in use or waited for at the time of the reading."""
        return self.active + self.queued


def parse_stats(body: bytes, at: float) -> Sample:
    """Return the reading in a response of `/stats`. Raises BadSample."""
    try:
        stats = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/stats did not answer with a reading: {error}") from error
    totals = (stats.busy_seconds, stats.requests, stats.active, stats.queued)
    stages = _stages(stats.startup)
    digest = stats.digest if stats.digest is not None and DIGEST.fullmatch(stats.digest) else ""
    tokens = _tokens(stats.tokens)
    adapters = _adapters(stats.adapters)
    return checked(
        Sample(
            at, *totals, stages, format=known_format(stats.format), digest=digest, tokens=tokens, adapters=adapters,
            signals=_signals(stats.gpu, stats.kv_share),
        )
    )  # fmt: skip


def known_format(name: str | None) -> str:
    """Return the name of a format in a safe form; empty if it is invalid or missing."""
    return name if name is not None and FORMAT.fullmatch(name) else ""


def _stages(startup: Startup | None) -> Mapping[str, float]:
    """Return the stages of the start that took any time. They are informational, so invalid values are dropped."""
    values = ((name, (startup or {}).get(name)) for name in STAGES)
    numbers = ((name, value) for name, value in values if value is not None and not isinstance(value, bool))
    return {name: float(value) for name, value in numbers if 0.0 < value < LONGEST_STAGE}


def _tokens(totals: Any) -> Tokens | None:
    """Return the totals of a language model. No decision needs them, so invalid ones are dropped, not the reading."""
    values: list[Any] = [totals.get(name) for name in Tokens._fields] if isinstance(totals, dict) else []
    valid = [float(value) for value in values if type(value) in (int, float) and 0.0 <= value <= LARGEST_TOTAL]
    return Tokens(*valid) if len(valid) == len(Tokens._fields) else None


def _signals(gpu: Any, kv_share: Any) -> Signals | None:
    """Return the signals. No decision needs them, so invalid ones are dropped."""
    use = gpu if isinstance(gpu, dict) else {}
    values: tuple[Any, ...] = (use.get("utilization"), use.get("memory"), kv_share)
    valid = [float(value) if type(value) in (int, float) and 0.0 <= value <= 1.0 else None for value in values]
    return Signals(*valid) if any(value is not None for value in valid) else None


def _adapters(page: Any) -> AdapterReport | None:
    """Return the report on adapters, with the texts in a safe form. No decision needs it; an invalid one is dropped."""
    try:
        report = msgspec.convert(page, _AdapterPage)
    except msgspec.ValidationError:
        return None
    named = ((name, text) for name, text in report.faults.items() if LABEL.fullmatch(name))
    return AdapterReport(report.list, {name: one_line(redact(text), LONGEST_FAULT) for name, text in named})


def checked(sample: Sample) -> Sample:
    """Return the sample. Raises BadSample when a number in it is NaN, infinite, negative or too large."""
    for name in ("busy_seconds", "requests", "active", "queued"):
        value = getattr(sample, name)
        if not (math.isfinite(value) and 0.0 <= value <= LARGEST_TOTAL):
            raise BadSample(f"{name} is {value}: expected a number from 0 to {LARGEST_TOTAL:g}")
    return sample
