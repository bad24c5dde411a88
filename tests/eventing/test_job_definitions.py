"""The hand-written statuses of jobs are valid in the CustomResourceDefinitions of the projects' releases."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from eventing.mapping.jobs import JobKind
from tests.eventing.job_objects import KINDS, completed, failed, running
from tests.manifests.checker import faults
from tests.support.gomodules import module_folder

DEFINITIONS = {
    "trainer.kubeflow.org": "github.com/kubeflow/trainer/v2@v2.0.0",
    "kubeflow.org": "github.com/kubeflow/training-operator@v1.8.1",
}
"""Volcano's are in no module that the Go proxy has; JAXJob came after this release, MPIJob v2beta1 from another one."""
FOLDER = "manifests/base/crds"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it is there
LEFT_OUT = ("JAXJob of kubeflow.org/v1", "MPIJob of kubeflow.org/v2beta1")
FOREIGN = {name: job for name, job in KINDS.items() if job.kind.group in DEFINITIONS and name not in LEFT_OUT}


@pytest.fixture(params=list(FOREIGN.values()), ids=list(FOREIGN))
def kind(request: pytest.FixtureRequest) -> JobKind:
    """Each kind whose controller does not run here."""
    found: JobKind = request.param
    return found


def status_schema(kind: JobKind) -> dict[str, Any]:
    """Return the schema of its status."""
    file = module_folder(DEFINITIONS[kind.kind.group]) / FOLDER / f"{kind.kind.group}_{kind.kind.plural}.yaml"
    definition = yaml.load(file.read_text(), Loader=LOADER)  # noqa: S506  a safe one
    [schema] = [one["schema"] for one in definition["spec"]["versions"] if one["name"] == kind.kind.version]
    assert definition["spec"]["names"]["kind"] == kind.kind.kind
    status: dict[str, Any] = schema["openAPIV3Schema"]["properties"]["status"]
    return status


def test_its_definition_takes_our_statuses_and_no_others(kind: JobKind) -> None:
    schema = status_schema(kind)
    for status in (completed(kind), running(kind), failed(kind)):
        assert list(faults(schema, status)) == []
    assert list(faults(schema, {**completed(kind), "phaze": "Completed"})) == [".phaze"]
