"""The images of Knative's own tests, built from its Go module: one archive, which containerd imports once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.testbed import images, oci
from tests.testbed.layers import LayerStore
from tests.testbed.paths import Paths
from tests.testbed.trees import folder, stored
from tests.testbed.versions import CONFORMANCE, TEST_PREFIX

ARCHIVE: Final = "conformance"
TEMPLATE: Final = f"{images.REGISTRY}/{TEST_PREFIX}{{{{.Name}}}}:{{{{.Tag}}}}"
"""The tests' flag `imagetemplate`: how they make a reference of the name of one of their programs."""


def ensure(paths: Paths) -> Path:
    """The archive with all of them; made, if it was not before. Raises TestbedError when a program is not built."""
    store = LayerStore(paths.cache / "layers-conformance")
    archive = oci.write_archive([_image(store, paths, name) for name in CONFORMANCE.binaries], paths.archives, ARCHIVE)
    store.prune()
    return archive


def _image(store: LayerStore, paths: Paths, binary: str) -> oci.Image:
    """As `ko` lays it out, which the tests know: the program is /ko-app/NAME."""
    program = f"ko-app/{binary.removeprefix(TEST_PREFIX)}"
    tree = {program: stored((paths.binaries / binary).resolve()), "tmp": folder(0o1777)}
    return oci.Image(images.reference(CONFORMANCE, binary), [store.layer(tree)], entrypoint=[f"/{program}"])
