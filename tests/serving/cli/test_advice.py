"""Test that every command in an error, a condition, a finding or a note works when it is typed.

The table `ADVICE` has each command as in the messages, with `{}` for filled-in values, and an example as a user types
it. The first test fails for a message with another command, until the table has it too.
`tests/platform/test_advice.py` runs the commands on a platform.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from serving.cli.base.advice import REFUSED_BY, complete_advice
from tests.serving.cli.advice import ADVICE, PLACEHOLDERS
from tests.serving.cli.advice_scan import HOLE, advised, advised_commands
from tests.serving.cli.command_lines import find_command, parse_command
from tests.serving.cli.conftest import COMMANDS, Knodel, Served


def test_every_advised_command_is_in_the_table_and_no_other() -> None:
    found = advised_commands()

    assert {line: places for line, places in found.items() if line not in ADVICE} == {}
    assert [line for line in ADVICE if line not in found] == []


@pytest.mark.parametrize(("advice", "typed"), ADVICE.items(), ids=list(ADVICE))
def test_what_is_typed_is_what_is_advised(advice: str, typed: str) -> None:
    """Only values and known placeholders are replaced in the typed command."""
    words = "|".join(map(re.escape, (HOLE, *PLACEHOLDERS)))
    pattern = "".join(
        ".*" if part == HOLE else r"\S+" if part in PLACEHOLDERS else re.escape(part)
        for part in re.split(f"({words})", advice)
    )
    assert re.fullmatch(pattern, typed), pattern


@pytest.mark.parametrize("typed", ADVICE.values())
def test_every_advised_command_is_one_that_the_command_takes(typed: str) -> None:
    parse_command(typed)


def test_advice_beside_our_own_commands_is_known_too() -> None:
    """Commands of other programs cannot be run here, so the list of programs is fixed."""
    programs = {
        "aws",
        "chmod",
        "docker",
        "fuser",
        "gcloud",
        "kubectl",
        "mlflow",
        "mount",
        "pip",
        "ps",
        "rm",
        "serve",
        "ulimit",
    }
    first = {shlex.split(span)[0] for span, _ in advised() if re.match(r"[a-z]+ [-a-z]", span)}

    assert first - programs - {"knodel", "mode:", "model:", "visibility:"} == set()


@pytest.mark.parametrize(
    ("text", "options", "completed"),
    [
        ("`knodel get iris` shows it", {"--namespace": "team"}, "`knodel get iris --namespace team` shows it"),
        ("`knodel get iris -n a`", {"--namespace": "team"}, "`knodel get iris -n a`"),
        ("`knodel up --port 8180 --state /s`", {"--env": "prod"}, "`knodel up --port 8180 --state /s`"),
        ("`knodel list -A`", {"--namespace": "team", "--state": "/s s"}, "`knodel list -A --state '/s s'`"),
        ("`knodel down`, then `knodel up --detach`", {"--state": "/s", "--namespace": "team"},
         "`knodel down --state /s`, then `knodel up --detach --state /s`"),
        ("`knodel namespace team`", {"--namespace": "team", "--kube-context": "prod"},
         "`knodel namespace team --kube-context prod`"),
        ("`knodel --help` and `maxReplicas`", {"--namespace": "team"}, "`knodel --help` and `maxReplicas`"),
        ("`knodel get iris`", {}, "`knodel get iris`"),
    ],
)  # fmt: skip
def test_advice_is_for_the_namespace_and_the_place_of_the_caller(
    text: str, options: dict[str, str], completed: str
) -> None:
    assert complete_advice(text, options) == completed


@pytest.mark.parametrize("option", list(REFUSED_BY))
def test_options_are_added_to_the_verbs_that_take_them(option: str) -> None:
    """All verbs of a group take the same options."""
    for command in COMMANDS:
        if command.startswith("env ") or (command, option) == ("secret", "--env"):
            continue  # there the option describes an environment, or a value
        taken = {name for parameter in find_command(command.split()).params for name in parameter.opts}
        assert (option in taken) is (command.split()[0] not in REFUSED_BY[option]), command


async def test_an_error_advises_the_command_for_the_callers_namespace(served: Served) -> None:
    await served.knodel("namespace", "team")
    await served.deploy("iris", "-n", "team")

    done = await served.knodel("logs", "iris", "-n", "team")

    assert "`knodel explain iris --namespace team`" in done.err
    assert (await served.knodel("explain", "iris", "--namespace", "team")).code == 0


def test_an_error_advises_the_command_for_the_callers_state_folder(knodel: Knodel, tmp_path: Path) -> None:
    done = knodel("list", "--state", str(tmp_path))

    assert f"`knodel up --detach --state {tmp_path}`" in done.err
