"""A few of Knative's own tests with our class; all of them: `python -m tests.testbed conformance`."""

from __future__ import annotations

import pytest

from serving.types.settings.settings import Settings
from tests.support.kubernetes import KubeTarget
from tests.testbed import conformance, paths
from tests.testbed.progress import Progress
from tests.testbed.testbed import Testbed

SHORT = (
    "TestServiceCreateListAndDelete",
    "TestSingleConcurrency",
    "TestMustHaveHeadersSet",
    "TestInitialScale",
    "TestScaleToZeroIsFast",
)
"""Of all suites, under a minute together on a quiet machine: create and delete, concurrency, initial scale, zero."""


@pytest.fixture(autouse=True)
def _possible(target: KubeTarget, installed: Settings) -> None:
    where = paths.standard()
    if target.kubeconfig != where.kubeconfig:
        pytest.skip("the images of Knative's tests can be imported into the testbed only")
    if not conformance.is_prepared(where):
        pytest.skip("Knative's tests are not built: `python -m tests.testbed build --conformance`")


def test_knatives_own_tests_pass_with_our_class() -> None:
    progress = Progress()
    asked = conformance.Asked(run=f"^({'|'.join(SHORT)})$")
    results = conformance.conformance(asked, paths.standard(), Testbed(paths.standard(), progress).kubectl, progress)
    shown, deviations = conformance.conclude(asked, results)
    assert not deviations, shown
    assert {result.test for result in results if result.is_top} == set(SHORT)
