"""Test shell completion in a real bash."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from clusters.base.objects import MODEL_EVENT
from serving.cli.main import knodel
from tests.serving.cli.conftest import Knodel, Served
from tests.serving.cli.kube import kubeconfig
from tests.serving.cli.test_narrow_terminals import EVENT, event_object

VARIABLE = "_KNODEL_COMPLETE"

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
        (("knodel", "rollout", "w"), ["watch"]),
        (("knodel", "list", "--wa"), ["--watch"]),
        (("knodel", "sta"), ["status"]),
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
    await served.deploy("magika")
    await served.deploy("mobile")
    await served.deploy("other")

    assert await asyncio.to_thread(complete, tmp_path, "knodel", "get", "m") == ["magika", "mobile"]


@needs_bash
async def test_bash_completes_revisions_namespaces_and_shares(served: Served, tmp_path: Path) -> None:
    await served.knodel("namespace", "team")
    await served.deploy_two_versions("magika", {})
    await served.deploy_two_versions("mobile", {})
    both = ["magika-00001", "magika-00002"]

    async def offered(*words: str) -> list[str]:
        return await asyncio.to_thread(complete, tmp_path, "knodel", *words)

    assert await offered("rollback", "magika", "--to", "m") == both
    assert await offered("logs", "magika", "--revision", "x") == []
    assert await offered("traffic", "magika", "") == [*(f"{name}=" for name in both), "latest="]
    assert await offered("list", "-n", "te") == ["team"]


async def test_tags_and_events_are_completed(served: Served) -> None:
    shares = [{"revision": "magika-00001", "percent": 100, "tag": "blue"}, {"revision": "magika-00002", "tag": "green"}]
    await served.deploy_two_versions("magika", {"traffic": shares})
    await served.cluster.create(MODEL_EVENT, event_object(), manager="test")

    async def offered(line: str, incomplete: str) -> list[str]:
        words = line.split()
        items = await asyncio.to_thread(
            ShellComplete(knodel, {}, "knodel", VARIABLE).get_completions, words, incomplete
        )
        return [item.value for item in items]

    assert await offered("predict magika --tag", "") == ["blue", "green"]
    assert await offered("predict magika --tag", "g") == ["green"]
    assert await offered("predict other --tag", "") == []
    assert await offered("restart", "m") == ["magika"]
    assert await offered("rollout watch", "m") == ["magika"]
    for verb in ("show", "trace", "replay"):
        assert await offered(f"events {verb}", "training") == [EVENT]


def test_options_before_the_verb_are_completed(state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, user = {"server": "https://a"}, {"token": "t"}
    (tmp_path / "kubeconfig").write_text(kubeconfig("https://a", cluster, user))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    items = ShellComplete(knodel, {}, "knodel", VARIABLE).get_completions(["--kube-context"], "")

    assert [item.value for item in items] == ["lab"]


@pytest.mark.parametrize(("shell", "lines"), [("zsh", ["plain", "status"]), ("fish", ["plain,status\tShow the"])])
def test_zsh_and_fish_get_new_verbs(state: Path, shell: str, lines: list[str]) -> None:
    environment = os.environ | {"_KNODEL_COMPLETE": f"{shell}_complete", "COMP_WORDS": "knodel sta", "COMP_CWORD": "1"}
    environment |= {"COMP_WORDS": "knodel"} if shell == "fish" else {}
    environment |= {"COMP_CWORD": "sta"} if shell == "fish" else {}
    done = subprocess.run(
        [sys.executable, "-m", "serving.cli.main"], env=environment, capture_output=True, text=True, check=True
    )

    assert all(line in done.stdout for line in lines), done.stdout


@pytest.mark.parametrize(
    ("words", "incomplete"),
    [("deploy iris --uri", "./mo"), ("deploy -f", "mod"), ("diff -f", ""), ("serve", "mod"), ("secret s --file", "ke")],
)
def test_paths_are_left_to_the_shell(words: str, incomplete: str) -> None:
    [item] = ShellComplete(knodel, {}, "knodel", VARIABLE).get_completions(words.split(), incomplete)

    assert (item.type, item.value) == ("file", incomplete)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_is_printed(knodel: Knodel, shell: str) -> None:
    done = knodel("completion", shell)

    assert done.code == 0
    assert "_KNODEL_COMPLETE" in done.out
