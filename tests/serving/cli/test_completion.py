"""Test shell completion in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.cli.conftest import Knodel, Served

SCRIPT = """
source {script}
complete_words() {{
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _knodel_completion knodel
    printf '%s\\n' "${{COMPREPLY[@]}}"
}}
complete_words {words}
"""


def complete(folder: Path, *words: str) -> list[str]:
    """Return the completions of bash for the last word."""
    command = folder / "knodel"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m serving.cli.main "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    script = subprocess.run(["knodel", "completion", "bash"], env=environment, capture_output=True, check=True).stdout
    (folder / "completion.bash").write_bytes(script)
    program = SCRIPT.format(script=folder / "completion.bash", words=" ".join(f"'{word}'" for word in words))
    done = subprocess.run(
        ["bash", "--norc", "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    return done.stdout.split()


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")


@needs_bash
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("knodel", "de"), ["deploy", "describe", "delete", "dev"]),
        (("knodel", "deploy", "--can"), ["--canary"]),
        (("knodel", "list", "-o", "j"), ["json"]),
        (("knodel", "completion", "z"), ["zsh"]),
        (("knodel", "get", "m"), []),
        (("knodel", "deploy", "iris", "--format", "skl"), ["sklearn"]),
        (("knodel", "deploy", "iris", "--uri", "s3://m"), []),
    ],
)
def test_bash_completes_verbs_options_and_choices(
    state: Path, tmp_path: Path, words: tuple[str, ...], offered: list[str]
) -> None:
    assert complete(tmp_path, *words) == offered


@needs_bash
async def test_bash_completes_the_names_of_models(served: Served, tmp_path: Path) -> None:
    import asyncio

    await served.deploy("magika")
    await served.deploy("mobile")
    await served.deploy("other")

    assert await asyncio.to_thread(complete, tmp_path, "knodel", "get", "m") == ["magika", "mobile"]


@needs_bash
async def test_bash_completes_revisions_namespaces_and_shares(served: Served, tmp_path: Path) -> None:
    import asyncio

    await served.knodel("namespace", "team")
    await served.deploy_two_versions("magika", {})
    both = ["magika-00001", "magika-00002"]

    async def offered(*words: str) -> list[str]:
        return await asyncio.to_thread(complete, tmp_path, "knodel", *words)

    assert await offered("rollback", "magika", "--to", "m") == both
    assert await offered("logs", "magika", "--revision", "x") == []
    assert await offered("traffic", "magika", "") == [*(f"{name}=" for name in both), "latest="]
    assert await offered("list", "-n", "te") == ["team"]


@pytest.mark.parametrize(
    ("words", "incomplete"),
    [("deploy iris --uri", "./mo"), ("deploy -f", "mod"), ("diff -f", ""), ("serve", "mod"), ("secret s --file", "ke")],
)
def test_paths_are_left_to_the_shell(words: str, incomplete: str) -> None:
    from click.shell_completion import ShellComplete

    from serving.cli.main import knodel

    [item] = ShellComplete(knodel, {}, "knodel", "_KNODEL_COMPLETE").get_completions(words.split(), incomplete)

    assert (item.type, item.value) == ("file", incomplete)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_is_printed(knodel: Knodel, shell: str) -> None:
    done = knodel("completion", shell)

    assert done.code == 0
    assert "_KNODEL_COMPLETE" in done.out
