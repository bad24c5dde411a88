"""The Pod of a worker, and what is read of Pods."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import Object, labels_of
from clusters.base.pod_queues import VOLCANO_QUEUE
from serving.groups.plan import Leader, Phase
from serving.groups.pods import leader_of, make_pod_group, make_worker, worker_of, workers_of
from serving.types.resources import Resources
from serving.types.workers import Gang, Workers
from tests.serving.groups.pods import ENDED, LEADER, READY, UNSCHEDULABLE, leader_pod, leader_status

SPEC = Workers(2, Resources("2", "4Gi", 1))


def leader(**more: Any) -> Object:
    made = leader_pod(**more)
    made["metadata"]["uid"] = "u7"
    return {**made, "status": leader_status(restarts=3)}


def worker(spec: Workers = SPEC, rank: int = 2, **more: Any) -> Object:
    pod = leader(**more)
    return make_worker(pod, leader_of(pod), spec, rank)


def test_a_leader_has_the_workers_of_its_own_revision() -> None:
    assert workers_of(leader()) == SPEC
    assert leader_of(leader()) == Leader(LEADER, "10.0.0.7", 3, ending=False)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}},
        {"labels": {"knodel.dev/group-role": "leader"}},
        {"labels": {"knodel.dev/group-role": "worker", "serving.knative.dev/revision": "large-00001"}},
        {"annotations": {"knodel.dev/workers": "many"}},
    ],
)
def test_no_other_pod_is_a_leader(change: dict[str, Any]) -> None:
    pod = leader()
    pod["metadata"] |= change
    assert workers_of(pod) is None


@pytest.mark.parametrize(
    ("state", "before", "crashed"),
    [
        ({"running": {}}, {"terminated": {}}, False),
        ({"waiting": {"reason": "ContainerCreating"}}, {}, False),
        ({"terminated": {"exitCode": 137}}, {}, True),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {}}, True),
    ],
)
def test_a_leader_whose_server_waits_to_start_again_has_crashed(state: Object, before: Object, crashed: bool) -> None:
    server = {"name": "server", "state": state, "lastState": before}
    found = leader_of({**leader_pod(), "status": {"phase": "Running", "containerStatuses": [server]}})
    assert (found.crashed, found.ended, found.ending) == (crashed, False, False)


def test_an_evicted_leader_has_ended() -> None:
    found = leader_of({**leader_pod(), "status": leader_status(phase="Failed")})
    assert (found.ended, found.ending) == (True, False)


def test_a_worker_runs_its_leaders_command_with_resources_of_its_own() -> None:
    pod = leader()
    [server, _], [container] = pod["spec"]["containers"], worker()["spec"]["containers"]
    assert container["image"] == server["image"] and container["securityContext"] == server["securityContext"]
    assert container["args"] == [*server["args"], "--cpu", "2"]
    amounts = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["env"] == [
        *server["env"],
        {"name": "KNODEL_LEADER", "value": "10.0.0.7"},
        {"name": "KNODEL_RANK", "value": "2"},
    ]
    assert not {"ports", "readinessProbe", "livenessProbe"} & container.keys()


def test_a_worker_has_the_leaders_volumes_but_not_its_sidecars() -> None:
    made = worker()
    mounted = {mount["name"] for mount in made["spec"]["containers"][0]["volumeMounts"]}
    assert {one["name"] for one in made["spec"]["volumes"]} == mounted
    assert mounted == {"scratch", "credentials", "digests", "group", "shared-memory"}


def test_knative_does_not_count_a_worker() -> None:
    assert labels_of(worker()) == {
        "knodel.dev/group-role": "worker", "knodel.dev/group": "u7", "knodel.dev/group-rank": "2",
    }  # fmt: skip


def test_a_worker_goes_with_its_leader_and_never_restarts() -> None:
    made = worker()
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", LEADER, "u7")
    assert owner["controller"] and not owner["blockOwnerDeletion"]
    assert made["spec"]["restartPolicy"] == "Never"


def test_a_worker_may_go_where_its_leader_may() -> None:
    places: dict[str, Any] = {"nodeSelector": {"pool": "a"}, "tolerations": [{"operator": "Exists"}]}
    assert places.items() <= worker(**places)["spec"].items()


def test_volcano_gets_a_group_of_the_workers() -> None:
    spec = Workers(2, SPEC.resources, gang=Gang("volcano", "research"))
    made, group = worker(spec), make_pod_group(leader(), spec) or {}
    assert made["spec"]["schedulerName"] == "volcano"
    assert made["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"] == LEADER
    assert group["spec"] == {"minMember": 2, "queue": "research"}
    assert make_pod_group(leader(), SPEC) is None


def test_a_worker_has_the_queue_of_its_leader() -> None:
    pod = leader(schedulerName="volcano")
    pod["metadata"]["annotations"][VOLCANO_QUEUE] = "vision"
    made = make_worker(pod, leader_of(pod), SPEC, 1)
    assert made["spec"]["schedulerName"] == "volcano"
    assert made["metadata"]["annotations"][VOLCANO_QUEUE] == "vision"


def test_kueue_gets_its_labels() -> None:
    spec = Workers(2, SPEC.resources, gang=Gang("kueue", "research"))
    made = worker(spec)["metadata"]
    assert made["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert made["labels"]["kueue.x-k8s.io/pod-group-name"] == "u7-3"
    assert made["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    assert make_pod_group(leader(), spec) is None


def waiting(reason: str) -> Object:
    return {"phase": "Pending", "containerStatuses": [{"name": "server", "state": {"waiting": {"reason": reason}}}]}


EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}


@pytest.mark.parametrize(
    ("status", "phase", "cause"),
    [
        ({}, Phase.WAITING, ("", "")),
        (waiting("ContainerCreating"), Phase.WAITING, ("", "")),
        (waiting("ErrImagePull"), Phase.WAITING, ("ErrImagePull", "")),
        (UNSCHEDULABLE, Phase.WAITING, ("Unschedulable", "0/1 nodes are available")),
        ({"phase": "Running"}, Phase.RUNNING, ("", "")),
        (READY, Phase.READY, ("", "")),
        (ENDED, Phase.ENDED, ("exit code 137", "out of memory")),
        (EVICTED, Phase.ENDED, ("Evicted", "low on memory")),
    ],
)
def test_a_worker_is_what_its_status_says(status: Object, phase: Phase, cause: tuple[str, str]) -> None:
    found = worker_of({**worker(), "status": status})
    assert (found.rank, found.start, found.phase, (found.reason, found.message)) == (2, 3, phase, cause)


def test_a_worker_that_is_being_deleted_is_not_ready() -> None:
    pod = {**worker(), "status": READY}
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert worker_of(pod).phase is Phase.DELETED
