"""`knodel dashboard`: a one-time link, or the port-forward to that of a cluster."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from serving.cli.main import load_command
from tests.serving.cli.conftest import Knodel


def test_without_a_platform_the_remedy_is_named(knodel: Knodel) -> None:
    done = knodel("dashboard", "--no-browser")
    assert done.code != 0
    assert "knodel up --detach" in done.err


def test_for_a_cluster_the_port_forward_is_printed(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncontexts: [{name: prod, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    done = CliRunner().invoke(
        load_command("dashboard"), ["--kube-context", "prod", "--no-browser", "--port", "8123"],
        env={"KUBECONFIG": str(config)},
    )  # fmt: skip
    assert done.output.splitlines() == [
        "kubectl --context prod -n knodel-system port-forward service/knodel-dashboard 8123:80",
        "http://localhost:8123/dashboard/",
    ]
