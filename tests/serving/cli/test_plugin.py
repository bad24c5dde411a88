"""Test `kubectl knodel`: without other advice, it acts on kubectl's current context."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from serving.cli.main import plugin, wants_current_context
from serving.client.errors import ClientError
from serving.client.kubeconfig import current_context


@pytest.mark.parametrize(
    ("arguments", "environ", "wanted"),
    [
        (["list"], {}, True),
        (["list", "-n", "team"], {"KNODEL_ENV": ""}, True),
        (["list", "--kube-context", "lab"], {}, False),
        (["list", "--kube-context=lab"], {}, False),
        (["list", "--env", "prod"], {}, False),
        (["list", "--state", "/tmp/state"], {}, False),
        (["list"], {"KNODEL_KUBE_CONTEXT": "lab"}, False),
        (["list"], {"KNODEL_STATE": "/tmp/state"}, False),
        (["list"], {"KNODEL_ENV": "prod"}, False),
    ],
)
def test_what_the_caller_names_goes_before_the_current_context(
    arguments: list[str], environ: dict[str, str], wanted: bool
) -> None:
    assert wants_current_context(arguments, environ) is wanted


def test_the_first_kubeconfig_with_a_current_context_counts(tmp_path: Path) -> None:
    contents = [{"contexts": []}, {"current-context": "lab"}, {"current-context": "prod"}]
    paths = [tmp_path / f"{index}.yaml" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(yaml.safe_dump(content))

    assert current_context({"KUBECONFIG": ":".join(map(str, paths))}) == "lab"
    assert current_context({"KUBECONFIG": str(paths[0])}) == ""
    with pytest.raises(ClientError):
        current_context({"KUBECONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize("has_context", [True, False])
def test_the_command_runs_on_that_context(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_context: bool
) -> None:
    monkeypatch.delenv("KNODEL_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["kubectl-knodel", "list"])
    if has_context:
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump({"current-context": "lab", "contexts": []}))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KNODEL_KUBE_CONTEXT", "")  # removed after the test

    assert plugin() != 0
    said = capsys.readouterr().err
    assert ("no context 'lab'" in said) is has_context
    assert ("no platform runs" in said) is not has_context
