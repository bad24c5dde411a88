"""`knodel install` and `knodel uninstall` as people call them, as far as no cluster is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.cli.main import main

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A context `here` whose cluster does not answer."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KNODEL_KUBE_CONTEXT", raising=False)
    return path


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_cluster_has_to_be_named(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert "--kube-context NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--overlay", "edge", "--manifests", "."], "give only one of them"),
        (["--manifests", "/nowhere/at/all"], "No such file"),
        (["--dashboard", "--manifests", "."], "add components/dashboard to the sources of --manifests"),
        (["--overlay", "huge"], "huge"),
        (["--timeout", "5"], "must be a duration"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--kube-context", "here", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_cluster_that_does_not_answer_is_one_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--kube-context", "here"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1:1" in told
    assert told.count("\n") == 1
