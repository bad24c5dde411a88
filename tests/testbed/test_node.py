"""The configurations of the node's parts agree with each other."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.testbed import node
from tests.testbed.paths import Paths, standard

WHERE = Paths(Path("/state"), Path("/cache"))


def test_containerd_has_everything_in_our_folder_and_the_kubelet_finds_it_there() -> None:
    config = tomllib.loads(node.containerd_toml(WHERE))
    assert {config["root"], config["state"]} == {"/state/containerd/root", "/state/containerd/state"}
    assert node.kubelet_config(WHERE)["containerRuntimeEndpoint"] == f"unix://{config['grpc']['address']}"


def test_a_machine_without_cap_sys_resource_runs_pods() -> None:
    cri = tomllib.loads(node.containerd_toml(WHERE))["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True


def test_folders_follow_the_xdg_variables() -> None:
    where = standard({"HOME": "/home/a", "XDG_STATE_HOME": "/s"})
    assert (where.state, where.cache) == (Path("/s/knodel/testbed"), Path("/home/a/.cache/knodel/testbed"))
