"""Parts of the kubelet: limits, ports, commands, environment, back-off, records."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.identity import Identity
from clusters.base.objects import ANNOTATION_PORTS, Object
from clusters.embedded.kubelet.container import HEALTHY_AFTER, RestartBackoff
from clusters.embedded.kubelet.log_rotation import rotate
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.embedded.kubelet.process.environment import declared_environment, node_environment
from clusters.embedded.kubelet.process.errors import (
    CreateContainerConfigError,
    ImageNotFound,
    PortsExhausted,
    RunContainerError,
)
from clusters.embedded.kubelet.process.folders import (
    MAX_TERMINATION_MESSAGE,
    ContainerRecord,
    Folders,
    log_path,
    write_json,
)
from clusters.embedded.kubelet.process.images import ContainerCommand, ContainerImage, command_of, expand
from clusters.embedded.kubelet.process.limits import DATA_HEADROOM, limits_of
from clusters.embedded.kubelet.process.mounts import update_config_map
from clusters.embedded.kubelet.process.process import Process
from clusters.embedded.kubelet.process.runtime import ContainerConfig, ExecRuntime
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready

HOST = "127.0.0.1"
POD: Object = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "server", "ports": [{"containerPort": 8000}]}]},
}


def test_a_changed_config_map_replaces_the_files_of_its_volumes_only(tmp_path: Path) -> None:
    volumes = [{"name": "a", "configMap": {"name": "m"}}, {"name": "b", "secret": {"secretName": "m"}}, {"name": "c"}]
    pod = {**POD, "spec": {**POD["spec"], "volumes": [*volumes, {"name": "later", "configMap": {"name": "m"}}]}}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    (tmp_path / "a" / "key").write_text("1")
    held = (tmp_path / "a" / "key").open()
    update_config_map(pod, tmp_path, "m", {"key": b"2", "../x": b"no"})
    update_config_map(pod, tmp_path, "other", {"key": b"3"})
    with held:
        assert held.read() == "1"  # a reader has one content or the other
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"a/key": "2", "b/old": "old"}


@pytest.mark.parametrize("text", ["", "1 Gi", "-1Gi", "1X", "Gi", "1.2.3", "0x10", "NaN", "1e999", "١"])
def test_an_invalid_memory_limit_is_reported(text: str) -> None:
    with pytest.raises(CreateContainerConfigError, match=r"invalid memory limit .*must be a Kubernetes quantity"):
        limits_of({"resources": {"limits": {"memory": text}}})


@given(st.text(max_size=12))
def test_any_memory_limit_is_accepted_or_reported_in_one_line(text: str) -> None:
    try:
        limits = limits_of({"resources": {"limits": {"memory": text}}})
        assert limits.get(resource.RLIMIT_DATA, (DATA_HEADROOM,))[0] >= DATA_HEADROOM  # less than one byte is no limit
    except CreateContainerConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("text", ["5000P", "4Ei", "9E"])
def test_a_memory_limit_beyond_the_largest_rlimit_is_set_to_it(text: str) -> None:
    assert limits_of({"resources": {"limits": {"memory": text}}})[resource.RLIMIT_DATA] == (sys.maxsize, sys.maxsize)


async def test_a_process_whose_limits_cannot_be_set_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, started = ExecRuntime.spawn, list[Identity]()

    def recording_spawn(*arguments: Any) -> Identity:
        started.append(spawn(*arguments))
        return started[-1]

    monkeypatch.setattr(ExecRuntime, "spawn", staticmethod(recording_spawn))
    config = ContainerConfig(
        command=ContainerCommand(("sleep", "60")), env={}, cwd=tmp_path, log=tmp_path / "log",
        limits={resource.RLIMIT_DATA: (2, 1)}, ports={}, record_file=tmp_path / "run.json", home="",
    )  # fmt: skip
    with pytest.raises(RunContainerError, match="cannot set resource limit"):
        await ExecRuntime().start(config)

    await asyncio.wait_for(Process(started[0]).wait(), 10)
    assert not config.record_file.exists()


def test_a_container_without_limits_has_no_memory_limit() -> None:
    limits = limits_of({})

    assert resource.RLIMIT_DATA not in limits
    assert limits[resource.RLIMIT_CORE] == (0, 0)
    assert limits[resource.RLIMIT_NOFILE][0] >= 1024


def test_ports_are_allocated_in_a_circle() -> None:
    with contextlib.closing(PortAllocator(HOST, first=21_000, last=21_004, start=21_003)) as ports:
        first = ports.allocate([8080, 9095])
        ports.release(first.values())
        second = ports.allocate([8080])

    assert list(first) == ["8080", "9095"]
    assert second["8080"] not in first.values()


def test_a_container_keeps_its_ports() -> None:
    ports = PortAllocator(HOST, first=21_100, last=21_110)
    with contextlib.closing(ports):
        former = ports.allocate([8080, 9095])

        assert ports.allocate([8080, 9095], former) == former


def test_a_port_that_another_program_took_while_no_kubelet_ran_is_replaced() -> None:
    ports = PortAllocator(HOST, first=21_120, last=21_130)
    with contextlib.closing(ports), socket.create_server((HOST, 21_120)):
        ports.reserve([21_120, 21_121])
        chosen = ports.allocate([8080, 9095], {"8080": 21_120, "9095": 21_121})

        assert chosen["9095"] == 21_121
        assert chosen["8080"] not in (21_120, 21_121)


def test_two_platforms_of_one_user_get_different_ports() -> None:
    first, second = (PortAllocator(HOST, first=21_140, last=21_150, start=21_140) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        assert first.allocate([8080]) == {"8080": 21_140}
        assert second.allocate([8080], {"8080": 21_140}) == {"8080": 21_141}


def test_the_error_of_exhausted_ports_contains_the_range() -> None:
    ports = PortAllocator(HOST, first=21_200, last=21_200)
    ports.reserve([21_200])

    with pytest.raises(PortsExhausted, match="between 21200 and 21200"):
        ports.allocate([8080])


def test_restart_delays_double_from_the_second_failure_and_reset_after_a_long_run() -> None:
    backoff = RestartBackoff(10.0, 300.0)

    assert [backoff.delay_after(1.0) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.delay_after(HEALTHY_AFTER) == 0
    assert backoff.delay_after(1.0) == 10


IMAGES = {
    "plain": ContainerImage(("python", "-m", "app")),
    "forked": ContainerImage(
        ("python", "-m", "server"), "server:main", lambda args: ("numpy",) if "--np" in args else ()
    ),
}


def test_args_follow_the_images_command() -> None:
    container = {"image": "plain", "args": ["--port", "$(PORT)", "$$(PORT)", "$(NO)"]}

    command = command_of(container, IMAGES, {"PORT": "1"})

    assert command.argv == ("python", "-m", "app", "--port", "1", "$(PORT)", "$(NO)")


def test_an_image_with_an_entry_is_forked_when_it_has_modules_to_preload() -> None:
    with_modules = command_of({"image": "forked", "args": ["--np"]}, IMAGES, {})
    without = command_of({"image": "forked"}, IMAGES, {})
    overridden = command_of({"image": "forked", "command": ["sh"], "args": ["--np"]}, IMAGES, {})

    assert (with_modules.entry, with_modules.args, with_modules.modules) == ("server:main", ("--np",), ("numpy",))
    assert without.modules == ()
    assert overridden == ContainerCommand(("sh", "--np"))


def test_the_error_of_an_unknown_image_contains_the_known_ones() -> None:
    with pytest.raises(ImageNotFound, match="unknown image 'x': the images of this node are forked, plain"):
        command_of({"image": "x"}, IMAGES, {})


@given(st.text())
def test_text_without_a_dollar_is_unchanged(text: str) -> None:
    assert expand(text.replace("$", ""), {}) == text.replace("$", "")


def test_credentials_of_the_users_shell_are_not_passed_to_processes() -> None:
    assert node_environment({"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "s", "KNODEL_TOKEN": "t"}) == {"PATH": "/bin"}


async def no_secret(namespace: str, name: str) -> Mapping[str, bytes] | None:
    """Return no Secret."""
    return None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "secret 's' with key 'k'"),
        ({"name": "A", "valueFrom": {"configMapKeyRef": {}}}, "supports fieldRef and secretKeyRef"),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.x"}}}, "fieldRef 'status.x'"),
        ({"name": "A=B", "value": "x"}, "must not be empty or contain '='"),
        ({"name": "A", "value": "x\0"}, "must not contain a NUL byte"),
    ],
)
async def test_an_invalid_variable_is_reported(entry: Object, message: str) -> None:
    with pytest.raises(CreateContainerConfigError, match=message):
        await declared_environment(POD, {"env": [entry]}, no_secret)


async def test_an_optional_secret_may_be_absent() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}

    assert await declared_environment(POD, {"env": [{"name": "A", "valueFrom": source}]}, no_secret) == {}


@given(
    st.integers(1, 2**22),
    st.integers(0, 2**40),
    st.sampled_from(["", "abc"]),
    st.dictionaries(st.just("1"), st.just(2)),
)
def test_a_record_is_read_as_it_was_written(pid: int, ticks: int, zygote: str, ports: dict[str, int]) -> None:
    record = ContainerRecord(Identity(pid, ticks), zygote, ports)

    assert ContainerRecord.parse(json.dumps(record.to_json())) == record


@given(st.text())
def test_a_broken_record_is_none(text: str) -> None:
    assert ContainerRecord.parse(text) is None


def test_records_and_termination_messages_are_in_the_pods_folder(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.prepare()
    folders.prepare_pod(POD)
    record = ContainerRecord(Identity(1, 2), "", {"8080": 3}, folders.home)
    write_json(folders.record_file("u"), record.to_json())
    folders.termination_log("u").write_text("x" * 5000)

    assert folders.read_records() == {"u": record}
    assert folders.termination_message("u") == "x" * MAX_TERMINATION_MESSAGE
    folders.remove_record("u")
    assert (folders.read_record("u"), folders.termination_message("u")) == (None, "")
    assert folders.pods.stat().st_mode & 0o777 == 0o700


def test_the_longest_pod_name_fits_into_a_folder_name(tmp_path: Path) -> None:
    metadata = {"name": "n" * 253, "namespace": "s" * 63, "uid": "0" * 36}

    assert len(log_path(tmp_path, POD | {"metadata": metadata}).parent.name) <= 255


def test_a_rotated_log_continues_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab", buffering=0) as process:
        for text in (b"one\n", b"two\n", b"three\n", b"four\n"):
            process.write(text)
            rotate(path, 2)
        process.write(b"five\n")

    assert path.read_bytes() == b"five\n"
    assert (tmp_path / "server.log.1").read_bytes() == b"four\n"
    assert (tmp_path / "server.log.2").read_bytes() == b"three\n"
    assert not (tmp_path / "server.log.3").exists()


def test_an_endpoint_has_the_real_ports_of_the_pod() -> None:
    embedded = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "annotations": {ANNOTATION_PORTS: '{"8000": 20004, "9095": 20005}'},
        },
        "spec": POD["spec"],
        "status": {"podIP": HOST},
    }
    real = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{}]}, "status": {"podIP": "10.0.0.7"}}

    assert endpoint_of(embedded) == Endpoint("n/p", HOST, 20004, 20005)
    assert endpoint_of(real) == Endpoint("n/p", "10.0.0.7", 8080, 9095)
    assert endpoint_of(POD) is None


@pytest.mark.parametrize("text", ["{", "[1]", '{"8000": "x"}', '{"8000": null}', "[" * 100_000])
def test_an_invalid_ports_annotation_is_ignored(text: str) -> None:
    metadata = {"name": "p", "namespace": "n", "annotations": {ANNOTATION_PORTS: text}}
    pod = {"metadata": metadata, "spec": {"containers": [{}]}, "status": {"podIP": "10.0.0.7"}}

    assert endpoint_of(pod) == Endpoint("n/p", "10.0.0.7", 8080, 9095)


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "metadata": {"name": "p"}}

    assert is_ready(ready)
    assert not is_ready(ready | {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert not is_ready(POD)
