"""Messages of a verb that cannot import a module."""

from __future__ import annotations

import sys

import pytest

from serving.cli.base.missing import explain_missing


@pytest.mark.parametrize(
    ("verb", "module", "installed"),
    [
        ("up", "uvloop", "'knodel[platform]'"),
        ("serve", "starlette.applications", "'knodel[server]'"),
        ("explain", "numpy", "'numpy'"),
        ("gpus", "pynvml", "'knodel[gpu]'"),
        ("install", "kubernetes.aio", "'knodel[kubernetes]'"),
        ("events", "msgspec", "'knodel[kubernetes]'"),
    ],
)
def test_an_absent_package_is_named_with_the_command_that_installs_it(verb: str, module: str, installed: str) -> None:
    message = explain_missing(verb, module)

    package = module.partition(".")[0]
    assert message.startswith(f"`knodel {verb}` needs the package {package}, which is not installed: `")
    assert f"pip install {installed}" in message


@pytest.mark.parametrize(("platform", "system"), [("win32", "Windows"), ("darwin", "macOS"), ("aix", "aix")])
def test_a_module_that_only_linux_has_names_the_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, system: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    assert f"works on Linux, and this is {system}" in explain_missing("up", "fcntl")


@pytest.mark.parametrize("module", ["serving.cli.nothing", "clusters", ""])
def test_an_absent_module_of_our_own_is_a_bug(module: str) -> None:
    assert explain_missing("list", module) == ""
