"""The command that installs an extra, for each way to install Knodel."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.base.distribution import command_for, install_command

PYTHON = Path("/env/bin/python")
EXTRA = "'knodel[onnx]'"


@pytest.mark.parametrize(
    ("has_pip", "pip_on_path", "command"),
    [
        (True, "/env/bin/pip", f"pip install {EXTRA}"),
        (True, "/usr/bin/pip", f"/env/bin/python -m pip install {EXTRA}"),
        (True, None, f"/env/bin/python -m pip install {EXTRA}"),
        (False, "/usr/bin/pip", f"uv pip install {EXTRA} --python /env/bin/python"),
    ],
)
def test_the_command_installs_into_the_environment_that_runs(
    has_pip: bool, pip_on_path: str | None, command: str
) -> None:
    assert command_for(EXTRA, PYTHON, has_pip, pip_on_path, "uv") == command


def test_the_command_for_this_environment_names_the_extra() -> None:
    assert f"pip install {EXTRA}" in install_command("knodel[onnx]")
