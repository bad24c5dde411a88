"""The list of what Knodel consists of: valid, complete, without the tools of developers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packageurl import PackageURL

from clusters.base.distribution import VERSION
from tests.security.sbom import NOT_HERE, write_bom


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The document, as it is written."""
    path = tmp_path_factory.mktemp("sbom") / "sbom.cdx.json"
    write_bom(path)
    return path.read_text()


@pytest.fixture(scope="module")
def sbom(text: str) -> dict[str, Any]:
    """The document."""
    return dict(json.loads(text))


def test_it_is_valid_by_the_schema(text: str) -> None:
    from cyclonedx.schema import SchemaVersion  # an import of a second, which all workers would pay
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_it_is_about_this_version(sbom: dict[str, Any]) -> None:
    about = sbom["metadata"]["component"]
    assert (about["name"], about["version"]) == ("knodel", VERSION)


def test_what_the_core_and_the_extras_need_is_in_it_with_what_follows(sbom: dict[str, Any]) -> None:
    names = {one["name"] for one in sbom["components"]}
    missing = {one["value"] for one in sbom["metadata"].get("properties", ()) if one["name"] == NOT_HERE}
    assert {"aiohttp", "starlette", "cryptography", "cffi", "onnxruntime", "botocore", "grpcio"} <= names
    assert missing <= {"huggingface-torch", "mlflow"}


def test_tools_of_developers_are_not_in_it(sbom: dict[str, Any]) -> None:
    names = {one["name"] for one in sbom["components"]}  # pytest is in it: locust needs it
    assert not names & {"pytest-xdist", "mypy", "ruff", "hypothesis", "cyclonedx-python-lib", "moto"}


def test_each_component_has_its_version_as_pinned_and_its_address(sbom: dict[str, Any]) -> None:
    constraints = (Path(__file__).parents[2] / "requirements" / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split(" ;")[0].strip().split("==") for line in constraints if "==" in line)
    for one in sbom["components"]:
        assert one["version"] == pinned[one["name"]]
        assert PackageURL.from_string(one["purl"]).name == one["name"]


def test_everything_is_reached_from_knodel(sbom: dict[str, Any]) -> None:
    needs = {one["ref"]: one.get("dependsOn", ()) for one in sbom["dependencies"]}
    reached: set[str] = set()
    waiting = [sbom["metadata"]["component"]["bom-ref"]]
    while waiting:
        reference = waiting.pop()
        if reference not in reached:
            reached.add(reference)
            waiting += needs[reference]
    assert reached == {one["bom-ref"] for one in (*sbom["components"], sbom["metadata"]["component"])}
