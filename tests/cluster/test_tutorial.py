"""The commands of docs/tutorials/kubernetes.md are typed literally, on the testbed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.artifacts import ArtifactServer
from tests.support.guide import files, sessions
from tests.support.kubernetes import KubeTarget
from tests.support.shell import Shell
from tests.testbed.paths import home, standard

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "kubernetes.md"
WITHIN = 300.0  # s for one command

pytestmark = pytest.mark.timeout(900)


def test_every_command_of_the_tutorial_works_as_it_stands_there(
    target: KubeTarget, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    if target.audit_log is None:
        pytest.skip("the tutorial's commands are for the testbed")
    text = PAGE.read_text(encoding="utf-8")
    for name, content in files(text):
        (tmp_path / name).write_text(content)
    programs = f"{Path(sys.prefix, 'bin')}:{standard().binaries}"
    environment = {
        **os.environ, "HOME": str(home()), "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(target.kubeconfig), "KNODEL_KUBE_CONTEXT": target.context,
        "MODEL_URI": artifacts.uri("double"), "KUBECACHEDIR": str(tmp_path / "kubectl"),
    }  # fmt: skip
    with Shell(tmp_path, environment) as shell:
        for step in (step for session in sessions(text) for step in session.steps):
            printed = shell.run(step.command, WITHIN)
            assert not step.expected.strip() or step.agrees(printed), f"{step.command}\n{printed}"
