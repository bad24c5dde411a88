"""The group of a process, from its options and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.group import NO_GROUP, GroupOptions, address_towards, read_group
from serving.engines.base.registry import find_format, find_worker


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("secret\n")
    return str(tmp_path)


def test_a_replica_without_workers_has_no_group() -> None:
    assert read_group(0, 1.0, False, {"KNODEL_RANK": "x"}) == NO_GROUP == EngineOptions().group
    assert NO_GROUP.nodes == 1


def test_a_worker_knows_its_leader(folder: str) -> None:
    environ = {"KNODEL_GROUP": folder, "KNODEL_RANK": "2", "KNODEL_LEADER": "10.0.0.7"}
    found = read_group(2, 8.0, True, environ)
    assert found == GroupOptions(2, 8.0, True, 2, "10.0.0.7", "secret")
    assert (found.nodes, found.local_cpus) == (3, 0.0)


def test_a_leader_knows_its_own_address(folder: str) -> None:
    found = read_group(2, 8.0, False, {"KNODEL_GROUP": folder})
    assert found.rank == 0 and found.leader


def test_a_worker_knows_the_address_by_which_it_reaches_its_leader() -> None:
    assert (address_towards("127.0.0.1"), address_towards("::1")) == ("127.0.0.1", "::1")
    with pytest.raises(LoadFailed, match="is not reachable"):
        address_towards("not an address")


def test_on_one_machine_the_leader_has_the_cores_of_the_workers() -> None:
    found = read_group(3, 2.0, False, {"KNODEL_ONE_MACHINE": "1"})
    assert (found.nodes, found.local_cpus, found.one_machine) == (1, 6.0, True)


@pytest.mark.parametrize("rank", ["3", "-1", "x", "²"])
def test_a_rank_outside_the_group_is_refused(folder: str, rank: str) -> None:
    with pytest.raises(LoadFailed, match="must be a whole number from 0 to 2"):
        read_group(2, 1.0, False, {"KNODEL_GROUP": folder, "KNODEL_RANK": rank})


def test_without_a_token_there_is_no_group(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="omit it on your own server"):
        read_group(2, 1.0, False, {})
    environ = {"KNODEL_GROUP": str(tmp_path), "KNODEL_LEADER": "10.0.0.7"}
    with pytest.raises(LoadFailed, match="is not readable"):
        read_group(2, 1.0, False, environ)
    (tmp_path / "token").write_text("\n")
    with pytest.raises(LoadFailed, match="is empty"):
        read_group(2, 1.0, False, environ)


def test_a_format_without_workers_is_refused() -> None:
    assert find_worker(find_format("vllm", ())) is not None
    with pytest.raises(LoadFailed, match="format onnx has no workers"):
        find_worker(find_format("onnx", ()))
