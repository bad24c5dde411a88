"""The versions that the testbed runs are those of the go.mod files, and fit each other."""

from __future__ import annotations

import re

import pytest

from tests.testbed import versions
from tests.testbed.errors import TestbedError

MODULES = {
    module.name: module
    for module in (*versions.BASE, *versions.OPTIONAL, *versions.ON_HOST, *versions.TOOLS, versions.CONFORMANCE)
}


def test_the_pinned_releases_are_the_ones_that_knodel_is_seen_on() -> None:
    pinned = {name: module.version for name, module in MODULES.items()}
    assert (pinned["kubernetes"], pinned["serving"], pinned["eventing"]) == ("v1.35.4", "v0.50.0", "v0.50.0")
    assert pinned["conformance"] == pinned["serving"]
    assert pinned["pause"] == ""


def test_kubernetes_is_told_its_version_and_the_others_are_not() -> None:
    assert "-X k8s.io/component-base/version.gitVersion=v1.35.4" in MODULES["kubernetes"].link_flags
    assert MODULES["serving"].link_flags == "-s -w"


def test_helm_is_told_its_version_and_the_kubernetes_of_its_client() -> None:
    flags = MODULES["helm"].link_flags
    assert f"version.version={MODULES['helm'].version}" in flags
    assert "chartutil.k8sVersionMajor=1" in flags and "chartutil.k8sVersionMinor=34" in flags


def test_all_staging_modules_are_of_the_release_of_kubernetes() -> None:
    text = (MODULES["kubernetes"].folder / "go.mod").read_text()
    staged = set(re.findall(r"k8s\.io/\S+ => k8s\.io/\S+ (v\S+)", text))
    assert staged == {MODULES["kubernetes"].version.replace("v1.", "v0.")}


def test_no_two_modules_build_a_binary_of_the_same_name() -> None:
    names = [name for module in MODULES.values() for name in (*module.binaries, *module.tests)]
    assert len(names) == len(set(names))


def test_a_module_that_is_not_required_is_named() -> None:
    with pytest.raises(TestbedError, match=r"does not require example\.com/none"):
        versions.required("example.com/none", "module a\n")
