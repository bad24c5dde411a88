"""The objects that an installation consists of: an overlay that comes with the package, or a folder of YAML files."""

from __future__ import annotations

from pathlib import Path

from clusters.base.errors import KnodelError
from clusters.base.objects import MODEL, Object, annotations_of, labels_of, name_of
from serving.install.kinds import in_order
from serving.types.loader import LoadError, load_objects

OVERLAYS = ("production", "edge", "testbed")
"""The first one is the default."""
LABEL = "app.kubernetes.io/part-of"
PART_OF = "knodel"
"""Value of `LABEL` on everything that is installed: by it `uninstall` finds it again."""

ESSENTIAL = (
    ("Namespace", "knodel-system"),
    ("CustomResourceDefinition", MODEL.resource),
    ("Deployment", "knodel-controller"),
)
"""Without these it is no installation."""


class BadManifests(KnodelError):
    """The manifests cannot be used; nothing was changed."""


def rendered_path(overlay: str) -> Path:
    """The file of an overlay within the package."""
    return Path(__file__).parent / "manifests" / f"{overlay}.yaml"


def load_overlay(overlay: str) -> list[Object]:
    """The objects of an overlay, in order of application. Raises BadManifests for an incomplete package."""
    return in_order(_read(rendered_path(overlay)))


def load_folder(folder: Path) -> list[Object]:
    """The objects of every YAML file of a folder, in order of application. Raises BadManifests, UnknownKind."""
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
        raise BadManifests(f"{folder} holds no YAML files: `kubectl kustomize manifests/overlays/NAME -o {folder}`")
    ordered = in_order(objects)
    _require_whole(folder, ordered)
    return ordered


def _require_whole(folder: Path, objects: list[Object]) -> None:
    """What a folder does not hold is removed from the cluster, so a part of an installation is none."""
    there = {(obj["kind"], name_of(obj)) for obj in objects}
    missing = [f"{kind} {name}" for kind, name in ESSENTIAL if (kind, name) not in there]
    if missing:
        raise BadManifests(f"{folder} is no whole installation, it lacks {', '.join(missing)}: apply parts by kubectl")


def _read(path: Path) -> list[Object]:
    try:
        return load_objects(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise BadManifests(f"the manifests {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadManifests(f"the manifests {path} are no UTF-8 text") from error
    except LoadError as error:
        raise BadManifests(str(error)) from error


def _labelled(obj: Object) -> Object:
    """With our label, without which nobody would find the object when it is to go."""
    labels = {**labels_of(obj), LABEL: PART_OF}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels, "annotations": dict(annotations_of(obj))}}
