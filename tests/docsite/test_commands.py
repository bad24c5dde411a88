"""Every command in a block of a page is executed by a test, or is in a table with the reason why not.

A block `console` is a session, whose commands a test types. `EXECUTED` names that test. Other blocks with commands are
in `NOT_EXECUTED`. The `knodel` commands of all blocks must be ones that the command takes.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import takewhile

import click
import pytest
from click.exceptions import NoArgsIsHelpError

from tests.docsite.markdown import text_parts
from tests.docsite.sources import ROOT, find_sources
from tests.serving.cli.command_lines import parse_command
from tests.support.tools import tool

TEXTS = {source: (ROOT / source).read_text(encoding="utf-8") for source in find_sources().pages}
EXECUTED = {
    "README.md": "tests/long/test_readme.py",
    "docs/tour.md": "tests/long/test_readme.py",
    "docs/develop.md": "tests/long/test_develop.py",
    "docs/server.md": "tests/long/test_guide.py",
    "docs/from-kserve.md": "tests/long/test_from_kserve.py",
    "docs/from-mlflow.md": "tests/long/test_mlflow.py",
    "docs/costs.md": "tests/serving/cli/test_guides.py",
    "docs/gpus.md": "tests/serving/cli/test_guides.py",
    "docs/releases.md": "tests/serving/cli/test_guides.py",
    "docs/uploads.md": "tests/serving/cli/test_deploy_uploads.py",
    "docs/dashboard.md": "tests/docsite/test_sessions.py",
    "docs/environments.md": "tests/docsite/test_sessions.py",
    "docs/event-sources.md": "tests/docsite/test_sessions.py",
    "docs/kubectl.md": "tests/docsite/test_sessions.py",
    "docs/observability.md": "tests/docsite/test_sessions.py",
    "docs/package.md": "tests/docsite/test_sessions.py",
    "docs/rollouts.md": "tests/docsite/test_sessions.py",
    "docs/troubleshooting.md": "tests/docsite/test_sessions.py",
    "docs/bench.md": "tests/long/test_pages.py",
    "docs/llm.md": "tests/long/test_pages.py",
    "docs/ray.md": "tests/long/test_pages.py",
    "docs/tutorials/kubernetes.md": "tests/cluster/test_tutorial.py",
    "manifests/README.md": "tests/docsite/test_sessions.py",
}
"""The test that types the sessions of a page. Those of other tutorials are in `tests/long/test_tutorials.py`."""
RELEASE = "needs a release"
CLUSTER = "needs a cluster that is not the testbed's"
MINUTES = "takes minutes; a test below reads its options"
NOT_EXECUTED = {
    ("CONTRIBUTING.md", "make setup"): "the targets of the Makefile; CI runs them",
    ("README.md", "pip install"): RELEASE,
    ("charts/knodel/README.md", "helm install"): f"{RELEASE}; tests/manifests/chart/test_helm.py renders the chart",
    ("charts/knodel/README.md", "kubectl label"): CLUSTER,
    ("charts/knodel/README.md", "helm upgrade"): RELEASE,
    ("charts/knodel/README.md", "kubectl -n knodel-system"): CLUSTER,
    ("docs/bench.md", "locust -f"): "a server, and a page in a pager",
    ("docs/dashboard.md", "knodel install"): f"{CLUSTER}; tests/serving/install/test_installer.py installs it",
    ("docs/evidence/gpu.md", ".venv/bin/python -m"): MINUTES,
    ("docs/evidence/simulation.md", ".venv/bin/python -m loadtests.simulate "): MINUTES,
    ("docs/evidence/simulation.md", ".venv/bin/python -m loadtests.simulate.llm"): MINUTES,
    ("docs/evidence/kserve-samples.md", "git clone"): "downloads another project",
    ("docs/gpus.md", "pip install"): RELEASE,
    ("docs/llm.md", "make run-llm"): "tests/long/test_smollm.py has the model",
    ("docs/metrics.md", "prometheus --config.file"): "tests/long/test_monitoring.py runs it with another port",
    ("docs/metrics.md", "kubectl apply"): f"{CLUSTER}; a test below renders it",
    ("docs/observability.md", "knodel top"): "goes on until Ctrl-C; tests/serving/cli/test_top_watch.py runs it",
    ("docs/observability.md", "prometheus --config.file"): "tests/long/test_one_trace.py runs it with other ports",
    ("docs/package.md", "pip install"): RELEASE,
    ("docs/releases.md", "sha256sum --check"): RELEASE,
    ("docs/server.md", "optimum-cli export"): "downloads a model and PyTorch",
    ("docs/tour.md", "knodel install"): CLUSTER,
    ("docs/tutorials/kubernetes.md", "make testbed-up"): "the testbed of tests/cluster has run it",
    ("docs/tutorials/kubernetes.md", "pip install"): CLUSTER,
    ("manifests/README.md", "knodel install"): CLUSTER,
    ("tests/testbed/README.md", "python -m tests.testbed"): "usage lines; tests/cluster runs on that testbed",
}
"""The reasons of blocks that no test types, by page and by the begin of their first command."""
EXECUTED_CODE = {
    "README.md": "tests/knodel/test_page.py",
    "docs/llm.md": "tests/knodel/test_page.py",
    "docs/package.md": "tests/knodel/test_page.py",
    "docs/python.md": "tests/knodel/test_page.py",
    "docs/ray.md": "tests/long/test_pages.py",
}
"""The test that runs the Python blocks of a page which are no files. Files are used by the sessions of their page."""
NOT_EXECUTED_CODE = {"CONTRIBUTING.md": "an example of a change of the code"}
CONSOLE, PYTHON = "console", "python"
OF_FILES = ("yaml", "json", "mermaid", PYTHON)
"""Words of blocks without commands."""
PROGRAMS = (
    "cosign", "curl", "docker", "export", "gh", "git", "helm", "knodel", "kubectl", "locust", "make", "optimum-cli",
    "pip", "prometheus", "python", "python3", r"\.venv/bin/python", "sha256sum", "until", "while",
)  # fmt: skip
TYPED = re.compile(rf"^ *(?:\$ +)?((?:{'|'.join(PROGRAMS)}) +\S.*)", re.MULTILINE)
MODULE = re.compile(
    r"python -m ((?:clusters|autoscaler|eventing|serving|loadtests|tests)[\w.]*)((?: +(?!#)[^\s`|&]+)*)"
)
"""A module of the project, and its arguments."""
PARSE = """
import argparse, runpy, sys
parse = argparse.ArgumentParser.parse_known_args
def parsed(self, *arguments):
    parse(self, *arguments)
    print("parsed")
    sys.exit()
