"""Test the checks of a tag, and the manifest of the kubectl plugin."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.release import krew, plugin, versions
from tests.release.environments import find_python, free_ports

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2027-01-01)\n\n## 0.1.0\n"


@pytest.mark.parametrize(
    ("tag", "version"),
    [("v0.1.0", "0.1.0"), ("v1.0.0rc1", "1.0.0rc1"), ("0.1.0", ""), ("v0.1", ""), ("v0.1.0-1", ""), ("latest", "")],
)
def test_the_version_of_a_tag(tag: str, version: str) -> None:
    assert versions.version_of_tag(tag) == version


@pytest.mark.parametrize(
    ("tag", "places", "words"),
    [
        ("v0.2.0", {"pyproject.toml": "0.2.0"}, ""),
        ("v0.1.0", {"pyproject.toml": "0.1.0"}, ""),
        ("v0.2.0", {"pyproject.toml": "0.2.0", "chart": "0.1.0"}, "chart has version 0.1.0, the tag 0.2.0"),
        ("v0.3.0", {"pyproject.toml": "0.3.0"}, "no section `## 0.3.0`"),
        ("v0.2.00", {}, "not a tag of a release"),
    ],
)
def test_a_tag_is_released_only_if_everything_has_its_version(tag: str, places: dict[str, str], words: str) -> None:
    found = versions.tag_problems(tag, places, CHANGELOG)

    assert bool(found) is bool(words)
    assert words in " ".join(found)


def test_the_manifest_for_krew_has_what_its_index_requires() -> None:
    """https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/: a short description has at most 50 characters."""
    manifest = krew.make_krew_manifest("0.1.0", "https://example.org/v0.1.0", "a" * 64)

    spec = manifest["spec"]
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["metadata"] == {"name": "knodel"}
    assert spec["version"] == "v0.1.0"
    assert len(spec["shortDescription"]) <= 50 and not spec["shortDescription"].endswith(".")
    [platform] = spec["platforms"]
    assert platform["uri"] == "https://example.org/v0.1.0/kubectl-knodel-0.1.0.tar.gz"
    assert platform["bin"] == "kubectl-knodel" and platform["sha256"] == "a" * 64
    assert platform["selector"]["matchExpressions"][0]["values"] == ["darwin", "linux"]


def test_an_archive_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    packed = []
    for name in ("one", "another"):
        folder = tmp_path / name
        (folder / "lib").mkdir(parents=True)
        for file in (krew.PROGRAM, "lib/a.py", "lib/a.so", "lib/direct_url.json", "lib/a.pyc"):
            (folder / file).write_text(name if file.endswith("json") else "content")
        packed.append(plugin.pack(folder, plugin.kept(folder), 1_700_000_000))

    assert packed[0] == packed[1]
    with tarfile.open(fileobj=io.BytesIO(packed[0])) as archive:
        modes = {one.name: (one.mode, one.mtime, one.uid) for one in archive}
    assert modes == {krew.PROGRAM: (0o755, 1_700_000_000, 0), "lib/a.py": (0o644, 1_700_000_000, 0)}


def test_an_interpreter_that_is_not_here_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))

    assert find_python("3.12") is None
    assert find_python("3.13") is None


def test_free_ports_follow_each_other() -> None:
    assert free_ports(3) % 10 == 0
