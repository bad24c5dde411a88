"""A few of Knative's own tests with our class; all of them: `python -m tests.testbed conformance`."""

from __future__ import annotations

import pytest

from serving.apis.settings import Settings
from tests.support.kubernetes import KubeTarget
from tests.testbed import conformance, paths
from tests.testbed.progress import Progress
from tests.testbed.testbed import Testbed

SHORT = {
    "api": ("TestBlueGreenRoute", "TestRouteCreation"),
    "runtime": ("TestMustHaveHeadersSet",),
    "scaling": ("TestInitialScale", "TestScaleToZeroIsFast"),
}
"""Tests of each suite that together take less than a minute: traffic, initial scale, zero."""


@pytest.fixture(autouse=True)
def _possible(target: KubeTarget, installed: Settings) -> None:
    where = paths.standard()
    if target.kubeconfig != where.kubeconfig:
        pytest.skip("the images of Knative's tests can be imported into the testbed only")
    if not conformance.is_prepared(where):
        pytest.skip("Knative's tests are not built: `python -m tests.testbed build --conformance`")


@pytest.mark.parametrize("suite", SHORT)
def test_knatives_own_tests_pass_with_our_class(suite: str) -> None:
    progress = Progress()
    asked = conformance.Asked(suites=(suite,), run=f"^({'|'.join(SHORT[suite])})$")
    results = conformance.conformance(asked, paths.standard(), Testbed(paths.standard(), progress).kubectl, progress)
    shown, deviations = conformance.conclude(asked, results)
    assert not deviations, shown
