"""The bill: what replicas held, times prices, split by purpose, pools divided by who claimed from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.usage.meter import USAGE_ANNOTATION, Spent, Usage
from clusters.base.objects import Object
from serving.cost.bill import POOLS, Amounts, make_bills, replicas_of
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.prices import Prices

NOW = datetime(2026, 3, 15, 12, 30, tzinfo=UTC)
PRICES = Prices(cpu=0.36, gpu={"nvidia.com/gpu": 3.6})
"""A core costs 0.0001 a second, a GPU 0.001."""


def obj(name: str, model: str = "", namespace: str = "default", **status: Any) -> Object:
    labels = {LABEL_MODEL: model} if model else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "status": status}


def used(made: Object, *rows: tuple[Spent, datetime], cpu: float = 1.0, gpu: float = 0.0) -> Object:
    usage = Usage(NOW)
    replica = {"cpu": cpu, "nvidia.com/gpu": gpu} if gpu else {"cpu": cpu}
    for spent, at in rows:
        usage.meter(replica).add(spent, at)
    made["metadata"]["annotations"] = {USAGE_ANNOTATION: usage.to_json()}
    return made


def test_the_revisions_of_a_model_add_up_each_by_its_own_resources() -> None:
    old = used(obj("iris-1", "iris"), (Spent(serving=100.0, idle=50.0), NOW))
    new = used(obj("iris-2", "iris"), (Spent(canary=10.0, starting=5.0), NOW), cpu=2.0, gpu=1.0)
    (bill,) = make_bills([old, new], [], PRICES, "day", NOW)
    assert (bill.namespace, bill.model) == ("default", "iris")
    assert bill.held == Amounts(serving=100.0, idle=50.0, starting=5.0, canary=10.0)
    assert bill.cost.serving == pytest.approx(0.01)
    assert bill.cost.idle == pytest.approx(0.005)
    assert bill.cost.canary == pytest.approx(10.0 * 0.0012)
    assert bill.cost.total == pytest.approx(0.015 + 15.0 * 0.0012)


def test_the_type_of_gpu_has_a_price_of_its_own() -> None:
    usage, prices = Usage(NOW), Prices(gpu={"nvidia.com/gpu": 3.6}, gpu_types={"NVIDIA-H100": 7.2})
    usage.meter({"nvidia.com/gpu": 1.0}).add(Spent(serving=100.0), NOW)
    usage.meter({"nvidia.com/gpu:NVIDIA-H100": 2.0}).add(Spent(serving=100.0, idle=10.0), NOW)
    made = obj("chat-1", "chat")
    made["metadata"]["annotations"] = {USAGE_ANNOTATION: usage.to_json()}
    (bill,) = make_bills([made], [], prices, "day", NOW)
    assert bill.held == Amounts(serving=200.0, idle=10.0)
    assert (bill.cost.serving, bill.cost.idle) == pytest.approx((0.1 + 0.4, 0.04))


@pytest.mark.parametrize(("period", "seconds"), [("hour", 1.0), ("day", 3.0), ("month", 7.0)])
def test_a_period_is_the_present_one(period: Any, seconds: float) -> None:
    rows = [
        (Spent(idle=1.0), NOW),
        (Spent(idle=2.0), NOW - timedelta(hours=2)),
        (Spent(idle=4.0), NOW - timedelta(days=3)),
        (Spent(idle=8.0), NOW - timedelta(days=20)),  # February
    ]
    (bill,) = make_bills([used(obj("iris-1", "iris"), *reversed(rows))], [], PRICES, period, NOW)
    assert bill.held.total == seconds


def test_pools_are_paid_by_the_models_that_claimed_from_them() -> None:
    iris = used(obj("iris-1", "iris"), (Spent(serving=10.0, claims=3.0), NOW))
    magika = used(obj("magika-1", "magika"), (Spent(serving=10.0, claims=1.0), NOW))
    quiet = used(obj("quiet-1", "quiet"), (Spent(serving=10.0), NOW))
    elsewhere = used(obj("iris-1", "iris", "team"), (Spent(claims=9.0), NOW))
    pool = used(obj("small"), (Spent(idle=400.0), NOW))
    bills = make_bills([iris, magika, quiet, elsewhere], [pool], PRICES, "day", NOW)
    assert {(bill.namespace, bill.model): bill.held.pool for bill in bills} == {
        ("default", "iris"): 300.0, ("default", "magika"): 100.0, ("default", "quiet"): 0.0, ("team", "iris"): 0.0,
    }  # fmt: skip
    assert sum(bill.cost.pool for bill in bills) == pytest.approx(0.04)


def test_a_pool_that_nobody_claimed_from_has_a_line_of_its_own() -> None:
    iris = used(obj("iris-1", "iris"), (Spent(serving=10.0), NOW))
    bills = make_bills([iris], [used(obj("small"), (Spent(idle=400.0), NOW))], PRICES, "day", NOW)
    assert [(bill.model, bill.held.total) for bill in bills] == [("iris", 10.0), (POOLS, 400.0)]


def test_a_language_model_has_its_tokens_and_the_cost_of_a_thousand() -> None:
    now, month = Spent(serving=100.0, prompt_tokens=1_000.0, completion_tokens=500.0), Spent(prompt_tokens=9e6)
    old = used(obj("chat-1", "chat"), (month, NOW - timedelta(days=3)), (now, NOW))
    new = used(obj("chat-2", "chat"), (Spent(canary=50.0, claims=1.0, completion_tokens=500.0), NOW))
    pool = used(obj("small"), (Spent(idle=50.0), NOW))
    (bill,) = make_bills([old, new], [pool], PRICES, "day", NOW)
    assert bill.tokens.to_json() == {"prompt": 1_000, "completion": 1_000, "total": 2_000}
    assert bill.cost_per_1000_tokens == pytest.approx(200.0 * 0.0001 / 2)
    (bill,) = make_bills([used(obj("iris-1", "iris"), (Spent(serving=100.0), NOW))], [], PRICES, "day", NOW)
    assert (bill.tokens.total, bill.cost_per_1000_tokens) == (0.0, None)


def test_what_is_no_models_or_was_never_counted_costs_nothing() -> None:
    stranger = used(obj("other-1"), (Spent(serving=10.0), NOW))
    (bill,) = make_bills([stranger, obj("iris-1", "iris")], [obj("small")], PRICES, "month", NOW)
    assert (bill.model, bill.held.total, bill.cost.total) == ("iris", 0.0, 0.0)


def test_replicas_of_all_revisions_are_counted_together() -> None:
    found = replicas_of([obj("iris-1", "iris", actualScale=2, desiredScale=2), obj("iris-2", "iris", desiredScale=1),
                         obj("iris-3", "iris", desiredScale=-1)])  # fmt: skip
    assert found == {("default", "iris"): (2, 3)}
