"""A Ray over the Pods of a group: settings and commands of leader and worker, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from serving.engines.base.folder import ModelFolder
from serving.engines.ray.applications import missing_nodes
from serving.engines.ray.key import STATE_VARIABLE, VARIABLE, group_key
from serving.engines.ray.program import RayProgram
from serving.engines.ray.settings import GROUP_PORTS, RaySettings
from serving.engines.upstream.client import Address
from serving.engines.upstream.program import Command

ALONE = RaySettings("/app", False, "app:app", 1, 1 << 27, 60.0)
LEADER = RaySettings("/app", False, "app:app", 1, 1 << 27, 60.0, address="10.0.0.7", nodes=3)
WORKER = RaySettings("/own", False, "app:app", 1, 1 << 27, 60.0, address="10.0.0.8", nodes=3, leader="10.0.0.7")


def program(settings: RaySettings, token: str = "") -> RayProgram:
    return RayProgram(settings, cast(ModelFolder, None), token)


def told(command: Command) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command.argv[-1])
    return found


@pytest.mark.parametrize(
    ("alive", "wanted", "reason"),
    [([True], 1, ""), ([True] * 3, 3, ""), ([True] * 4, 3, ""), ([True], 3, "0 of 2 workers have joined"),
     ([], 3, "0 of 2 workers have joined"), ([True, False, True], 3, "1 of 2 workers have joined")],
)  # fmt: skip
def test_nodes_are_missing_until_all_are_alive(alive: list[bool], wanted: int, reason: str) -> None:
    assert missing_nodes([{"Alive": one} for one in alive], wanted) == reason


def test_a_leader_and_its_workers_share_token_key_and_ports() -> None:
    leading, working = program(LEADER, "t"), program(WORKER, "t")
    leader, worker = leading.command(Path("/run/engine.sock"), "of the state"), working.worker_command()
    for name in (VARIABLE, "RAY_AUTH_TOKEN", "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT"):
        assert leader.environ[name] == worker.environ[name], name
    assert leader.environ[VARIABLE] == group_key("t") != "t" == leader.environ["RAY_AUTH_TOKEN"]
    assert (leader.environ[STATE_VARIABLE], STATE_VARIABLE in worker.environ) == ("of the state", False)
    assert told(leader)["ports"]["gcs"] == told(worker)["ports"]["gcs"] == GROUP_PORTS.gcs
    assert (told(leader).get("leader", ""), told(worker)["leader"]) == ("", "10.0.0.7")
    assert leading.entrance(Address(Path("/run/engine.sock"), "of the state")).key == group_key("t")


def test_a_worker_imports_the_applications_from_its_own_folder() -> None:
    made = program(WORKER, "t")
    assert made.worker_command().environ["PYTHONPATH"].split(":")[0] == "/own"


def test_a_ray_alone_has_a_token_of_its_own_and_takes_requests_of_its_machine_only() -> None:
    first, second = program(ALONE), program(ALONE)
    one, other = (made.command(Path("/run/engine.sock"), "k").environ for made in (first, second))
    assert one["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"] and one[VARIABLE] == other[VARIABLE] == "k"
    assert (ALONE.http_host, LEADER.http_host, WORKER.http_host) == ("127.0.0.1", "0.0.0.0", "0.0.0.0")
