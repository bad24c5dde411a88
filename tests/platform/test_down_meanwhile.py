"""Test `knodel down` while another command waits for a change that it has stored."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.platform.machine import KNODEL, PATIENCE, machine
from tests.support.wait import eventually

ENDLESS = "import time\ntime.sleep(600)\n"
"""A model that never becomes ready."""


async def test_a_deploy_names_the_stored_model_and_the_platform_that_has_stopped(tmp_path: Path) -> None:
    code = tmp_path / "endless"
    code.mkdir()
    (code / "model.py").write_text(ENDLESS)
    with machine(tmp_path) as here:
        here.up()
        arguments = ["deploy", "endless", "--uri", str(code), "--format", "python"]
        with subprocess.Popen([*KNODEL, *arguments], env=here.environment, stderr=subprocess.PIPE, text=True) as deploy:
            await eventually(lambda: here.complete("get", "endless").returncode == 0)
            here.run("down")
            _, error = deploy.communicate(timeout=PATIENCE)

        assert deploy.returncode == 1
        assert error.startswith("knodel: the change to model endless is stored, but has not taken effect yet: ")
        assert f"the platform on {here.state} has stopped" in error
        assert f"`knodel up --detach --port {here.port}" in error and "`knodel wait endless`" in error
        assert len(error.splitlines()) == 1

        here.up()
        assert here.model("endless")["metadata"]["generation"] == 1
