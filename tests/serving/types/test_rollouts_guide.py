"""The Model in the guide of rollouts is valid, and has the defaults."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import yaml

from serving.types.rollout import Judge, Rollout
from serving.types.tables import table_of
from serving.types.validation import read_model
from tests.serving.models import model_object

GUIDE = (Path(__file__).parents[3] / "docs" / "rollouts.md").read_text()


def test_the_guide_shows_every_field_with_its_default() -> None:
    [block] = [one for one in GUIDE.split("\n\n") if one.startswith("    apiVersion:")]
    spec = yaml.safe_load(textwrap.dedent(block))["spec"]
    model = read_model({**model_object("iris"), "spec": spec})

    rollout = model.spec.rollout
    assert rollout is not None and [one.name for one in rollout.judge.metrics] == ["drift"]
    assert replace(rollout, judge=replace(rollout.judge, metrics=())) == Rollout()
    shown = {*spec["rollout"], *spec["rollout"]["judge"]}
    assert shown == {*table_of(Rollout), *table_of(Judge)}
