"""The bill of each model: the resources of its replicas times prices, split by purpose. Pure.

Pod-seconds are those of the autoscaler (`autoscaler.usage`), from annotations of PodAutoscalers and WarmPools. The cost
of a namespace's warm pools is divided among its models, in proportion to the replicas that came from pools in the
period. If no replica did, the cost of the pools is a line of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from autoscaler.usage.meter import Meter, Spent, Usage, day_of, hour_of, read_usage
from clusters.base.objects import Object, labels_of, name_of, namespace_of
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.prices import Prices

Period = Literal["hour", "day", "month"]
"""The current period in UTC, up to now."""

POOLS: Final = "(warm pools)"
"""Shown instead of a model's name for pools from which no model has claimed."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts by purpose, in pod-seconds or in the currency of the prices."""

    serving: float = 0.0
    idle: float = 0.0
    starting: float = 0.0
    canary: float = 0.0
    pool: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all purposes."""
        return self.serving + self.idle + self.starting + self.canary + self.pool

    def plus(self, spent: Spent, times: float) -> Amounts:
        """Return the sum of these amounts and `spent` times `times`."""
        return Amounts(
            self.serving + spent.serving * times,
            self.idle + spent.idle * times,
            self.starting + spent.starting * times,
            self.canary + spent.canary * times,
            self.pool,
        )

    def with_pool(self, amount: float) -> Amounts:
        """Return these amounts with `amount` added for warm pools."""
        return Amounts(self.serving, self.idle, self.starting, self.canary, self.pool + amount)

    def to_json(self) -> dict[str, float]:
        """Return the amounts by purpose, and `total`."""
        parts = {name: round(getattr(self, name), 6) for name in ("serving", "idle", "starting", "canary", "pool")}
        return {**parts, "total": round(self.total, 6)}


@dataclass(frozen=True, slots=True)
class TokenAmounts:
    """The tokens of a language model."""

    prompt: float = 0.0
    completion: float = 0.0

    @property
    def total(self) -> float:
        """Tokens of prompts and of completions."""
        return self.prompt + self.completion

    def plus(self, spent: Spent) -> TokenAmounts:
        """Return the sum of these tokens and those of `spent`."""
        return TokenAmounts(self.prompt + spent.prompt_tokens, self.completion + spent.completion_tokens)

    def to_json(self) -> dict[str, int]:
        """Return the tokens by kind, and `total`."""
        return {"prompt": round(self.prompt), "completion": round(self.completion), "total": round(self.total)}


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of one model for a period: pod-seconds and money; tokens of a language model."""

    namespace: str
    model: str
    held: Amounts = field(default_factory=Amounts)
    cost: Amounts = field(default_factory=Amounts)
    tokens: TokenAmounts = field(default_factory=TokenAmounts)

    @property
    def cost_per_1000_tokens(self) -> float | None:
        """The cost of all purposes for 1000 tokens, of prompts and of completions; None without tokens."""
        return self.cost.total / self.tokens.total * 1000 if self.tokens.total else None


@dataclass(slots=True)
class _Line:
    held: Amounts = field(default_factory=Amounts)
    cost: Amounts = field(default_factory=Amounts)
    tokens: TokenAmounts = field(default_factory=TokenAmounts)
    claims: float = 0.0

    def add(self, spent: Spent, price: float) -> None:
        self.held, self.cost = self.held.plus(spent, 1.0), self.cost.plus(spent, price)
        self.tokens = self.tokens.plus(spent)
        self.claims += spent.claims

    def add_pool(self, seconds: float, cost: float) -> None:
        self.held, self.cost = self.held.with_pool(seconds), self.cost.with_pool(cost)


def make_bills(
    autoscalers: Iterable[Object], pools: Iterable[Object], prices: Prices, period: Period, now: datetime
) -> list[Bill]:
    """Return a bill for every model with a PodAutoscaler, by namespace and name. `POOLS` comes last."""
    lines: dict[tuple[str, str], _Line] = defaultdict(_Line)
    for autoscaler in autoscalers:
        if (model := labels_of(autoscaler).get(LABEL_MODEL)) is not None:
            line = lines[namespace_of(autoscaler), model]
            for spent, replica in _spent(read_usage(autoscaler), period, now):
                line.add(spent, prices.of_second(replica))
    for namespace, held, cost in _pools(pools, prices, period, now):
        _share(lines, namespace, held, cost)
    found = [Bill(*names, line.held, line.cost, line.tokens) for names, line in lines.items()]
    return sorted(found, key=lambda bill: (bill.model == POOLS, bill.namespace, bill.model))


def _spent(usage: Usage, period: Period, now: datetime) -> Iterable[tuple[Spent, Mapping[str, float]]]:
    for meter in usage.meters:
        yield _of_period(meter, period, now), meter.replica


def _of_period(meter: Meter, period: Period, now: datetime) -> Spent:
    if period == "hour":
        return meter.hours.get(hour_of(now), Spent())
    if period == "day":
        return meter.days.get(day_of(now), Spent())
    month = now.astimezone(UTC).strftime("%Y-%m-")
    return sum((spent for day, spent in meter.days.items() if day.startswith(month)), Spent())


def _pools(
    pools: Iterable[Object], prices: Prices, period: Period, now: datetime
) -> Iterable[tuple[str, float, float]]:
    """Return pod-seconds and cost of free members by namespace."""
    sums: dict[str, tuple[float, float]] = {}
    for pool in pools:
        held, cost = sums.get(namespace_of(pool), (0.0, 0.0))
        for spent, replica in _spent(read_usage(pool), period, now):
            held += spent.pod_seconds
            cost += spent.pod_seconds * prices.of_second(replica)
        sums[namespace_of(pool)] = held, cost
    return [(namespace, held, cost) for namespace, (held, cost) in sums.items() if held]


def _share(lines: dict[tuple[str, str], _Line], namespace: str, held: float, cost: float) -> None:
    claimers = [line for (where, _), line in lines.items() if where == namespace and line.claims]
    claims = sum(line.claims for line in claimers)
    for line in claimers:
        line.add_pool(held * line.claims / claims, cost * line.claims / claims)
    if not claimers:
        lines[namespace, POOLS].add_pool(held, cost)


def replicas_of(autoscalers: Iterable[Object]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return ready and desired replicas by namespace and name of the model."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for autoscaler in autoscalers:
        status, model = autoscaler.get("status") or {}, labels_of(autoscaler).get(LABEL_MODEL, name_of(autoscaler))
        ready, wanted = found.get((namespace_of(autoscaler), model), (0, 0))
        ready += int(status.get("actualScale") or 0)
        wanted += max(0, int(status.get("desiredScale") or 0))
        found[namespace_of(autoscaler), model] = ready, wanted
    return found
