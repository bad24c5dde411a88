"""Helm on the testbed: a release of the chart in place of what `python -m tests.testbed up --knodel` has installed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from clusters.base.distribution import VERSION
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install.bundle import load_overlay
from serving.install.configuration import KEY, is_settings
from serving.install.kinds import kind_of
from tests.cluster.test_command import Shell
from tests.support.kubernetes import KubeTarget

WITHIN = 240.0
"""s for one command, which waits for the Deployments."""


class Helm:
    """Helm on the testbed, with the values of its overlay."""

    def __init__(self, program: Path, target: KubeTarget, values: Path) -> None:
        self._program = program
        self._target = target
        self._values = values

    def __call__(self, *arguments: str | Path) -> str:
        """Run a command of Helm on the release; return its output."""
        words = [*map(str, arguments), "--kube-context", self._target.context, "--namespace", SYSTEM_NAMESPACE]
        environment = os.environ | {"KUBECONFIG": str(self._target.kubeconfig)}
        done = subprocess.run(
            [self._program, *words], env=environment, capture_output=True, text=True, timeout=WITHIN, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def apply(self, verb: str, chart: Path, *options: str) -> None:
        """Install or upgrade the release, and wait until all of it runs."""
        self(verb, "knodel", chart, "--values", self._values, "--wait", "--timeout", "180s", *options)


def values_of_the_testbed() -> dict[str, Any]:
    """Return the values that say what the overlay of the testbed says."""
    objects = load_overlay("testbed")
    [config] = [obj for obj in objects if is_settings(kind_of(obj), obj)]
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": None}
    return {
        "image": {"repository": "dev.local/knodel-controller", "tag": VERSION, "pullPolicy": "Never"},
        "settings": yaml.safe_load(config["data"][KEY]),
        **{name: {"resources": small} for name in ("controller", "eventing", "router")},
        "autoscaler": {"resources": {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": None}},
    }


@contextmanager
def helm_on_the_testbed(program: Path, target: KubeTarget, folder: Path) -> Iterator[Helm]:
    """Helm, until the end of the block; then the testbed has its own installation again."""
    values = folder / "values.json"
    values.write_text(json.dumps(values_of_the_testbed()))
    helm = Helm(program, target, values)
    try:
        yield helm
    finally:
        if "knodel" in helm("list", "--short"):
            helm("uninstall", "knodel", "--wait")
        Shell(target, SYSTEM_NAMESPACE)("install", "--overlay", "testbed", "--configure-knative")
