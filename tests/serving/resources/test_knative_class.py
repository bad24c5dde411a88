"""Scaling by Knative's own class, while ours is not alive on Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from serving.apis.settings import KNATIVE_CLASS, KnativeSettings, Settings
from serving.resources.knative import make_templates
from serving.resources.knative_class import scaling_annotations
from tests.serving.models import model

SETTINGS = Settings(knative=KnativeSettings(autoscaler_class=KNATIVE_CLASS))
PREFIX = "autoscaling.knative.dev/"


def said(**spec: Any) -> dict[str, str]:
    """The annotations without their prefix."""
    found = scaling_annotations(model(**spec).spec, KNATIVE_CLASS)
    return {key.removeprefix(PREFIX): value for key, value in found.items()}


def test_our_class_puts_no_scaling_on_the_template() -> None:
    [template] = make_templates(model(maxReplicas=9), Settings()).values()

    assert set(template["metadata"]["annotations"]) & {PREFIX + "max-scale", PREFIX + "target"} == set()
    assert make_templates(model(), Settings()) == make_templates(model(maxReplicas=9), Settings())


def test_knatives_class_gets_all_that_a_model_says_of_scaling() -> None:
    [template] = make_templates(model(minReplicas=1, maxReplicas=3, scaleTarget=2.5), SETTINGS).values()

    annotations = template["metadata"]["annotations"]
    assert annotations[PREFIX + "class"] == KNATIVE_CLASS
    assert annotations[PREFIX + "min-scale"] == "1"
    assert annotations[PREFIX + "max-scale"] == "3"
    assert annotations[PREFIX + "target"] == "2.5"
    assert annotations[PREFIX + "target-utilization-percentage"] == "70"
    assert annotations[PREFIX + "metric"] == "concurrency"
    assert annotations[PREFIX + "scale-to-zero-pod-retention-period"] == "0s"


@pytest.mark.parametrize(("after", "window"), [("1s", "6s"), ("6s", "6s"), ("90s", "90s"), ("2h", "3600s")])
def test_the_idle_time_is_the_window_within_knatives_bounds(after: str, window: str) -> None:
    assert said(scaleToZeroAfter=after)["window"] == window


def test_a_hard_limit_bounds_the_target() -> None:
    assert said(containerConcurrency=2, scaleTarget=8)["target"] == "2"
