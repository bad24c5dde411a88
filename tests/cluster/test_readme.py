"""The commands of the tour (`docs/tour.md`) for Kubernetes are typed literally, on the testbed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.long.test_readme import ALL, KUBERNETES
from tests.support.kubernetes import KubeTarget
from tests.support.shell import Shell
from tests.testbed import paths

ROOT = Path(__file__).parents[2]
WITHIN = 300.0  # s for one command

pytestmark = pytest.mark.timeout(900)


def test_every_command_for_kubernetes_works_as_it_stands_there(target: KubeTarget) -> None:
    if target.audit_log is None:
        pytest.skip("the tour's commands are for the testbed")
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with Shell(ROOT, {**environment, "HOME": str(paths.home())}) as shell:
        for session in ALL:
            for step in session.steps if session.heading == KUBERNETES else ():
                printed = shell.run(step.command, WITHIN)
                assert not step.expected.strip() or step.agrees(printed), f"{step.command}\n{printed}"
