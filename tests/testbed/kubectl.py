"""kubectl of the testbed's own version, bound to one kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.testbed import commands

FIELD_MANAGER: Final = "testbed"
_SLACK: Final = 30.0  # s that the process may take beyond the time that it waits itself


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Every method raises TestbedError with kubectl's own words when the command fails."""

    binary: Path
    kubeconfig: Path

    def run(self, *args: str, input: str | None = None, timeout: float = 120.0) -> str:
        """Stdout of `kubectl ARGS`; `input` goes to its stdin."""
        # Of its own, since it goes with the cluster: kubectl believes for hours what it once saw at an address.
        cache = self.kubeconfig.parent / "kubectl-cache"
        flags = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}")
        return commands.run(self.binary, *flags, *args, input=input, timeout=timeout)

    def apply(self, documents: Sequence[dict[str, Any]]) -> str:
        """Apply the objects, fields of other managers being taken over; says what was done to each."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        how = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")
        return self.run("apply", *how, "-f", "-", input=json.dumps(listed))

    def get(self, *args: str) -> dict[str, Any]:
        """The object, or the list of objects, that `kubectl get ARGS` finds; {} when it is not there."""
        text = self.run("get", "--ignore-not-found", "-o", "json", *args)
        return dict(json.loads(text)) if text.strip() else {}

    def wait(self, *args: str, timeout: float = 120.0) -> None:
        """`kubectl wait ARGS` (such as `--for=condition=Available`, `deployment`, `--all`) for `timeout` seconds."""
        self.run("wait", f"--timeout={timeout:g}s", *args, timeout=timeout + _SLACK)

    def await_rollout(self, name: str, namespace: str, timeout: float = 120.0) -> None:
        """Wait `timeout` seconds for the Deployment to run as it is described."""
        where = (f"deployment/{name}", f"--namespace={namespace}", f"--timeout={timeout:g}s")
        self.run("rollout", "status", *where, timeout=timeout + _SLACK)