argparse.ArgumentParser.parse_args = parsed
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Run a module until it has read its arguments."""
MENTIONED = re.compile(r"`((?:[A-Z_]+=\S+ )*knodel [^`]+)`")
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+")
TARGET = re.compile(r"(?<!\w)make ([a-z][a-z-]+)")
COMMAND = re.compile(
    r"(?:^(?: {4}|\$ +)?|\$\(|&& |; |\| |until |while )(?=((?:[A-Z_]+=\S+ )*knodel (?:[^\n]*\\\n)*[^\n]*))",
    re.MULTILINE,
)
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "<", "(", ")", "…"}
"""Words of the shell after which a command line is over."""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Yield (page, word, text) for each block: the word after its fence, or "" for an indented one."""
    for source, page in TEXTS.items():
        for fenced, text in text_parts(page):
            if fenced:
                head, _, content = text.strip().strip("`").partition("\n")
                yield source, head, content
            else:
                yield from ((source, "", found[0]) for found in INDENTED.finditer(text))


BLOCKS = list(blocks())


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for each command of a block."""
    for source, word, text in BLOCKS:
        if not word.startswith(OF_FILES):
            yield from ((source, found[1]) for found in COMMAND.finditer(text))


def words_of(line: str) -> list[str]:
    """Return the words of the first command of a line, without comments and redirections."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: word not in ENDS, lexer))


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_every_command_of_a_block_is_one_that_knodel_takes(page: str, line: str) -> None:
    parse_command(shlex.join(words_of(line)))


