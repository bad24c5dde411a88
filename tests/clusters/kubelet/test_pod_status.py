"""The status of Pods, as the kubelet of Kubernetes writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.identity import Identity
from clusters.base.objects import Object, condition_of
from clusters.embedded.kubelet.pod_status import (
    CREATING,
    ContainerState,
    Running,
    Terminated,
    Waiting,
    make_failed_status,
    make_status,
    process_patch,
    read_container_record,
    read_container_state,
    status_patch,
    terminated_state,
)
from clusters.embedded.kubelet.process.folders import ContainerRecord
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, ExitStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
POD: Object = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "server", "image": "i"}]},
}


def status_of(container: ContainerState, termination_reason: str = "", pod: Object = POD) -> Object:
    """Return the status of a Pod with this container."""
    return make_status(
        pod,
        container,
        phase="Running",
        host_ip="127.0.0.1",
        now=LATER,
        termination_reason=termination_reason,
    )


@pytest.mark.parametrize(
    ("end", "code", "signal", "reason"),
    [
        (ExitStatus(code=0), 0, None, "Completed"),
        (ExitStatus(code=1), 1, None, "Error"),
        (ExitStatus(signal=9), 137, 9, "Error"),
        (ExitStatus(signal=15), 143, 15, "Error"),
        (UNKNOWN_EXIT, 137, None, "ContainerStatusUnknown"),
    ],
)
def test_an_exit_status_has_the_reason_of_kubernetes(
    end: ExitStatus, code: int, signal: int | None, reason: str
) -> None:
    state = terminated_state(end, started_at=NOW, finished_at=LATER)

    assert (state.exit_code, state.signal, state.reason) == (code, signal, reason)


def test_a_process_killed_for_memory_has_the_reason_oomkilled() -> None:
    state = terminated_state(ExitStatus(signal=9), started_at=NOW, finished_at=LATER, out_of_memory=True)

    assert state.reason == "OOMKilled"


def test_a_pod_with_a_running_and_ready_container_is_ready() -> None:
    status = status_of(ContainerState(Running(NOW), started=True, ready=True))

    assert condition_of({"status": status}, "Ready") == {
        "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z",
    }  # fmt: skip
    assert status["podIP"] == "127.0.0.1"


def test_a_pod_in_termination_is_not_ready_with_the_reason() -> None:
    status = status_of(ContainerState(Running(NOW), started=True, ready=True), termination_reason="PodDeleting")

    ready = condition_of({"status": status}, "Ready")
    assert ready is not None and (ready["status"], ready["reason"]) == ("False", "PodDeleting")


def test_a_container_that_is_not_running_is_never_ready() -> None:
    status = status_of(ContainerState(Waiting("CrashLoopBackOff"), started=True, ready=True))

    ready = condition_of({"status": status}, "Ready")
    assert ready is not None and (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert not status["containerStatuses"][0]["ready"] and "podIP" not in status


def test_making_a_status_again_changes_nothing() -> None:
    container = ContainerState(Running(NOW), started=True, ready=True)
    first = status_of(container)

    assert make_status(POD | {"status": first}, container, phase="Running", host_ip="127.0.0.1", now=LATER) == first


def test_a_patch_removes_fields_that_the_new_status_does_not_have() -> None:
    failed = make_failed_status(POD, "UnsupportedPodSpec", "no", NOW)
    patch = status_patch(POD | {"status": failed}, status_of(ContainerState()))

    assert patch["metadata"] == {"uid": "u"}
    assert patch["status"]["reason"] is None and patch["status"]["message"] is None


def test_the_annotations_record_the_process() -> None:
    record = ContainerRecord(Identity(7, 8), "zygote", {"8080": 20000})
    patch = process_patch(POD, "embedded", record)

    assert patch["spec"] == {"nodeName": "embedded"}
    assert read_container_record(patch) == record
    assert "spec" not in process_patch(POD | {"spec": {"nodeName": "embedded"}}, "embedded", record)


times = st.integers(0, 10**6).map(lambda seconds: NOW + timedelta(seconds=seconds))
ends = st.builds(
    Terminated,
    exit_code=st.integers(0, 255),
    reason=st.sampled_from(["Error", "Completed", "OOMKilled"]),
    started_at=times,
    finished_at=times,
    signal=st.none() | st.integers(1, 31),
    message=st.text(max_size=20),
)
states = st.one_of(
    st.builds(Running, times), st.builds(Waiting, st.sampled_from(["A", "B"]), st.text(max_size=9)), ends
)


@given(states, st.none() | ends, st.integers(0, 9), st.booleans(), st.booleans())
def test_a_container_state_is_read_as_it_was_written(
    state: Running | Waiting | Terminated, last: Terminated | None, restarts: int, started: bool, ready: bool
) -> None:
    running = isinstance(state, Running)
    container = ContainerState(state, last, restarts, started and running, ready and running)

    assert read_container_state(POD | {"status": status_of(container)}) == container


def test_a_container_without_status_is_being_created() -> None:
    assert read_container_state(POD) == ContainerState(CREATING)
