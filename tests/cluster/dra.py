"""GPUs as devices of Dynamic Resource Allocation, by the example driver of Kubernetes on the testbed's node.

Pods request them by the name of a resource (`extendedResourceName`, gate DRAExtendedResource). Debian's containerd does
not read CDI files yet, so containers get no variables of their devices.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import Kind, name_of
from tests.cluster.place import MANAGER
from tests.support.wait import eventually
from tests.testbed.paths import standard

PROGRAM: Final = "dra-example-kubeletplugin"
DRIVER: Final = "gpu.example.com"
DEVICE_CLASS: Final = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)
RESOURCE_CLAIM: Final = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
RESOURCE_SLICE: Final = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
WITHIN: Final = 60.0
RELEASED: Final = 120.0
"""s until all Pods have released their devices. Without the driver they would never end."""


def is_built() -> bool:
    """Return whether the testbed has the program (`python -m tests.testbed build --dra`)."""
    return (standard().binaries / PROGRAM).exists()


@asynccontextmanager
async def devices(
    cluster: Cluster, kubeconfig: Path, folder: Path, node: str, resource: str, number: int
) -> AsyncIterator[None]:
    """So many devices on the node, requested by this name, until the end of the block. Delete their Pods before."""
    plugins = standard().kubelet
    arguments = [
        f"--node-name={node}", f"--kubeconfig={kubeconfig}", f"--num-devices={number}", f"--cdi-root={folder / 'cdi'}",
        f"--kubelet-registrar-directory-path={plugins / 'plugins_registry'}",
        f"--kubelet-plugins-directory-path={plugins / 'plugins'}",
    ]  # fmt: skip
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    made = {
        "apiVersion": DEVICE_CLASS.api_version,
        "kind": DEVICE_CLASS.kind,
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [selector], "extendedResourceName": resource},
    }
    await cluster.create(DEVICE_CLASS, made, manager=MANAGER)
    with (folder / "dra.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            standard().binaries / PROGRAM, *arguments, stdout=log, stderr=log, env=dict(os.environ)
        )

        async def published() -> bool:
            assert process.returncode is None, (folder / "dra.log").read_text()[-2000:]
            found = (await cluster.list(RESOURCE_SLICE)).items
            return sum(len(one["spec"].get("devices") or ()) for one in found) == number

        async def released() -> bool:
            return not (await cluster.list(RESOURCE_CLAIM)).items

        try:
            await eventually(published, WITHIN)
            yield
            await eventually(released, RELEASED)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            for one in (await cluster.list(RESOURCE_SLICE)).items:
                with suppress(NotFound):
                    await cluster.delete(RESOURCE_SLICE, name_of(one))
            with suppress(NotFound):
                await cluster.delete(DEVICE_CLASS, DRIVER)
