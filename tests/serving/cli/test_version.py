"""Test `knodel version`: the command, a platform, a cluster, and warnings about versions that are too far apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.base.distribution import VERSION
from clusters.base.objects import Object
from clusters.embedded.store.lock import FolderLock
from serving.cli.doctor import versions
from tests.serving.cli.conftest import Config, Knodel, announce
from tests.serving.cli.kube import CONTEXT, FakeApi, Reply, Seen, failure

HERE = ("--kube-context", CONTEXT)


def deployment(name: str, image: str, label: str = "") -> Object:
    labels = {versions.LABEL_VERSION: label} if label else {}
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("image", "label", "version"),
    [
        ("knodel.dev/controller:0.1.0", "", "0.1.0"),
        ("registry.test:5000/a/b:0.2.1@sha256:12", "0.2.0", "0.2.1"),
        ("registry.test:5000/a/b@sha256:12", "0.2.0", "0.2.0"),
        ("registry.test:5000/a/b", "", versions.UNKNOWN),
        ("registry.test/a/b@sha256:12", "devel", versions.UNKNOWN),
    ],
)
def test_the_version_of_a_component(image: str, label: str, version: str) -> None:
    assert versions.component_versions([deployment("one", image, label)]) == {"one": version}


def test_knatives_label_goes_before_its_images() -> None:
    released = [deployment(name, f"gcr.io/{name}@sha256:1", "1.20.0") for name in ("controller", "webhook")]

    assert versions.knative_version(released) == "1.20.0"
    assert versions.knative_version([deployment("controller", "dev.local/controller:v0.50.0", "devel")]) == "v0.50.0"
    assert versions.knative_version([]) == versions.UNKNOWN


@pytest.mark.parametrize(
    ("ours", "theirs", "warns"),
    [
        ("0.3.1", "0.3.1", False),
        ("0.3.1", "0.3.9", False),
        ("0.3.1", "0.2.0", False),
        ("0.3.1", "0.4.0", False),
        ("0.3.1", "0.1.9", True),
        ("0.3.1", "0.5.0", True),
        ("1.0.0", "0.9.0", True),
        ("0.3.1", "latest", True),
        ("0.3.1", versions.UNKNOWN, False),
    ],
)
def test_one_minor_version_of_skew_is_supported(ours: str, theirs: str, warns: bool) -> None:
    assert bool(versions.skew(ours, "knodel-controller", theirs)) is warns


def test_components_of_different_versions_are_reported() -> None:
    assert versions.warnings("0.2.0", {"a": "0.2.0", "b": versions.UNKNOWN}) == []
    [warning] = versions.warnings("0.2.0", {"a": "0.2.0", "b": "0.1.0"})
    assert "different versions (0.1.0, 0.2.0)" in warning


def test_without_a_platform_the_command_has_a_version(knodel: Knodel) -> None:
    done = knodel("version")

    assert (done.code, done.err) == (0, "")
    assert f"{VERSION} (Python 3." in done.out and "does not run" in done.out
    assert knodel("version", "--client", "-o", "json").value().keys() == {"client"}


def test_a_platform_of_another_version_is_a_warning(knodel: Knodel, state: Path) -> None:
    state.mkdir(mode=0o700)
    with FolderLock(state):
        announce(state, "127.0.0.1:9", version="0.0.7")
        done, found = knodel("version"), knodel("version", "-o", "json").value()

    assert done.code == 0
    assert "the platform has version 0.0.7" in done.err
    assert found["platform"]["version"] == "0.0.7"
    assert len(found["warnings"]) == 1


def cluster(image: str, minor: str = "35", denied: str = "") -> Callable[[Seen], Reply]:
    """Return the script of a cluster whose controllers have this image."""

    def answer(seen: Seen) -> Reply:
        if seen.path == "/version":
            return Reply(200, {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})
        namespace = seen.path.split("/")[5]
        if namespace == denied:
            return failure(403, "Forbidden", "no right")
        items = {
            "knodel-system": [deployment("knodel-controller", image)],
            "knative-serving": [deployment("controller", "x@sha256:1", "1.20.0")],
        }
        return Reply(200, {"items": items[namespace]})

    return answer


def test_a_cluster_has_three_versions(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster(f"knodel.dev/controller:{VERSION}")
    done, found = knodel("version", *HERE), knodel("version", "-o", "json", *HERE).value()

    assert (done.code, done.err) == (0, "")
    assert found["cluster"] == {
        "context": CONTEXT,
        "knodel": VERSION,
        "components": {"knodel-controller": VERSION},
        "knative": "1.20.0",
        "kubernetes": "v1.35.0",
    }
    assert "v1.35.0" in done.out and "1.20.0" in done.out


def test_an_old_cluster_is_a_warning(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster("knodel.dev/controller:99.0.0", minor="20")
    done = knodel("version", *HERE)

    assert done.code == 0
    assert "knodel-controller has version 99.0.0" in done.err and "upgrade it to 1." in done.err


def test_rights_on_the_system_namespaces_are_not_needed(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster("knodel.dev/controller:1", denied="knodel-system")

    assert knodel("version", "-o", "json", *HERE).value()["cluster"]["knodel"] == versions.UNKNOWN


def test_a_cluster_that_does_not_answer_hides_no_version(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = lambda seen: failure(401, "Unauthorized", "who")
    done = knodel("version", *HERE)

    assert done.code != 0
    assert VERSION in done.out and done.err
