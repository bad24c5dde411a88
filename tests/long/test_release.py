"""The distributions of this checkout: two builds are equal, contents are whole, and the plugin of kubectl runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.release.build import UV, build_twice, commit_time, problems, project_version
from tests.release.environments import check_base
from tests.release.krew import PROGRAM
from tests.release.plugin import build_plugin

pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs the uv of `make setup`")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the folder of sdist and wheel. Two builds of them were equal."""
    folder = tmp_path_factory.mktemp("dist")
    build_twice(folder)
    return folder


def test_sdist_and_wheel_are_whole(dist: Path) -> None:
    made = sorted(dist.glob("knodel-*"))

    assert [path.suffix for path in made] == [".whl", ".gz"]
    assert problems(made) == []


def test_the_wheel_works_in_a_clean_environment(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")

    assert len(list(check_base(wheel, Path(sys.executable), tmp_path))) == 3


def test_the_plugin_of_kubectl_is_reproducible_and_runs_from_a_link(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")
    version, epoch = project_version(), int(commit_time())
    archives = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        archive, _ = build_plugin(wheel, version, epoch, "https://example.org", tmp_path / name)
        archives.append(archive)
    with tarfile.open(archives[0]) as packed:
        packed.extractall(tmp_path / "store", filter="data")
    link = tmp_path / PROGRAM
    link.symlink_to(tmp_path / "store" / PROGRAM)  # as krew makes it
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([link, "version", "--client"], env=environment, capture_output=True, text=True, timeout=60)

    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert version in done.stdout, done.stderr
