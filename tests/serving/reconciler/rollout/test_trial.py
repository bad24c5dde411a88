"""Versions whose replicas are billed as canary."""

from __future__ import annotations

from typing import Any

import pytest

from serving.reconciler.rollout.split import Situation, is_canary
from serving.reconciler.rollout.versions import Version
from tests.serving.models import model


def version(revision: str) -> Version:
    return Version(revision, {"m": revision}, {"m": ""}, revision, True, True, None, "", "", "")


OLD, STABLE, NEW = (version(f"m-{number}") for number in (1, 2, 3))
SITUATION = Situation(versions=(OLD, STABLE, NEW), stable="m-2")


@pytest.mark.parametrize(
    ("spec", "revision", "expected"),
    [
        ({"rollout": {}}, "m-3", True),
        ({"canaryTrafficPercent": 10}, "m-3", True),
        ({"traffic": [{"revision": "m-2", "percent": 50}, {"revision": "m-3", "percent": 50}]}, "m-3", True),
        ({"rollout": {}}, "m-2", False),  # has the traffic
        ({"rollout": {}}, "m-1", False),  # had it before
        ({"rollout": {}}, "m-4", False),  # not a version that is known
        ({}, "m-3", False),  # a plain deploy: it takes over
    ],
)
def test_a_version_newer_than_the_stable_one_is_on_trial_where_somebody_splits_the_traffic(
    spec: Any, revision: str, expected: bool
) -> None:
    assert is_canary(model(**spec).spec, SITUATION, revision) is expected


def test_the_first_version_is_on_no_trial() -> None:
    assert not is_canary(model(rollout={}).spec, Situation(versions=(NEW,)), "m-3")
