"""Missing packages come from apt; no service of theirs starts, and nothing of how that is done stays behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed import debian
from tests.testbed.errors import MachineLacks

Apt = Callable[[str], None]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy-rc.d"


@pytest.fixture
def apt(tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> Apt:
    """A machine that lacks `knodel-tool`; takes what its apt-get does, after it wrote down what it is told."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(debian, "PROGRAMS", {"knodel-tool": "tools"})

    def make(action: str) -> None:
        program = tmp_path / "bin" / "apt-get"
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/told\ncat {policy} >>{tmp_path}/policies\n{action}\n')
        program.chmod(0o755)

    return make


def test_what_is_missing_is_installed_while_a_policy_keeps_services_off(apt: Apt, policy: Path, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "knodel-tool"
    apt(f"case $* in *install*) touch {tool}; chmod 755 {tool};; esac")
    assert debian.ensure(print, policy) is True
    assert (tmp_path / "told").read_text().splitlines()[-1].endswith("--no-remove tools")
    assert (tmp_path / "policies").read_text().count("exit 101") == 2
    assert not policy.exists()
    assert debian.ensure(print, policy) is False


def test_a_source_that_is_out_of_order_is_told_and_does_not_hinder(apt: Apt, policy: Path, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "knodel-tool"
    apt(f"case $* in *install*) touch {tool}; chmod 755 {tool};; *) echo no such host >&2; exit 100;; esac")
    reports: list[str] = []
    assert debian.ensure(reports.append, policy) is True
    assert "no such host" in reports[-1]


def test_packages_that_cannot_be_had_are_named_and_the_policy_goes(apt: Apt, policy: Path) -> None:
    apt("exit 100")
    with pytest.raises(MachineLacks, match="lacks tools, and apt cannot install them"):
        debian.ensure(print, policy)
    assert not policy.exists()


def test_a_package_without_its_program_is_named(apt: Apt, policy: Path) -> None:
    apt("exit 0")
    with pytest.raises(MachineLacks, match="tools is installed, but not where Debian has it"):
        debian.ensure(print, policy)


def test_the_machines_own_policy_stays_and_one_of_a_killed_run_goes(apt: Apt, policy: Path) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n")
    apt("exit 100")
    with pytest.raises(MachineLacks):
        debian.ensure(print, policy)
    assert policy.read_text().endswith("exit 0\n")
    policy.write_text(debian.POLICY_TEXT)
    debian.clear_policy(policy)
    assert not policy.exists()
