"""Test tables: fitted to the width of a terminal and coloured there, complete elsewhere."""

from __future__ import annotations

import asyncio
import io

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cli.base.output import Output, ProgressLine, progress_line
from serving.cli.base.tables import display_width, lay_out, shorten
from tests.serving.cli.conftest import Served
from tests.support.terminal import run_on_terminal

URI = "https://models.example.com/teams/vision/iris/model.onnx"
HEADS = ["NAME", "READY", "VERSION", "URL", "STORAGE"]
ROWS = [
    ["iris", "True", "", "http://iris.default.localhost:8080", URI],
    ["a-model-with-a-long-name", "False", "", "http://a-model-with-a-long-name.default.localhost:8080", URI],
]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("iris", 4, "iris"),
        (URI, 20, "https://m…model.onnx"),
        ("the model is not ready yet", 18, "the model is not…"),
        ("the model, not ready", 11, "the model…"),
        ("模型模型模型", 8, "模…模型"),
    ],
)
def test_a_cell_is_shortened_at_a_sensible_place(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


@given(st.text(st.characters(exclude_categories=["C", "Z", "M"])), st.integers(1, 40))
def test_a_shortened_cell_fits(text: str, width: int) -> None:
    assert display_width(shorten(text, width)) <= width


def lines(columns: int | None, optional: tuple[str, ...] = (), wrapped: str = "") -> list[str]:
    """Return the table of ROWS on a terminal of this width."""
    return lay_out([HEADS, *ROWS], columns, optional=optional, wrapped=wrapped).splitlines()


def test_without_a_terminal_every_column_and_cell_is_whole() -> None:
    shown = lines(None, optional=("url",))

    assert shown[0].split() == HEADS
    assert shown[2].split() == [cell for cell in ROWS[1] if cell]


def test_a_terminal_loses_empty_columns_then_optional_ones() -> None:
    assert lines(300)[0].split() == ["NAME", "READY", "URL", "STORAGE"]
    assert lines(80, optional=("url",))[0].split() == ["NAME", "READY", "STORAGE"]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_every_line_fits_and_names_stay_whole(columns: int) -> None:
    shown = lines(columns, optional=("url", "storage"))

    assert all(len(line) <= columns for line in shown)
    assert [line.split()[0] for line in shown] == ["NAME", "iris", "a-model-with-a-long-name"]


def test_a_wrapped_column_goes_on_below_and_loses_nothing() -> None:
    message = "the first replica did not start: its image cannot be pulled"
    shown = lay_out([["CHECK", "WHAT"], ["replicas", message]], 40, wrapped="what").splitlines()

    assert all(len(line) <= 40 for line in shown)
    assert " ".join(" ".join(shown[1:]).split()) == f"replicas {message}"


def test_states_are_coloured_and_other_cells_are_not() -> None:
    text = lay_out([["NAME", "READY"], ["True", "True"], ["x", "False"]], None, coloured=True)

    assert click.style("True ", fg="green").rstrip() in text or click.style("True", fg="green") in text
    assert click.style("False", fg="red") in text
    assert text.count("\x1b[32m") == 1


def test_a_table_without_rows_keeps_its_heads() -> None:
    assert lay_out([["NAME", "READY"]], 80) == "NAME   READY\n"
    assert lay_out([["NAME", "READY", "STORAGE"]], 14) == "NAME  READY\n"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stdout and stderr a terminal of 80 columns until the end of the test."""
    stream = Terminal()
    for name, value in (("COLUMNS", "80"), ("TERM", "xterm"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    return stream


@pytest.mark.parametrize(("variable", "value", "coloured"), [("NO_COLOR", "1", False), ("NO_COLOR", "", True),
                                                             ("TERM", "dumb", False)])  # fmt: skip
def test_no_color_and_dumb_terminals_get_no_colour(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, coloured: bool
) -> None:
    terminal = make_terminal(monkeypatch)
    monkeypatch.setenv(variable, value)

    Output("table").table(["ready"], [["True"]])

    assert ("\x1b[" in terminal.getvalue()) is coloured


def test_wide_output_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    Output("wide").table(["name", "storage", "empty"], [["iris", URI * 3, ""]])

    assert URI * 3 in terminal.getvalue()
    assert "EMPTY" in terminal.getvalue()


@pytest.mark.parametrize(
    ("seconds", "columns", "line"),
    [
        (0.4, 80, "iris: loading (onnx)"),
        (12.3, 80, "12s  iris: loading (onnx)"),
        (12.3, 12, "12s  iris: "),
    ],
)
def test_a_wait_shows_its_seconds_first(seconds: float, columns: int, line: str) -> None:
    assert progress_line("iris: loading (onnx)", seconds, columns) == line


def test_a_wait_is_redrawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    clock = iter([0.0, 0.0, 61.0])
    progress = ProgressLine(lambda: next(clock))

    progress.show("starting")
    progress.show("nearly there")
    progress.clear()

    assert terminal.getvalue().split("\r\x1b[K") == ["", "starting", "61s  nearly there", ""]


async def test_list_and_history_fit_a_terminal_of_80_columns(served: Served) -> None:
    name = "a-model-of-a-team"
    split = [{"revision": f"{name}-0000{one}", "percent": 50} for one in (1, 2)]
    record = {"version": "", "outcome": "promoted", "cause": {"by": "user"}, "at": "2026-11-24T12:00:00Z"}
    history = [{**record, "revision": f"{name}-0000{one}", "storageUri": URI} for one in (1, 2)]
    url = f"http://{name}.default.example.com"
    ready = {"type": "Ready", "status": "True"}
    await served.deploy_two_versions(
        name, {"traffic": split, "history": history, "url": url, "conditions": [ready], "replicas": {"desired": 1}}
    )

    for verb, storage in ((["list"], URI), (["history", name], URI)):
        narrow = await asyncio.to_thread(run_on_terminal, *verb)
        wide = await asyncio.to_thread(run_on_terminal, *verb, "-o", "wide")
        piped = await served.knodel(*verb)

        assert narrow.code == 0
        assert all(len(line) <= 80 for line in narrow.lines)
        assert all(name in line for line in narrow.lines[1:])
        assert "\x1b[1m" in narrow.raw
        assert storage in wide.raw
        assert "…" not in wide.raw + piped.out
        assert "\x1b" not in piped.out
