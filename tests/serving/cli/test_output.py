"""Test the output on stdout: escaped for a terminal, valid JSON and YAML, and no error on a closed pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serving.cli.base.output import Output, clean

HOSTILE = "red \x1b[31m, bell \x07, line\nbreak, C1 \x9b2J, right-to-left \u202e, half \ud800, null \x00, ü, 模, 🙂"
KNODEL = [sys.executable, "-m", "serving.cli.main"]


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C5")
def test_no_control_character_reaches_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").table(["na\x1bme"], [[HOSTILE]])

    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert "ü, 模, 🙂" in lines[1]


@pytest.mark.parametrize("format", ["json", "yaml"])
@pytest.mark.fault("C5")
def test_no_control_character_reaches_json_or_yaml_and_the_value_stays(
    capsys: pytest.CaptureFixture[str], format: str
) -> None:
    value = {"metadata": {"name": HOSTILE.replace("\ud800", "")}}

    Output(format).value(value)

    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert (json.loads(text) if format == "json" else yaml.safe_load(text)) == value


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), st.lists, max_leaves=5))
def test_any_value_is_printed_as_json_that_reads_the_same(value: object) -> None:
    from serving.cli.base.output import _escaped

    assert json.loads(_escaped(json.dumps(value, indent=2, ensure_ascii=False))) == value


def test_people_read_their_own_letters_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").value({"version": "größer"})

    assert "größer" in capsys.readouterr().out


@given(st.text())
@pytest.mark.fault("C5")
def test_a_cleaned_text_is_printable(text: str) -> None:
    assert clean(text).isprintable()


def test_the_newline_that_ends_a_containers_message_is_not_shown() -> None:
    assert clean("the server answered 404\n") == "the server answered 404"


def run(*arguments: str, stdout: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process with this stdout."""
    return subprocess.run(
        [*KNODEL, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
    )


@pytest.mark.fault("C3")
def test_a_reader_that_left_ends_the_command_quietly() -> None:
    read, write = os.pipe()
    os.close(read)

    done = run("config", stdout=write)

    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.fault("C3")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = run("config", stdout=full.fileno())

    assert done.returncode == 1
    assert done.stderr == "knodel: cannot write to stdout: No space left on device\n"


@pytest.mark.fault("C3")
def test_a_closed_stdout_is_one_line() -> None:
    command = f"exec {sys.executable} -m serving.cli.main config >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=30)

    assert done.returncode == 1
    assert done.stderr == "knodel: stdout is closed: open it, or redirect it to a file\n"


def test_an_ascii_terminal_gets_escapes() -> None:
    done = run("--help", stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert done.stdout.isascii()
