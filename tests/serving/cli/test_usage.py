"""Test exit codes: wrong usage is 2 with one line, every error has its code, and only --debug prints a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from clusters.base.errors import (
    AlreadyExists,
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    KnodelError,
    NotFound,
    Unavailable,
)
from serving.cli.events.mapping import mapping_of
from serving.cli.main import VERBS
from serving.client import errors
from tests.serving.cli.command_lines import examples_of, find_command, parse_command
from tests.serving.cli.conftest import COMMANDS, Knodel, check

CLUSTER = {"install", "uninstall"}
"""Verbs that act only on a cluster."""
WITHOUT_PLATFORM = {"dev", "init", "serve", "completion", "env list", "env remove", "env use"}
WITHOUT_NAMESPACE = {*CLUSTER, *WITHOUT_PLATFORM, "up", "down", "namespace", "config", "version", "dashboard"}
WITHOUT_FORMAT = {
    *WITHOUT_PLATFORM - {"env list"}, "env add", "chat", "delete", "diff", "logs", "predict", "pool delete",
    "events deny", "dashboard",
}  # fmt: skip
"""Verbs without the options `--state`, `--namespace` or `--output`, which would have no effect."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("explode",),
        ("list", "--bogus"),
        ("list", "-o", "xml"),
        ("list", "-n", "Not_A_Namespace"),
        ("list", "-n", ""),
        ("get",),
        ("get", "one", "two"),
        ("deploy",),
        ("deploy", "name"),
        ("deploy", "name", "--min", "few"),
        ("deploy", "name", "--canary", "ten"),
        ("deploy", "name", "-f", "file.yaml"),
        ("deploy", "-f", "file.yaml", "--min", "1"),
        ("deploy", "-f", "no-such-file.yaml"),
        ("deploy", "name", "--uri", "x", "--timeout", "soon"),
        ("wait", "name", "--timeout", "-1s"),
        ("traffic", "name"),
        ("traffic", "name", "latest"),
        ("traffic", "name", "latest=ten"),
        ("traffic", "name", "latest=-10"),
        ("traffic", "name", "=100"),
        ("predict", "name"),
        ("predict", "name", "-d", "{"),
        ("predict", "name", "-d", "{}", "--example"),
        ("predict", "name", "-d", "@no-such-file"),
        ("predict", "../name", "-d", "{}"),
        ("predict", "name\r\nX-Bad: 1", "-d", "{}"),
        ("predict", "name", "-d", "{}", "--tag", "x y"),
        ("chat", "../name", "hi"),
        ("chat", "name", "hi", "--tag", "x y"),
        ("chat", "name", " "),
        ("chat", "name", "hi", "--max-tokens", "0"),
        ("chat", "name", "hi", "--temperature", "hot"),
        ("chat", "name", "hi", "--temperature", "-1"),
        ("namespace", "team", "--label", "nothing"),
        ("render",),
        ("render", "-f", "no-such-file.yaml"),
        ("logs", "name", "--tail", "-1"),
        ("up", "--port", "0"),
        ("up", "--port", "http"),
        ("down", "--timeout", "later"),
        ("completion", "tcsh"),
        ("serve",),
        ("dev",),
        ("dev", "missing"),
        ("dev", ".", "--format", "word"),
        ("dev", ".", "--memory-limit", "much"),
        ("dev", ".", "--load-timeout", "0"),
        ("serve", "folder", "--models", "--name", "iris"),
        ("serve", "folder", "--max-batch-size", "0"),
        ("list", "surplus"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(knodel: Knodel, arguments: tuple[str, ...]) -> None:
    done = knodel(*arguments)

    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("knodel: ")
    assert len(done.err.splitlines()) == 1


def empty_options() -> list[tuple[str, ...]]:
    """Return a command line with an empty value for each text option of each verb."""
    lines = []
    for verb in COMMANDS:
        parameters = find_command(verb.split()).params
        for option in parameters:
            if (
                not isinstance(option, click.Option)
                or option.is_flag
                or not isinstance(option.type, click.types.StringParamType)
            ):
                continue
            line = verb.split()
            for other in parameters:
                if other is option or not other.required:
                    continue
                value = other.type.choices[0] if isinstance(other.type, click.Choice) else "x"
                line += [value] if isinstance(other, click.Argument) else [other.opts[0], value]
            lines.append((*line, max(option.opts, key=len), ""))
    return lines


@pytest.mark.parametrize("arguments", empty_options(), ids=" ".join)
def test_an_option_with_an_empty_value_is_refused(knodel: Knodel, arguments: tuple[str, ...]) -> None:
    check(knodel(*arguments), 2, [f"{arguments[-2]} is empty"])


@pytest.mark.bad_input("command-files")
@pytest.mark.parametrize(
    "arguments",
    [
        ("deploy", "-f", "FIFO"),
        ("predict", "name", "-d", "@FIFO"),
        ("secret", "name", "--file", "key=FIFO"),
        ("config", "--config", "FIFO"),
    ],
)
def test_a_named_pipe_is_refused_and_not_waited_for(knodel: Knodel, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "fifo")
    given = [argument.replace("FIFO", str(tmp_path / "fifo")) for argument in arguments]
    check(knodel(*given), 2, ["named pipe"])
    with pytest.raises(errors.UsageError, match="named pipe"):
        mapping_of(None, str(tmp_path / "fifo"))


def test_an_unknown_verb_is_reported_with_a_similar_one(knodel: Knodel) -> None:
    assert "`deploy`" in knodel("depoly").err


def test_without_a_verb_the_help_is_shown(knodel: Knodel) -> None:
    done = knodel()

    assert done.code == 2
    assert all(verb in done.err for verb in VERBS)


def test_ls_is_list(knodel: Knodel) -> None:
    assert knodel("ls", "--help").out == knodel("list", "--help").out.replace("Usage: knodel list", "Usage: knodel ls")


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_help_of_every_verb_has_its_options(knodel: Knodel, verb: str) -> None:
    done = knodel(*verb.split(), "--help")

    assert done.code == 0
    assert done.err == ""
    assert f"Usage: knodel {verb}" in done.out
    assert ("--namespace" in done.out) is (verb not in WITHOUT_NAMESPACE)
    assert ("--output" in done.out) is (verb not in WITHOUT_FORMAT)
    assert ("--state" in done.out) is (verb not in CLUSTER | WITHOUT_PLATFORM)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_help_of_every_verb_has_an_example_of_it(verb: str) -> None:
    lines = [line.removeprefix('eval "$(') for line in examples_of(find_command(verb.split()))]

    assert lines
    assert all(f"{line} ".startswith(f"knodel {verb} ") for line in lines)


@pytest.mark.parametrize("example", [line for verb in COMMANDS for line in examples_of(find_command(verb.split()))])
def test_every_example_is_a_command_that_the_verb_takes(example: str) -> None:
    parse_command(example)


def test_the_help_names_every_verb(knodel: Knodel) -> None:
    out = knodel("--help").out

    assert all(verb in out for verb in VERBS)


def test_version_is_printed(knodel: Knodel) -> None:
    assert knodel("--version").out.strip()[0].isdigit()


@pytest.mark.parametrize(
    "arguments", [("list",), ("get", "x"), ("deploy", "x", "--min", "1"), ("predict", "x", "-d", "{}")]
)
def test_without_a_platform_the_remedy_is_named(knodel: Knodel, arguments: tuple[str, ...]) -> None:
    done = knodel(*arguments)

    assert done.code == 1
    assert "knodel up --detach" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_traceback_comes_with_debug_alone_and_the_exit_code_stays(knodel: Knodel) -> None:
    plain, debug = knodel("traffic", "x", "bad"), knodel("--debug", "traffic", "x", "bad")

    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err
    assert debug.err.endswith(plain.err)
    assert debug.code == plain.code == 2


def facts(control: str) -> str:
    """Write `platform.json` with this address (as JSON) of the control API."""
    known = '"pid": 1, "start_ticks": 1, "version": "", "state": "", "gateway": "a:1", "control_tls": "a:1"'
    return f'{{{known}, "control": {control}}}'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"pid": 1', "platform.json"),
        ("[]", "platform.json"),
        ("\x00", "platform.json"),
        (facts('"a:99999"'), "a:99999"),
        (facts('":80"'), "':80'"),
        (facts("7"), "platform.json"),
    ],
)
@pytest.mark.fault("C3")
def test_a_platform_file_that_was_cut_off_is_named(knodel: Knodel, state: Path, content: str, what: str) -> None:
    state.mkdir()
    (state / "platform.json").write_text(content)

    done = knodel("list")

    assert done.code == 1
    assert what in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KnodelError("x"), 1),
        (errors.ClientError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.DoesNotExist("x"), 3),
        (errors.TimedOut("x"), 4),
        (errors.Unreachable("x"), 1),
        (NotFound("x"), 3),
        (Invalid("x", [FieldError("spec", "y")]), 2),
        (AlreadyExists("x"), 1),
        (Conflict("x"), 1),
        (Forbidden("x"), 1),
        (Gone("x"), 1),
        (Unavailable("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: KnodelError, code: int) -> None:
    assert errors.exit_code_of(error) == code


def test_every_command_error_is_in_the_table() -> None:
    known = {errors.UsageError, errors.DoesNotExist, errors.TimedOut, errors.ModelError, errors.Unreachable}
    assert set(errors.ClientError.__subclasses__()) == known


def test_a_command_as_a_process_ends_with_its_exit_code_and_without_a_traceback(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "serving.cli.main", "list"], capture_output=True, text=True, check=False, timeout=30
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"knodel: no platform runs on {state}: start one with `knodel up --detach`\n"
