"""The objects of an installation: an overlay of the package, or a folder of YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clusters.base.errors import KnodelError
from clusters.base.objects import MODEL, Object, annotations_of, labels_of, name_of
from clusters.net.strict_yaml import LoadError
from serving.install.kinds import in_order
from serving.types.loader import load_objects

OVERLAYS = ("production", "edge", "testbed")
"""Names of the overlays. The first one is the default."""
DASHBOARD = "dashboard"
"""Name of the component that can be added to each overlay."""
LABEL = "app.kubernetes.io/part-of"
PART_OF = "knodel"
"""Value of `LABEL` on all installed objects, by which `uninstall` finds them."""

ESSENTIAL = (
    ("Namespace", "knodel-system"),
    ("CustomResourceDefinition", MODEL.resource),
    ("Deployment", "knodel-controller"),
)
"""Objects that every installation must have."""


class BadManifests(KnodelError):
    """The manifests are unusable. Nothing was changed."""


def rendered_path(name: str) -> Path:
    """Return the file of an overlay or of the component DASHBOARD in the package."""
    return Path(__file__).parent / "manifests" / f"{name}.yaml"


def load_overlay(overlay: str, *, dashboard: bool = False) -> list[Object]:
    """Return the objects of an overlay, with the dashboard if it is wanted, in the order of application.

    Raises BadManifests for an incomplete package.
    """
    objects = _read(rendered_path(overlay))
    return in_order([*objects, *load_dashboard(objects)] if dashboard else objects)


def load_dashboard(objects: Sequence[Object]) -> list[Object]:
    """Return the objects of the dashboard, with the image of the controller in `objects`. Raises BadManifests."""
    [controller] = [obj for obj in objects if (obj["kind"], name_of(obj)) == ESSENTIAL[-1]]
    container = controller["spec"]["template"]["spec"]["containers"][0]
    image = {key: container[key] for key in ("image", "imagePullPolicy") if key in container}
    found = _read(rendered_path(DASHBOARD))
    for obj in found:
        if obj["kind"] == controller["kind"]:
            obj["spec"]["template"]["spec"]["containers"][0].update(image)
    return found


def load_folder(folder: Path) -> list[Object]:
    """Return the objects of all YAML files of a folder in order of application. Raises BadManifests, UnknownKind."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json"))
    except OSError as error:
        raise BadManifests(f"the manifests {folder} cannot be read: {error.strerror}") from error
    if any(path.stem == "kustomization" for path in paths):
        raise BadManifests(
            f"{folder} is a kustomization, which only kubectl reads: `kubectl apply -k {folder}`, or render it first "
            f"by `kubectl kustomize {folder} -o OTHER-FOLDER`"
        )
    objects = [_labelled(obj) for path in paths for obj in _read(path)]
    if not objects:
        raise BadManifests(f"{folder} has no YAML files: `kubectl kustomize manifests/overlays/NAME -o {folder}`")
    ordered = in_order(objects)
    _require_whole(folder, ordered)
    return ordered


def _require_whole(folder: Path, objects: list[Object]) -> None:
    """Refuse an incomplete installation, because objects that are not in the folder are removed from the cluster."""
    there = {(obj["kind"], name_of(obj)) for obj in objects}
    missing = [f"{kind} {name}" for kind, name in ESSENTIAL if (kind, name) not in there]
    if missing:
        raise BadManifests(
            f"{folder} is not a complete installation, it lacks {', '.join(missing)}: apply parts with kubectl"
        )


def _read(path: Path) -> list[Object]:
    try:
        return load_objects(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise BadManifests(f"the manifests {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadManifests(f"the manifests {path} are not UTF-8") from error
    except LoadError as error:
        raise BadManifests(str(error)) from error


def _labelled(obj: Object) -> Object:
    """Return the object with our label, by which it is found when it must be removed."""
    labels = {**labels_of(obj), LABEL: PART_OF}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels, "annotations": dict(annotations_of(obj))}}
