"""Pod status as the real kubelet writes it."""

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
    read_container,
    recorded_run,
    status_patch,
    terminated,
)
from clusters.embedded.kubelet.process.folders import Run
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, Exit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
POD: Object = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "server", "image": "i"}]},
}


def status_of(container: ContainerState, ending: str = "", pod: Object = POD) -> Object:
    """The status of a Pod with this container."""
    return make_status(pod, container, phase="Running", host_ip="127.0.0.1", now=LATER, ending=ending)


@pytest.mark.parametrize(
    ("end", "code", "signal", "reason"),
    [
        (Exit(code=0), 0, None, "Completed"),
        (Exit(code=1), 1, None, "Error"),
        (Exit(signal=9), 137, 9, "Error"),
        (Exit(signal=15), 143, 15, "Error"),
        (UNKNOWN_EXIT, 137, None, "ContainerStatusUnknown"),
    ],
)
def test_an_exit_is_told_in_the_kubelets_words(end: Exit, code: int, signal: int | None, reason: str) -> None:
    state = terminated(end, started_at=NOW, finished_at=LATER)

    assert (state.exit_code, state.signal, state.reason) == (code, signal, reason)


def test_a_process_ended_for_want_of_memory_says_so() -> None:
    state = terminated(Exit(signal=9), started_at=NOW, finished_at=LATER, out_of_memory=True)

    assert state.reason == "OOMKilled"


def test_a_running_and_ready_container_makes_a_ready_pod() -> None:
    status = status_of(ContainerState(Running(NOW), started=True, ready=True))

    assert condition_of({"status": status}, "Ready") == {
        "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z",
    }  # fmt: skip
    assert status["podIP"] == "127.0.0.1"


def test_a_pod_about_to_end_is_not_ready_and_says_why() -> None:
    status = status_of(ContainerState(Running(NOW), started=True, ready=True), ending="PodDeleting")

    ready = condition_of({"status": status}, "Ready")
    assert ready is not None and (ready["status"], ready["reason"]) == ("False", "PodDeleting")


def test_a_container_that_does_not_run_is_never_ready() -> None:
    status = status_of(ContainerState(Waiting("CrashLoopBackOff"), started=True, ready=True))

    ready = condition_of({"status": status}, "Ready")
    assert ready is not None and (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert not status["containerStatuses"][0]["ready"] and "podIP" not in status


def test_a_second_making_from_the_first_changes_nothing() -> None:
    container = ContainerState(Running(NOW), started=True, ready=True)
    first = status_of(container)

    assert make_status(POD | {"status": first}, container, phase="Running", host_ip="127.0.0.1", now=LATER) == first


def test_a_patch_takes_away_what_the_new_status_does_not_say() -> None:
    failed = make_failed_status(POD, "UnsupportedPodSpec", "no", NOW)
    patch = status_patch(POD | {"status": failed}, status_of(ContainerState()))

    assert patch["metadata"] == {"uid": "u"}
    assert patch["status"]["reason"] is None and patch["status"]["message"] is None


def test_the_annotations_tell_the_process() -> None:
    run = Run(Identity(7, 8), "zygote", {"8080": 20000})
    patch = process_patch(POD, "embedded", run)

    assert patch["spec"] == {"nodeName": "embedded"}
    assert recorded_run(patch) == run
    assert "spec" not in process_patch(POD | {"spec": {"nodeName": "embedded"}}, "embedded", run)


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
def test_a_new_kubelet_reads_what_the_old_one_wrote(
    state: Running | Waiting | Terminated, last: Terminated | None, restarts: int, started: bool, ready: bool
) -> None:
    running = isinstance(state, Running)
    container = ContainerState(state, last, restarts, started and running, ready and running)

    assert read_container(POD | {"status": status_of(container)}) == container


def test_a_pod_without_status_is_a_new_one() -> None:
    assert read_container(POD) == ContainerState(CREATING)
