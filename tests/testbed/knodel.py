"""Knodel itself on the testbed, installed by its own command from this checkout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.testbed import addresses, commands
from tests.testbed.kubectl import Kubectl

OVERLAY: Final = "testbed"
_NAMESPACE: Final = "knodel-system"
_OUR_ARCHIVE: Final = "knodel-"  # how the file name of the archive with our own images begins
_LONGEST: Final = 240.0  # s; the command itself waits for 180


def is_ours(archive: Path) -> bool:
    """Whether the archive holds images of Knodel's."""
    return archive.name.startswith(_OUR_ARCHIVE)


def install(kubectl: Kubectl) -> None:
    """`knodel install`: apply the manifests of the overlay and wait until all of it runs."""
    command = (sys.executable, "-m", "serving.cli.main", "install", "--kube-context", addresses.CLUSTER)
    options = ("--overlay", OVERLAY, "--configure-knative")
    commands.run(*command, *options, env=commands.environment(KUBECONFIG=str(kubectl.kubeconfig)), timeout=_LONGEST)


def deployments(kubectl: Kubectl) -> list[str]:
    """The names of Knodel's Deployments; none when it is not installed."""
    listed = kubectl.get("deployments", f"--namespace={_NAMESPACE}").get("items", [])
    return [str(each["metadata"]["name"]) for each in listed]


def restart(kubectl: Kubectl, names: Iterable[str]) -> None:
    """Replace the Pods of the Deployments, and wait until the new ones run."""
    wanted = list(names)
    for name in wanted:
        kubectl.run("rollout", "restart", f"deployment/{name}", f"--namespace={_NAMESPACE}")
    for name in wanted:
        kubectl.await_rollout(name, _NAMESPACE)
