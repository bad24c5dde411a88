"""The scaling policy of a PodAutoscaler."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.scaling import table
from autoscaler.schedules import Schedule
from autoscaler.types import (
    AUTO,
    CLASS,
    DECISIONS_ANNOTATION,
    POLICY_ANNOTATION,
    InvalidPolicy,
    Policy,
    effective_policy,
    is_ours,
    read_entries,
)

KNATIVE = "autoscaling.knative.dev/"

policies = st.builds(
    Policy,
    min_replicas=st.integers(0, 10),
    max_replicas=st.integers(10, 1000),
    scale_target=st.floats(0.01, 1e6),
    target_utilization=st.floats(0.01, 1),
    scale_to_zero_after=st.just(AUTO) | st.floats(1, 604_800),
    hold_queue=st.integers(0, 10**6),
    initial_scale=st.integers(0, 1000),
    activation_scale=st.integers(1, 1000),
    scale_down_delay=st.floats(0, 3600),
    stable_window=st.floats(6, 3600),
    target_burst_capacity=st.just(-1.0) | st.floats(0, 1e9),
    latency_objective=st.just(0.0) | st.floats(0.001, 3600),
    schedules=st.lists(
        st.builds(
            Schedule,
            cron=st.sampled_from(["0 8 * * 1-5", "*/15 * * * *", "0 0 L * *"]),
            duration=st.floats(1, 604_800),
            min_replicas=st.integers(1, 1000),
            time_zone=st.sampled_from(["UTC", "Europe/Berlin"]),
        ),
        max_size=3,
    ).map(tuple),
)


def refused(annotations: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidPolicy) as error:
        Policy.from_annotations(annotations)
    return [cause.path for cause in error.value.causes]


@given(policies)
def test_a_policy_comes_back_from_its_annotation(policy: Policy) -> None:
    assert Policy.from_annotations({POLICY_ANNOTATION: policy.to_json()}) == policy


def test_the_annotation_is_the_one_that_the_design_shows() -> None:
    assert json.loads(Policy().to_json()) == {
        "minReplicas": 0,
        "maxReplicas": 4,
        "scaleTarget": 4,
        "targetUtilization": 0.7,
        "scaleToZeroAfter": -1,
        "holdQueue": 1000,
    }


def test_schedules_and_an_objective_stand_in_the_annotation_where_there_are_any() -> None:
    policy = Policy(latency_objective=0.5, schedules=(Schedule("0 8 * * 1-5", 36_000.0, 2, "Europe/Berlin"),))
    said = json.loads(policy.to_json())
    assert said["latencyObjective"] == 0.5
    assert said["schedules"] == [
        {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "duration": 36_000, "minReplicas": 2}
    ]


def test_auto_is_one_number_for_the_policy_and_for_the_arrays() -> None:
    assert AUTO == table.AUTO


def test_a_plain_knative_service_has_knatives_annotations_and_defaults() -> None:
    assert Policy.from_annotations({}) == Policy(max_replicas=1000, scale_target=100.0, scale_to_zero_after=60.0)
    annotations = {
        "min-scale": "2",
        "max-scale": "0",
        "target": "7.5",
        "target-utilization-percentage": "80",
        "initial-scale": "3",
        "activation-scale": "2",
        "scale-down-delay": "1m30s",
        "window": "2m",
        "target-burst-capacity": "-1",
        "metric": "concurrency",
    }
    policy = Policy.from_annotations({KNATIVE + key: value for key, value in annotations.items()})
    assert policy == Policy(2, 1000, 7.5, 0.8, 120.0, 1000, 3, 2, 90.0, 120.0, -1.0)


def test_the_older_spelling_of_knatives_keys_is_read_too() -> None:
    assert Policy.from_annotations({KNATIVE + "minScale": "1"}).min_replicas == 1


def test_a_retention_period_keeps_the_last_pod_so_much_longer_than_the_window() -> None:
    kept = {KNATIVE + "scale-to-zero-pod-retention-period": "5m", KNATIVE + "window": "30s"}
    assert Policy.from_annotations(kept).scale_to_zero_after == 330.0


def test_a_models_policy_speaks_instead_of_the_bounds_but_not_of_the_initial_scale() -> None:
    annotations = {POLICY_ANNOTATION: Policy().to_json(), KNATIVE + "min-scale": "9", KNATIVE + "initial-scale": "2"}
    policy = Policy.from_annotations(annotations)
    assert (policy.min_replicas, policy.initial_scale) == (0, 2)


def test_all_faults_are_named_at_once() -> None:
    said = {"minReplicas": -1, "maxReplicas": 1.5, "scaleTarget": "4", "targetUtilization": True, "speed": 3}
    assert refused({POLICY_ANNOTATION: json.dumps(said)}) == [
        "maxReplicas",
        "scaleTarget",
        "targetUtilization",
        "speed",
    ]
    assert refused({POLICY_ANNOTATION: '{"minReplicas": 5, "maxReplicas": 2, "scaleToZeroAfter": 0.5}'}) == [
        "minReplicas",
        "scaleToZeroAfter",
    ]
    assert refused({POLICY_ANNOTATION: '{"scaleToZeroAfter": -2, "latencyObjective": 0.0009, "holdQueue": 1e16}'}) == [
        "holdQueue",
    ]
    assert refused({POLICY_ANNOTATION: '{"scaleToZeroAfter": -2, "latencyObjective": 0.0009}'}) == [
        "scaleToZeroAfter",
        "latencyObjective",
    ]
    assert refused(
        {POLICY_ANNOTATION: '{"schedules": [{"cron": "x", "duration": 0, "minReplicas": 1}], "speed": 1}'}
    ) == [
        "schedules[0].cron",
        "schedules[0].duration",
        "speed",
    ]
    assert refused({KNATIVE + "min-scale": "many", KNATIVE + "window": "60", KNATIVE + "metric": "rps"}) == [
        KNATIVE + "min-scale",
        KNATIVE + "metric",
        KNATIVE + "window",
    ]


def test_the_empty_metric_that_knatives_webhook_writes_for_a_foreign_class_says_nothing() -> None:
    assert Policy.from_annotations({KNATIVE + "metric": ""}) == Policy.from_annotations({})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"scaleTarget": NaN}', '{"scaleTarget": 1e999}', "[" * 100_000])
def test_a_policy_that_is_no_policy_is_refused(text: str) -> None:
    assert refused({POLICY_ANNOTATION: text})


@pytest.mark.parametrize("text", ["", "{", "{}", "3", '["x"]', "[" * 100_000])
def test_notes_that_are_not_ours_are_none(text: str) -> None:
    assert read_entries({"metadata": {"annotations": {DECISIONS_ANNOTATION: text}}}, DECISIONS_ANNOTATION) == []


def test_only_our_class_is_ours() -> None:
    assert is_ours({"metadata": {"annotations": {"autoscaling.knative.dev/class": CLASS}}})
    assert not is_ours({"metadata": {}})


def test_readers_that_have_to_go_on_get_the_default_for_a_policy_that_cannot_be_followed() -> None:
    assert effective_policy({"metadata": {"annotations": {POLICY_ANNOTATION: "{"}}}) == Policy()
    said = {"metadata": {"annotations": {POLICY_ANNOTATION: Policy(min_replicas=3).to_json()}}}
    assert effective_policy(said) == Policy(min_replicas=3)
