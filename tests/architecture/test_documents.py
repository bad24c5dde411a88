"""Documents name files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|toml|ya?ml|md))(?:::\w+)?`")
MODULE = re.compile(r"`((?:clusters|autoscaler|eventing|serving|knodel|loadtests)(?:\.[a-z_0-9]+)+)(?:\.[A-Z]\w*)?`")


def pages() -> Iterator[Path]:
    """Yield every document of the project."""
    for pattern in ("*.md", "docs/**/*.md", "manifests/**/*.md", "tests/**/*.md", "examples/**/*.md"):
        yield from ROOT.glob(pattern)


def is_module(name: str) -> bool:
    """Return whether `name` is a module or package, or a name that one of them defines."""
    path = ROOT / name.replace(".", "/")
    package = path.parent / "__init__.py"
    return (
        path.is_dir()
        or path.with_suffix(".py").exists()
        or path.parent.with_suffix(".py").exists()
        or (package.exists() and path.name in package.read_text(encoding="utf-8"))
    )


def test_links_lead_to_files() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead


def test_files_that_are_named_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in FILE.findall(page.read_text(encoding="utf-8"))
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "tests", page.parent))
    ]
    assert not missing


def test_modules_that_are_named_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in MODULE.findall(page.read_text(encoding="utf-8"))
        if not is_module(name)
    ]
    assert not missing
