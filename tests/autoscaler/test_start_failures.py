"""Causes of failed starts: the states of Pods that are reported, and those that are not yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.reconciler.start_failures import (
    LASTING,
    LONGEST,
    NODE_WITHIN,
    find_start_failure,
    seconds_to_unschedulable,
)
from clusters.base.objects import Object, timestamp

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> str:
    """Return a time so long before `NOW`."""
    return timestamp(NOW - timedelta(seconds=seconds))


def ended(began: float, end: float) -> Object:
    """Return the last state of a container that ran from so many seconds ago until so many."""
    run = {"startedAt": ago(began), "finishedAt": ago(end)}
    return {"terminated": {"exitCode": 1, "message": "cannot load the model\n", **run}}


def restarted(times: int, since: float, last: Object, state: str = "running") -> Object:
    """Return a container that was restarted so often, the last time so many seconds ago, and is not ready."""
    now = {state: {"startedAt": ago(since)}}
    return {"name": "server", "ready": False, "restartCount": times, "state": now, "lastState": last}


def pod(*containers: Object, homeless: float | None = None, phase: str = "Running", **metadata: Any) -> Object:
    """Return a Pod with these container statuses, without a node for so many seconds."""
    condition = {"type": "PodScheduled", "status": "True"}
    if homeless is not None:
        since = timestamp(NOW - timedelta(seconds=homeless))
        said = {"status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
        condition |= {**said, "lastTransitionTime": since}
    status = {"phase": phase, "conditions": [condition], "containerStatuses": list(containers)}
    return {"metadata": {"name": "app-1", "namespace": "default", **metadata}, "status": status}


def waiting(reason: str, restarts: int = 0, **fields: Any) -> Object:
    """Return a container that waits for this reason."""
    state = {"waiting": {"reason": reason, "message": f"{reason} it is"}}
    return {"name": "server", "ready": False, "restartCount": restarts, "state": state, **fields}


ENDED = ended(30, 25)
WEEKS = 2_000_000.0
RUNNING = {"name": "server", "ready": False, "restartCount": 0, "state": {"running": {}}}
READY = {"name": "queue-proxy", "ready": True, "restartCount": 3, "state": {"running": {}}, "lastState": ENDED}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pod(), id="nothing is known of it"),
        pytest.param(pod(waiting("ContainerCreating")), id="it is being made"),
        pytest.param(pod(RUNNING, READY), id="it is not ready yet"),
        pytest.param(pod(restarted(1, 5, ENDED)), id="it ended once"),
        pytest.param(pod(restarted(2, WEEKS, ended(WEEKS + 9, WEEKS + 5))), id="it runs since long, not ready now"),
        pytest.param(pod(restarted(3, 5, ended(WEEKS, 6))), id="it ran for long and ended once"),
        pytest.param(
            pod(restarted(2, 5, {"terminated": {"exitCode": 137, "startedAt": None}})), id="nobody knows when it ran"
        ),
        pytest.param(pod(restarted(2, 5, ENDED), phase="Failed"), id="it was evicted"),
        pytest.param(pod(waiting("CrashLoopBackOff", 2, lastState=ENDED), phase="Succeeded"), id="it is over"),
        pytest.param(pod(homeless=NODE_WITHIN / 2), id="no node for a moment"),
        pytest.param(pod(waiting("ImagePullBackOff"), deletionTimestamp="2026-01-01T00:00:00Z"), id="it goes"),
    ],
)
def test_what_may_pass_by_itself_is_not_told(found: Object) -> None:
    assert find_start_failure([found], NOW) == ""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (pod(homeless=NODE_WITHIN), "Unschedulable: 0/1 nodes are available"),
        (pod(waiting("ImagePullBackOff")), "ImagePullBackOff: ImagePullBackOff it is"),
        (
            pod(READY, waiting("CrashLoopBackOff", 1, lastState=ENDED)),
            "CrashLoopBackOff: exit code 1, cannot load the model",
        ),
        (
            pod(restarted(2, LASTING - 1, ENDED)),  # it runs between two crashes
            "CrashLoopBackOff: exit code 1, cannot load the model",
        ),
        (
            pod(restarted(2, 5, ENDED, "terminated")),  # it has just ended again
            "CrashLoopBackOff: exit code 1, cannot load the model",
        ),
        (
            pod(waiting("CrashLoopBackOff", 2, lastState={"terminated": {"exitCode": 137}})),
            "CrashLoopBackOff: exit code 137",
        ),
    ],
)
def test_what_keeps_a_replica_from_starting_is_told_with_its_message(found: Object, told: str) -> None:
    assert find_start_failure([pod(RUNNING), found], NOW) == told


def test_of_two_replicas_with_troubles_the_same_one_is_told_whichever_was_seen_last() -> None:
    first, second = pod(waiting("ImagePullBackOff"), name="a"), pod(homeless=NODE_WITHIN, name="b")
    assert find_start_failure([first, second], NOW) == find_start_failure([second, first], NOW)


def test_a_long_message_is_cut() -> None:
    container = waiting("ImagePullBackOff", state={"waiting": {"reason": "ImagePullBackOff", "message": "x" * 10_000}})
    assert len(find_start_failure([pod(container)], NOW)) == LONGEST


def test_a_pod_without_a_node_is_looked_at_again_when_it_has_been_so_for_too_long() -> None:
    assert seconds_to_unschedulable([pod(homeless=NODE_WITHIN - 2), pod(homeless=NODE_WITHIN - 3)], NOW) == 2.0
    assert seconds_to_unschedulable([pod(homeless=NODE_WITHIN), pod(RUNNING)], NOW) is None
    assert seconds_to_unschedulable([pod(homeless=NODE_WITHIN - 2, phase="Failed")], NOW) is None


def test_a_replica_that_ends_because_its_gpu_is_lost_has_failed() -> None:
    found = pod(RUNNING, deletionTimestamp=ago(1))
    found["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "GPULost", "message": "GPU-0 is lost"}
    )
    assert find_start_failure([found], NOW) == "GPULost: GPU-0 is lost"
    other = pod(waiting("ErrImagePull"), name="app-2")
    assert find_start_failure([found, other], NOW).startswith("ErrImagePull")
