"""`python -m tests.release dist|check|plugin|tag`: build and check the distributions of this checkout.

The exit code is 0, or 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from serving.install.bundle import load_overlay
from tests.release.build import ROOT, build_twice, commit_time, digest, problems, project_version
from tests.release.environments import PYTHONS, check_base, check_platform, find_python
from tests.release.errors import ReleaseError
from tests.release.plugin import build_plugin
from tests.release.versions import tag_problems, version_of_tag


def main(arguments: Sequence[str]) -> int:
    """Run one command; print an error as one line on stderr."""
    asked = _parser().parse_args(arguments)
    try:
        match asked.command:
            case "dist":
                return _dist(asked.out)
            case "check":
                return _check(asked.out, asked.python or PYTHONS, asked.all)
            case "plugin":
                return _plugin(asked.out, asked.download)
            case _:
                return _tag(asked.tag)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1


def _dist(out: Path) -> int:
    made = build_twice(out)
    for path in made:
        print(f"{digest(path)}  {path.name}  {path.stat().st_size} bytes")
    found = problems(made)
    for one in found:
        print(f"release: {one}", file=sys.stderr)
    return 1 if found else 0


def _check(out: Path, versions: Sequence[str], all_needed: bool) -> int:
    """Check the wheel of `out` on each Python; report those that this machine lacks."""
    wheel = _wheel(out)
    lacking = []
    for version in versions:
        python = find_python(version)
        if python is None:
            lacking.append(version)
            continue
        with tempfile.TemporaryDirectory(prefix="knodel-check-") as folder:
            for check in (check_base, check_platform):
                for line in check(wheel, python, Path(folder)):
                    print(f"Python {version}: {line}", flush=True)
    if lacking:
        print(f"not checked, since this machine lacks them: Python {', '.join(lacking)}", file=sys.stderr)
    return 1 if lacking and (all_needed or len(lacking) == len(versions)) else 0


def _plugin(out: Path, download: str) -> int:
    version = project_version()
    for path in build_plugin(_wheel(out), version, int(commit_time()), download, out):
        print(f"{digest(path)}  {path.name}  {path.stat().st_size} bytes")
    return 0


def _tag(tag: str) -> int:
    """Print `version=…` for the workflow if everything has the version of the tag."""
    chart = yaml.safe_load((ROOT / "charts" / "knodel" / "Chart.yaml").read_text())
    [image] = {
        container["image"]
        for obj in load_overlay("production")
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
    }
    versions = {
        "pyproject.toml": project_version(),
        "charts/knodel": str(chart["version"]),
        "manifests/base": image.rpartition(":")[2],
    }
    found = tag_problems(tag, versions, (ROOT / "CHANGELOG.md").read_text())
    for one in found:
        print(f"release: {one}", file=sys.stderr)
    print(f"version={version_of_tag(tag)}")
    return 1 if found else 0


def _wheel(out: Path) -> Path:
    """Return the wheel in `out`. Raises ReleaseError if there is none."""
    wheel = out / f"knodel-{project_version()}-py3-none-any.whl"
    if not wheel.exists():
        raise ReleaseError(f"{wheel} does not exist: `make dist` builds it")
    return wheel


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    dist = commands.add_parser("dist", help="build the sdist and the wheel twice, compare and check them")
    dist.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the results; default: %(default)s")
    check = commands.add_parser("check", help="install the wheel into clean environments and use it there")
    check.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel; default: %(default)s")
    check.add_argument("--python", action="append", choices=PYTHONS, help="only this Python; may be repeated")
    check.add_argument("--all", action="store_true", help="fail if this machine lacks one of the Pythons")
    plugin = commands.add_parser("plugin", help="build the plugin of kubectl out of the wheel, and its manifest")
    plugin.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the results; default: %(default)s")
    plugin.add_argument("--download", required=True, metavar="URL", help="address of the folder with the archive")
    tag = commands.add_parser("tag", help="check that everything has the version of a tag")
    tag.add_argument("tag")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
