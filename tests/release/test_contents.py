"""Test what a distribution must contain, on this checkout and on faulty lists and metadata."""

from __future__ import annotations

import tomllib

import pytest

from serving.cli.projects import TEMPLATES
from serving.install.bundle import DASHBOARD, OVERLAYS, rendered_path
from tests.release import contents
from tests.release.build import ROOT, project_version, tracked_files
from tests.release.environments import PYTHONS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TRACKED = ["knodel/__init__.py", "knodel/py.typed", "serving/a.binpb", "tests/test_a.py", "README.md"]
DESCRIPTION = (ROOT / "docs" / "package.md").read_text()


def metadata(**changed: str) -> bytes:
    """Return metadata as the backend writes it; an empty value leaves the field out."""
    fields = {
        "Metadata-Version": "2.4",
        "Name": "knodel",
        "Version": "0.1.0",
        "License-Expression": "Apache-2.0",
        "License-File": "LICENSE",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    return "\n".join([*(f"{name}: {value}" for name, value in fields.items() if value), "", "text"]).encode()


def test_a_wheel_has_the_tracked_files_of_our_packages() -> None:
    names = ["knodel/__init__.py", "knodel/py.typed", "serving/a.binpb", "knodel-0.1.0.dist-info/METADATA"]

    assert contents.check_wheel(names, TRACKED) == []
    assert contents.check_wheel(names[:2], TRACKED) == ["the wheel lacks serving/a.binpb"]
    assert contents.check_wheel([*names, "tests/test_a.py"], TRACKED) == [
        "the wheel has tests/test_a.py, which is not a tracked file",
        "the wheel has tests/test_a.py",
    ]


def test_an_sdist_has_what_a_build_needs() -> None:
    names = [*contents.packaged(TRACKED), *contents.SOURCE_ONLY, "PKG-INFO"]

    assert contents.check_sdist(names, TRACKED) == []
    assert contents.check_sdist([*names, "knodel/__pycache__/a.pyc"], TRACKED) == [
        "the sdist has knodel/__pycache__/a.pyc, which is not a tracked file",
        "the sdist has knodel/__pycache__/a.pyc",
    ]
    assert contents.check_sdist(set(names) - {"LICENSE"}, TRACKED) == ["the sdist lacks LICENSE"]


def test_the_settings_of_the_build_name_the_same_files() -> None:
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]

    assert sorted(targets["wheel"]["packages"]) == sorted(contents.PACKAGES)
    assert {*targets["sdist"]["only-include"], "pyproject.toml"} == {*contents.PACKAGES, *contents.SOURCE_ONLY}
    assert all((ROOT / name).exists() for name in contents.SOURCE_ONLY)


def test_data_that_the_command_reads_is_in_the_packages() -> None:
    """`knodel install` applies the rendered overlays, `knodel init` copies the templates."""
    names = set(contents.packaged(tracked_files()))
    needed = [*(rendered_path(name) for name in (*OVERLAYS, DASHBOARD)), *TEMPLATES.glob("*/model.yaml")]

    assert {str(path.relative_to(ROOT)) for path in needed} <= names
    assert {f"{package}/py.typed" for package in contents.PACKAGES} <= names
    assert any(name.endswith(".binpb") for name in names) and "serving/control_api/schemas.json" in names


def test_metadata_as_an_index_reads_it() -> None:
    assert contents.check_metadata(metadata(), "0.1.0") == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"Version": "0.2.0"}, "the version is '0.2.0', not '0.1.0'"),
        ({"License_Expression": "NoLicence-9"}, "license"),
        ({"Requires_Python": ""}, "requires-python is missing"),
        ({"Description_Content_Type": "text/plain"}, "text/plain"),
        ({"Requires_Dist": "click >>= 8"}, "requires-dist"),
        ({"Metadata_Version": ""}, "metadata version"),
    ],
)
def test_faulty_metadata_is_reported(changed: dict[str, str], words: str) -> None:
    assert words in " ".join(contents.check_metadata(metadata(**changed), "0.1.0")).lower().replace("_", "-")


def test_the_page_of_the_index_has_no_links_that_lead_nowhere() -> None:
    assert contents.check_relative_links(DESCRIPTION) == []
    [problem] = contents.check_relative_links("[tour](docs/tour.md), [site](https://knodel.dev)")
    assert "docs/tour.md" in problem


def test_every_python_that_is_checked_is_a_classifier() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    versions = [one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: 3.")]

    assert tuple(versions) == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert project_version() == PROJECT["project"]["version"]
