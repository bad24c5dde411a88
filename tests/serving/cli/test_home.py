"""Test the state folder of a user, with and without a home folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving.client.errors import UsageError
from serving.client.home import expand_home
from serving.client.state import state_folder
from tests.serving.cli.conftest import Knodel, check

UNKNOWN = 54_321  # a uid that /etc/passwd does not have, as in many containers


@pytest.fixture
def homeless(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a user without HOME and without an entry in /etc/passwd, who gives no state folder."""
    for name in ("HOME", "KNODEL_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("verb", [("list",), ("up",), ("down",), ("doctor",)], ids=" ".join)
def test_without_a_home_folder_the_remedy_is_named(knodel: Knodel, verb: tuple[str, ...]) -> None:
    check(knodel(*verb), 2, ["has no home folder", "--state", "KNODEL_STATE"])


@pytest.mark.usefixtures("homeless")
def test_without_a_home_folder_a_named_state_folder_works(knodel: Knodel, tmp_path: Path) -> None:
    assert knodel("down", "--state", str(tmp_path / "none")).code == 0


@pytest.mark.usefixtures("homeless")
def test_without_a_home_folder_serve_needs_none(knodel: Knodel, tmp_path: Path) -> None:
    done = knodel("serve", str(tmp_path), "--models", "--name", "both")

    check(done, 2, ["--name cannot be used with --models"])


@pytest.mark.usefixtures("homeless")
def test_a_path_below_a_home_folder_that_is_not_known_is_named() -> None:
    with pytest.raises(UsageError, match=r"~/model\.onnx: the home folder of ~"):
        expand_home("~/model.onnx")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/var/state", "/var/state/knodel"), ("state", "{home}/.local/state/knodel"), ("", "{home}/.local/state/knodel")],
)
def test_a_relative_xdg_state_home_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, expected: str
) -> None:
    monkeypatch.delenv("KNODEL_STATE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", value)

    assert state_folder(None) == Path(expected.format(home=tmp_path))
