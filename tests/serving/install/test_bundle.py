"""Manifests of the package, and those that people bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.base.objects import labels_of, name_of
from serving.install.bundle import LABEL, OVERLAYS, PART_OF, BadManifests, load_folder, load_overlay, rendered_path
from serving.install.kinds import ORDER, UnknownKind, kind_of

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: knodel-config, namespace: knodel-system}\ndata: {}\n"


def test_a_folder_with_a_rendered_overlay_is_that_overlay(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(rendered_path("edge").read_text())
    assert [name_of(obj) for obj in load_folder(tmp_path)] == [name_of(obj) for obj in load_overlay("edge")]


def test_objects_of_people_get_our_label(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(rendered_path("edge").read_text())
    (tmp_path / "more.yaml").write_text(CONFIG.replace("knodel-config", "theirs"))
    [theirs] = [obj for obj in load_folder(tmp_path) if name_of(obj) == "theirs"]
    assert labels_of(theirs)[LABEL] == PART_OF


def test_the_package_is_complete() -> None:
    for overlay in OVERLAYS:
        assert load_overlay(overlay)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_dashboard_is_added_with_the_image_of_the_overlay(overlay: str) -> None:
    plain, whole = load_overlay(overlay), load_overlay(overlay, dashboard=True)
    added = [obj for obj in whole if obj not in plain]
    assert len(added) == len(whole) - len(plain)
    assert {obj["kind"] for obj in added} >= {"ServiceAccount", "ClusterRole", "NetworkPolicy", "Deployment", "Service"}
    assert all(labels_of(obj)[LABEL] == PART_OF for obj in added)
    containers = {
        name_of(obj): obj["spec"]["template"]["spec"]["containers"][0] for obj in whole if obj["kind"] == "Deployment"
    }
    for key in ("image", "imagePullPolicy"):
        assert containers["knodel-dashboard"].get(key) == containers["knodel-controller"].get(key)
    kinds = [kind_of(obj) for obj in whole]
    assert kinds == sorted(kinds, key=ORDER.index)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no YAML files"),
        ({"kustomization.yaml": "resources: []"}, "kubectl apply -k"),
        ({"a.yaml": "a: {"}, "a.yaml: at the end"),
        ({"a.yaml": CONFIG}, "not a complete installation, it lacks Namespace knodel-system"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadManifests) as caught:
        load_folder(tmp_path)
    assert words in str(caught.value)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadManifests, match="No such file"):
        load_folder(tmp_path / "absent")


def test_a_kind_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: x}\n"
    )
    with pytest.raises(UnknownKind, match=r"ServiceMonitor \(monitoring\.coreos\.com/v1\).*kubectl"):
        load_folder(tmp_path)
