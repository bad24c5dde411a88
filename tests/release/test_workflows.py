"""Test the workflows: actionlint finds nothing, permissions are the least, and names are those of the manifests."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from serving.types.settings.settings import Settings
from tests.manifests.chart.generate import CHART
from tests.release.build import ROOT
from tests.release.environments import PYTHONS
from tests.support.tools import tool
from tests.testbed.versions import HELM

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAJOR = re.compile(r"v\d+|release/v1")
"""Versions of actions: the major one, which pypi's action has as a branch."""
WRITING = {
    "distributions": {"id-token", "attestations"},
    "images": {"id-token", "attestations"},
    "chart": {"id-token"},
    "pypi": {"id-token"},
    "publish": {"contents"},
}
"""Job of the release → the permissions that it may write with."""


def workflow(name: str) -> dict[str, Any]:
    """Return a workflow with all scalars as texts: otherwise the key `on` would be True."""
    text = (ROOT / ".github" / "workflows" / name).read_text()
    found: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - makes texts, lists and mappings only
    return found


def steps(name: str) -> Iterator[dict[str, Any]]:
    """Yield the steps of all jobs of a workflow."""
    for job in workflow(name)["jobs"].values():
        yield from job["steps"]


def actions(name: str) -> dict[str, str]:
    """Return the versions of the actions of a workflow."""
    return dict(step["uses"].split("@") for step in steps(name) if "uses" in step)


def test_the_linter_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint"), *WORKFLOWS], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["test.yml", "release.yml"])
def test_actions_have_major_versions_and_leave_no_credentials(name: str) -> None:
    assert all(MAJOR.fullmatch(version) for version in actions(name).values())
    checkouts = [step for step in steps(name) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] == "false" for step in checkouts)


def test_both_workflows_use_the_same_versions() -> None:
    one, other = actions("test.yml"), actions("release.yml")

    assert {name for name in one.keys() & other.keys() if one[name] != other[name]} == set()


def test_tests_may_write_nothing_and_see_no_secret() -> None:
    found = workflow("test.yml")

    assert found["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in found["jobs"].values())
    assert "secrets." not in (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert "pull_request_target" not in found["on"]


def test_each_job_of_a_release_has_the_least_permissions() -> None:
    found = workflow("release.yml")

    assert found["permissions"] == {} or found["permissions"] == "{}"
    writing = {
        name: {what for what, right in job["permissions"].items() if right == "write"}
        for name, job in found["jobs"].items()
    }
    assert writing == WRITING
    with_secrets = {name for name, job in found["jobs"].items() if "secrets." in str(job)}
    assert all(found["jobs"][name]["environment"] == "release" for name in {*with_secrets, "pypi"})


def test_no_run_step_pastes_an_input_of_strangers() -> None:
    """Expressions in scripts are texts that a shell reads: those of events can be anybody's."""
    for path in WORKFLOWS:
        for step in steps(path.name):
            pasted = re.findall(r"\$\{\{\s*([^}]+?)\s*\}\}", step.get("run", ""))
            assert all(one.startswith(("matrix.", "steps.version.", "needs.")) for one in pasted), step


def test_images_are_pushed_under_the_names_that_manifests_and_settings_have() -> None:
    found = workflow("release.yml")
    registry = found["env"]["REGISTRY"]
    pushed = {f"{registry}/{one['image']}" for one in found["jobs"]["images"]["strategy"]["matrix"]["include"]}
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert pushed == {values["image"]["repository"], Settings().server.image.rpartition(":")[0]}
    [build] = [step for step in found["jobs"]["images"]["steps"] if step.get("id") == "build"]
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert build["with"]["sbom"] == "true" and build["with"]["provenance"] == "mode=max"


def test_both_workflows_build_the_same_images() -> None:
    released = workflow("release.yml")["jobs"]["images"]["strategy"]["matrix"]["include"]
    tested = workflow("test.yml")["jobs"]["images"]["strategy"]["matrix"]["include"]

    for extras in {one["extras"] for one in released}:
        assert {one["platform"] for one in tested if one["extras"] == extras} == {"linux/amd64", "linux/arm64"}


def test_distributions_are_checked_on_every_python_and_the_chart_by_the_tested_helm() -> None:
    for name in ("test.yml", "release.yml"):
        [job] = [job for key, job in workflow(name)["jobs"].items() if key == "distributions"]
        [setup] = [step for step in job["steps"] if step.get("uses", "").startswith("actions/setup-python@")]
        assert sorted(setup["with"]["python-version"].split()) == sorted(PYTHONS)
        assert any("tests.release check --all" in step.get("run", "") for step in job["steps"])
    [helm] = [step for step in steps("release.yml") if step.get("uses", "").startswith("azure/setup-helm@")]
    assert helm["with"]["version"] == HELM.version
