"""The progress of a long call, in a real terminal, in a kernel of a notebook, and where nobody watches."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from knodel.display.progress import NotebookProgress, new_progress, notebook_line, percent_of, text_bar
from serving.client.blocking import NoProgress
from tests.knodel.display.test_display import Page

ROOT = Path(__file__).parents[3]
CALL = """
import sys
from knodel.display.progress import new_progress
progress = new_progress({shown})
progress.show("uploading 3 of 10 (30 %)")
progress.show("iris: loading")
progress.clear()
print(sorted({{name.partition(".")[0] for name in sys.modules}} & {{"IPython", "click", "tqdm", "rich"}}))
"""


class Handle:
    """What `display(…, display_id=True)` of IPython returns."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def __call__(self, value: Any, *, display_id: bool) -> Handle:
        assert display_id
        self.shown.append(value)
        return self

    def update(self, value: Any) -> None:
        self.shown.append(value)


def call(shown: bool, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    code = CALL.format(shown=shown)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, **streams)


def test_a_terminal_gets_a_line_that_is_removed() -> None:
    ours, theirs = pty.openpty()
    done = call(True, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 10000).decode()
    os.close(ours)
    assert "██████░░░░░░░░░░░░░░ uploading 3 of 10 (30 %)" in shown
    assert shown.endswith("\r\033[K")
    assert done.stdout == b"['click']\n"


@pytest.mark.parametrize("shown", [True, False])
def test_a_pipe_gets_nothing_and_nothing_is_imported(shown: bool) -> None:
    done = call(shown, stderr=subprocess.PIPE)
    assert (done.stdout, done.stderr) == (b"[]\n", b"")


def test_no_progress_on_request() -> None:
    assert isinstance(new_progress(False), NoProgress)


def test_a_notebook_gets_one_output_that_is_updated() -> None:
    handle, now = Handle(), [0.0]
    progress = NotebookProgress(handle, lambda: now[0])

    for at, text in ((0.0, "a (1 %)"), (0.05, "b (2 %)"), (0.2, "c (3 %)"), (0.25, "d")):
        now[0] = at
        progress.show(text)
    assert [repr(one) for one in handle.shown] == ["a (1 %)", "c (3 %)"]  # one message in 0.1 s
    progress.clear()
    assert repr(handle.shown[-1]) == Page(handle.shown[-1]._repr_html_()).text == "0.2 s"


def test_a_call_without_progress_leaves_no_output() -> None:
    handle = Handle()
    NotebookProgress(handle).clear()
    assert not handle.shown


def test_a_bar_has_its_percentage_as_text() -> None:
    page = Page(notebook_line("<b>up</b> (30 %)", 1.25))
    assert page.text == "<b>up</b> (30 %) 1.2 s"
    assert page.attributes("aria-valuenow") == ["30"]


@pytest.mark.parametrize(("text", "percent"), [
    ("downloading 412 MiB of 1.3 GiB (30 %)", 30), ("(100%)", 100), ("(0 %)", 0), ("at 99 % confidence", None),
    ("(101 %)", None), ("", None),
])  # fmt: skip
def test_the_percentage_of_a_text(text: str, percent: int | None) -> None:
    assert percent_of(text) == percent


def test_the_bar_of_a_terminal() -> None:
    assert (text_bar(0), text_bar(100)) == ("░" * 20, "█" * 20)
