"""Which states of a Model `rollout` yields, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import Object
from knodel.operations.rollouts import _starts
from knodel.results.reading import rollout_from

READY = {"type": "ConfigurationsReady", "status": "True"}
STARTING = {"type": "ConfigurationsReady", "status": "Unknown"}
FAILED = {"type": "ConfigurationsReady", "status": "False"}


def model(
    spec: dict[str, Any], condition: Object = READY, *, observed: int = 2, candidate: str = "", share: int = 0
) -> Object:
    """A Model at generation 2 whose newest revision is m-2, with `share` percent of the traffic."""
    return {
        "metadata": {"name": "m", "namespace": "default", "generation": 2},
        "spec": spec,
        "status": {
            "observedGeneration": observed,
            "latestCreatedRevision": "m-2",
            "conditions": [condition],
            "traffic": [{"revision": "m-1", "percent": 100 - share}, {"revision": "m-2", "percent": share}],
            **({"rollout": {"phase": "Progressing", "candidate": candidate}} if candidate else {}),
        },
    }


@pytest.mark.parametrize(("found", "starts"), [
    (model({"rollout": {}}, observed=1), True),
    (model({"rollout": {}}, STARTING), True),
    (model({"rollout": {}}, STARTING, candidate="m-1"), True),
    (model({"rollout": {}}), True),
    (model({"rollout": {}}, candidate="m-2"), False),
    (model({"rollout": {}}, FAILED), False),
    (model({"rollout": {}}, share=100), False),
    (model({"rollout": {}, "traffic": [{"revision": "m-1", "percent": 100}]}), False),
    (model({"rollout": {}, "canaryTrafficPercent": 10}), False),
    (model({}), False),
    (model({}, candidate="m-1"), False),
])  # fmt: skip
def test_a_rollout_that_has_yet_to_begin_is_waited_for(found: Object, starts: bool) -> None:
    assert _starts(found, rollout_from(found)) is starts


def test_a_step_has_its_number_and_the_reasons_of_the_judge() -> None:
    found = model({"rollout": {"steps": [10, 50, 100]}}, candidate="m-2")
    found["status"]["rollout"] |= {
        "step": 1, "percent": 50, "verdict": {"decision": "hold", "reasons": ["few requests"], "numbers": {"n": 3}},
    }  # fmt: skip
    step = rollout_from(found)
    assert step is not None
    assert (step.number, step.count, step.percent, step.decision, step.reasons, step.numbers, step.ended) == (
        2, 3, 50, "hold", ("few requests",), {"n": 3}, False,
    )  # fmt: skip
    found["status"]["rollout"]["phase"] = "RolledBack"
    ended = rollout_from(found)
    assert ended is not None and ended.ended and not ended.promoted
