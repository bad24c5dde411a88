"""`spec.rollout`: defaults, faults, and the command in an annotation."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.errors import Invalid
from serving.types.annotations import ANNOTATION_ROLLOUT
from serving.types.rollout import Command, Judge, MetricRule, Rollout, parse_command
from serving.types.validation import read_model, validate_model
from tests.serving.models import model_object


def read(**fields: Any) -> Rollout | None:
    return read_model(model_object(rollout=fields)).spec.rollout


def refused(fields: Any) -> dict[str, str]:
    return {error.path: error.message for error in validate_model(None, model_object(rollout=fields))}


def commanded(text: str) -> Any:
    obj = model_object()
    obj["metadata"]["annotations"] = {ANNOTATION_ROLLOUT: text}
    return obj


def test_a_model_without_a_rollout_has_none_and_an_empty_one_has_every_default() -> None:
    assert read_model(model_object()).spec.rollout is None
    assert read() == Rollout()
    made = Rollout()
    assert (made.steps, made.step_duration, made.progress_deadline, made.max_surge) == ((10, 50, 100), 60.0, 600.0, 1)
    assert (made.on_insufficient_traffic, made.keep_warm) == ("hold", 600.0)
    assert made.judge == Judge(interval=10.0, max_error_rate=0.01, max_latency_ratio=1.25, quantile=0.95)


def test_every_field_is_read() -> None:
    judge = {"interval": "5s", "maxErrorRate": 0, "maxLatencyRatio": 2, "quantile": 0.99}
    metrics = [{"name": "drift", "query": "max(drift)", "max": 0.5}]
    found = read(
        steps=[1, 100], stepDuration="2m", progressDeadline="1h", maxSurge=0, keepWarm="0s",
        onInsufficientTraffic="rollback", judge={**judge, "metrics": metrics},
    )  # fmt: skip
    wanted = Judge(5.0, 0.0, 2.0, 0.99, (MetricRule("drift", "max(drift)", 0.5),))
    assert found == Rollout((1, 100), 120.0, 3600.0, 0, wanted, "rollback", 0.0)


@pytest.mark.parametrize(
    "steps", [[], [10, 50], [50, 10, 100], [10, 10, 100], "10", [0, 100], [True, 100], [10.0, 100]]
)
def test_steps_that_do_not_ascend_to_a_hundred_are_refused(steps: Any) -> None:
    assert refused({"steps": steps})


@pytest.mark.parametrize("name", Rollout.LATER)
def test_what_needs_a_gateway_of_our_own_is_refused_by_name(name: str) -> None:
    assert refused({name: {}}) == {f"spec.rollout.{name}": f"not supported yet: {Rollout.LATER[name].about}"}


def test_all_faults_of_a_rollout_are_told_at_once() -> None:
    found = refused({"stepDuration": "0s", "judge": {"quantile": 1, "intervall": "5s"}, "maxSurge": -1})
    assert set(found) == {
        "spec.rollout.stepDuration", "spec.rollout.judge.quantile", "spec.rollout.judge.intervall",
        "spec.rollout.maxSurge",
    }  # fmt: skip
    assert found["spec.rollout.judge.intervall"] == "unknown field; did you mean interval?"


def test_a_command_names_its_revision() -> None:
    assert parse_command("pause@magika-00002") == Command("pause", "magika-00002")
    assert read_model(commanded("promote@magika-00002")).command == Command("promote", "magika-00002")
    assert read_model(model_object()).command is None


@pytest.mark.parametrize("text", ["pause", "pause@", "@magika-00002", "stop@magika-00002", "Pause@magika-00002"])
def test_a_command_that_nobody_knows_is_refused(text: str) -> None:
    [fault] = validate_model(model_object(), commanded(text))
    assert fault.path == f"metadata.annotations.{ANNOTATION_ROLLOUT}"
    with pytest.raises(Invalid, match="pause@REVISION"):
        read_model(commanded(text))


def test_a_status_can_be_written_whatever_command_stands_there() -> None:
    assert not validate_model(commanded("stop"), {**commanded("stop"), "status": {}})
