"""Type every command of how-to pages into one shell for each page, in the state that the page begins with.

The home folder of the shell has three versions of a small model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docsite.sources import ROOT
from tests.platform.machine import machine
from tests.support.models import times
from tests.support.pages import type_page
from tests.support.tools import tool

UP = "knodel up --detach"
IRIS = "knodel deploy iris --uri 1.onnx --min 1 --wait"
WEB = "9000"
"""The port of a web server with the files of the home folder."""
SERVE = f"python -m http.server {WEB} --bind 127.0.0.1 &> /dev/null &"
BEFORE = {
    "docs/dashboard.md": ("export BROWSER=true", UP),
    "docs/observability.md": (),
    "docs/package.md": ("cp 1.onnx magika.onnx",),
    "docs/rollouts.md": (UP, IRIS),
    "docs/troubleshooting.md": (UP, IRIS),
}
"""The commands that lead to the state that a page begins with."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Provide a home folder with the models."""
    for version in (1, 2, 3):
        (tmp_path / f"{version}.onnx").write_bytes(times(version))
    return tmp_path


@pytest.mark.parametrize("page", BEFORE)
def test_every_command_of_a_page_works_as_it_stands_there(page: str, home: Path) -> None:
    type_page(ROOT / page, home, before=BEFORE[page])


@pytest.fixture
def context(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run another platform, which is the context `gke` with the namespace `ml`."""
    (home / "gke").mkdir()
    with machine(home / "gke") as cluster:
        cluster.up()
        cluster.run("namespace", "ml")
        kubeconfig = yaml.safe_load((cluster.state / "kubeconfig").read_text())
        kubeconfig["contexts"][0]["name"] = "gke"
        (home / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(home / "kubeconfig"))
        yield


def test_every_command_of_environments_works(context: None, home: Path) -> None:
    churn = f"knodel deploy churn --uri http://127.0.0.1:{WEB}/1.onnx --rollout --wait"
    type_page(ROOT / "docs" / "environments.md", home, WEB, before=(SERVE, UP, churn))


MAGIKA = """
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: magika}
spec: {storageUri: file://FOLDER/1.onnx, minReplicas: 1}
"""
"""The manifest that the user of kubectl has."""


def test_every_command_of_kubectl_works(home: Path) -> None:
    tool("kubectl")
    (home / "model.yaml").write_text(MAGIKA.replace("FOLDER", str(home)))
    type_page(ROOT / "docs" / "kubectl.md", home, before=(UP, IRIS))


@pytest.mark.parametrize("page", ["docs/event-sources.md", "manifests/README.md"])
def test_kubectl_takes_every_command_about_a_key(page: str, home: Path) -> None:
    """Roles and the namespace of the installation are not on one machine, so kubectl changes nothing."""
    tool("kubectl")
    dry = 'kubectl() { command kubectl "$@" --dry-run=client; }'
    type_page(ROOT / page, home, before=(UP, "export KUBECONFIG=~/.local/state/knodel/kubeconfig", dry))
