"""Every `knodel` command in a block of a page is one that the command takes; a test runs each page with a session.

A block `console` is a session, whose commands a test types. `EXECUTED` names that test.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile

import pytest

from tests.docsite.markdown import text_parts
from tests.docsite.sources import ROOT, find_sources
from tests.serving.cli.command_lines import parse_command

TEXTS = {source: (ROOT / source).read_text(encoding="utf-8") for source in find_sources().pages}
EXECUTED = {
    "README.md": "tests/long/test_readme.py",
    "docs/tour.md": "tests/long/test_readme.py",
    "docs/develop.md": "tests/long/test_develop.py",
    "docs/server.md": "tests/long/test_guide.py",
    "docs/from-kserve.md": "tests/long/test_from_kserve.py",
    "docs/from-mlflow.md": "tests/long/test_mlflow.py",
    "docs/costs.md": "tests/serving/cost/test_guide.py",
    "docs/uploads.md": "tests/serving/cli/test_deploy_uploads.py",
    "docs/tutorials/kubernetes.md": "tests/cluster/test_tutorial.py",
}
"""The test that types the commands of a page. Those of other tutorials are in `tests/long/test_tutorials.py`."""
NOT_EXECUTED = {
    "docs/ray.md": "tests/long/test_ray.py has the same application and answer, docs/tutorials/ray.md a whole session",
    "docs/gpus.md": "needs a cluster with GPUs; tests/cluster/test_gpus.py has the same table",
    "docs/rollouts.md": "a list of verbs, each in tests/serving/cli/test_rollout.py",
}
COMMAND = re.compile(
    r"(?:^(?:\$ +)?|\$\(|&& |; |\| |until |while )(?=((?:[A-Z_]+=\S+ )*knodel (?:[^\n]*\\\n)*[^\n]*))", re.MULTILINE
)
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "<", "(", ")", "…"}
"""Words of the shell after which a command line is over."""


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for each command of a block."""
    for source, text in TEXTS.items():
        for fenced, block in text_parts(text):
            if fenced and not block.startswith("```yaml"):
                yield from ((source, found[1]) for found in COMMAND.finditer(block))


def words_of(line: str) -> list[str]:
    """Return the words of the first command of a line, without comments and redirections."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: word not in ENDS, lexer))


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_every_command_of_a_block_is_one_that_knodel_takes(page: str, line: str) -> None:
    parse_command(shlex.join(words_of(line)))


def test_every_page_with_a_session_has_a_test() -> None:
    with_sessions = {source for source, text in TEXTS.items() if "```console\n" in text}
    tutorials = {source for source in with_sessions if source.startswith("docs/tutorials/")}
    assert with_sessions - {*EXECUTED} - {*NOT_EXECUTED} - tutorials == set()
    assert ({*EXECUTED} | {*NOT_EXECUTED}) - with_sessions == set()


@pytest.mark.parametrize(("page", "test"), EXECUTED.items())
def test_the_test_of_a_page_reads_it(page: str, test: str) -> None:
    assert page.rpartition("/")[2].removesuffix(".md").lower() in (ROOT / test).read_text(encoding="utf-8").lower()
