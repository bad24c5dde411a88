"""The forecast of a Model that is not deployed yet."""

from __future__ import annotations

from typing import Any

import pytest

from serving.cost.forecast import Forecast, make_forecast
from serving.cost.texts import forecast_lines, money, small_money
from serving.types.settings.prices import Prices
from tests.serving.models import VARIANTS, model

PRICES = Prices(cpu=0.03, memory=0.004, currency="EUR")


def forecast(**spec: Any) -> Forecast:
    return make_forecast(model(**spec).spec, PRICES)


def test_bounds_of_replicas_are_bounds_of_the_cost() -> None:
    found = forecast(resources={"cpu": "2", "memory": "4Gi"}, minReplicas=1, maxReplicas=3)
    assert (found.replica, found.least, found.most) == pytest.approx((0.076, 0.076, 0.228))
    assert (found.least_month, found.most_month) == pytest.approx((55.48, 166.44))
    assert (found.idle, found.per_visit) == (None, None)


def test_a_visit_to_a_model_at_zero_costs_what_its_replica_stays_for() -> None:
    found = forecast(resources={"cpu": "2", "memory": "4Gi"}, scaleToZeroAfter="5m")
    assert (found.least, found.idle) == (0.0, 300.0)
    assert found.per_visit == pytest.approx(0.076 / 12)


def test_how_long_a_replica_stays_may_be_the_autoscalers_choice() -> None:
    found = forecast()
    assert (found.idle, found.per_visit) == (None, None)
    assert any("follows its measured starts" in line for line in forecast_lines("iris", found))


def test_variants_add_up() -> None:
    assert forecast(variants=VARIANTS, maxReplicas=1).most > forecast(maxReplicas=1).most


def test_a_model_with_gpus_has_the_costs_of_each_type_with_a_price() -> None:
    prices = Prices(cpu=0.5, gpu={"nvidia.com/gpu": 2.0}, currency="EUR", gpu_types={"NVIDIA-H100": 4.0})
    found = make_forecast(model(resources={"cpu": "1", "gpu": 2}, maxReplicas=3).spec, prices)
    plain = make_forecast(model(resources={"cpu": "1"}).spec, prices)
    assert (found.replica, found.most, dict(found.replica_by_type)) == (4.5, 13.5, {"NVIDIA-H100": 8.5})
    assert "  on GPUs of type NVIDIA-H100: 8.50 EUR an hour for each replica" in list(forecast_lines("chat", found))
    assert plain.replica_by_type == {}


def test_workers_of_a_replica_are_on_gpus_of_the_same_type() -> None:
    prices = Prices(gpu_types={"NVIDIA-H100": 4.0})
    workers = {"count": 2, "resources": {"gpu": 1}}
    found = make_forecast(
        model(modelFormat="vllm", workers=workers, minReplicas=1, containerConcurrency=1).spec, prices
    )
    assert found.replica_by_type == {"NVIDIA-H100": 8.0}


def test_it_is_told_in_two_lines() -> None:
    lines = list(forecast_lines("iris", forecast(resources={"cpu": "2", "memory": "4Gi"}, scaleToZeroAfter="60s")))
    assert lines == [
        "model iris costs from 0.00 to 0.30 EUR an hour (0.00 to 221.92 EUR a month), 0.08 EUR for each replica",
        "  at zero it costs nothing; after its last request a replica stays for 60 s: 0.0013 EUR each time",
    ]


@pytest.mark.parametrize(
    ("amount", "text"), [(0.0, "0.00"), (1234.5, "1234.50"), (0.031, "0.03"), (0.0013, "0.0013"), (1e-5, "1e-05")]
)
def test_small_amounts_keep_their_digits(amount: float, text: str) -> None:
    assert money(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "0.00"), (1234.5, "1234.50"), (1.0, "1.00"), (0.25, "0.25"), (0.0123, "0.012"), (0.00041, "0.00041"),
     (3e-7, "0.00000030"), (1e-30, "0.000000000000")],
)  # fmt: skip
def test_a_small_amount_keeps_two_digits(amount: float, text: str) -> None:
    assert small_money(amount) == text