def mentions() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for each command in the text of a page."""
    for source, page in TEXTS.items():
        for fenced, text in text_parts(page):
            if not fenced:
                yield from ((source, " ".join(found.split())) for found in MENTIONED.findall(text))


@pytest.mark.parametrize(("page", "line"), sorted(set(mentions())))
def test_every_command_in_a_text_has_verbs_and_options_that_there_are(page: str, line: str) -> None:
    """A text may leave arguments and values out."""
    with suppress(click.MissingParameter, click.BadOptionUsage, NoArgsIsHelpError):
        parse_command(shlex.join("1" if word == "N" else word for word in words_of(line)))


def test_every_page_with_a_session_has_a_test() -> None:
    with_sessions = {source for source, word, _ in BLOCKS if word == CONSOLE}
    tutorials = {source for source in with_sessions if source.startswith("docs/tutorials/")}
    assert with_sessions - {*EXECUTED} - tutorials == set()
    assert {*EXECUTED} - with_sessions == set()


def test_every_other_block_with_commands_has_a_reason() -> None:
    others = [block for block in BLOCKS if block[1] != CONSOLE and not block[1].startswith(OF_FILES)]
    first = {(source, found[1]) for source, _, text in others if (found := TYPED.search(text))}
    reasons = {
        command: [begin for begin in NOT_EXECUTED if begin[0] == command[0] and command[1].startswith(begin[1])]
        for command in first
    }
    assert [command for command, found in reasons.items() if not found] == []
    assert {*NOT_EXECUTED} - {begin for found in reasons.values() for begin in found} == set()


def test_every_page_with_python_code_has_a_test() -> None:
    assert {source for source, word, _ in BLOCKS if word == PYTHON} == {*EXECUTED_CODE, *NOT_EXECUTED_CODE}
    assert all(
        source in EXECUTED or source.startswith("docs/tutorials/")
        for source, word, _ in BLOCKS
        if word.startswith(f"{PYTHON} ")
    )


def test_every_target_of_make_in_a_page_is_one_of_the_makefile() -> None:
    named = {(source, target) for source, _, text in BLOCKS for target in TARGET.findall(text)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(named) > 20
    assert {one for one in named if f"\n{one[1]}:" not in makefile} == set()


MODULES = sorted({found for text in TEXTS.values() for found in MODULE.findall(text)})


@pytest.mark.parametrize("module", sorted({module for module, _ in MODULES}))
def test_every_module_that_a_page_runs_exists(module: str) -> None:
    spec = find_spec(module)
    assert spec is not None
    assert spec.submodule_search_locations is None or find_spec(f"{module}.__main__") is not None


@pytest.mark.parametrize(("module", "arguments"), [one for one in MODULES if one[0].startswith("loadtests") and one[1]])
def test_every_load_test_takes_the_options_of_a_page(module: str, arguments: str) -> None:
    command = [sys.executable, "-c", PARSE, module, *shlex.split(arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("parsed\n"), done.stderr


KUSTOMIZED = sorted(
    {found for _, _, text in BLOCKS for found in re.findall(r"kubectl apply .*-k (manifests\S+)", text)}
)


@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_every_folder_that_a_page_applies_can_be_rendered(folder: str) -> None:
    done = subprocess.run([tool("kubectl"), "kustomize", ROOT / folder], capture_output=True, text=True)
    assert done.returncode == 0 and "kind: " in done.stdout, done.stderr


@pytest.mark.parametrize(("page", "test"), [*EXECUTED.items(), *EXECUTED_CODE.items()])
def test_the_test_of_a_page_reads_it(page: str, test: str) -> None:
    assert page.rpartition("/")[2].lower() in (ROOT / test).read_text(encoding="utf-8").lower()
