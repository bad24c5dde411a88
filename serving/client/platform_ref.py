"""The place of models: the platform of a state folder, or the cluster of a kubeconfig context."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.client.api import TIMEOUT, ApiCalls
from serving.client.effects import Call, work
from serving.client.server import Server
from serving.client.state import LocalPlatform

if TYPE_CHECKING:
    from serving.client.kubeconfig import KubeContext

CONTEXT_VARIABLE = "KNODEL_KUBE_CONTEXT"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class PlatformRef:
    """The platform of the state folder `state`; with `kube`, the cluster of that context."""

    state: Path
    kube: KubeContext | None = None

    def platform(self) -> LocalPlatform:
        """Return the running platform of the state folder. Raises ClientError when none runs."""
        return LocalPlatform.find(self.state)

    def server(self) -> Server:
        """Return the API server.

        Raises ClientError when no platform runs, or when the context has no usable credentials.
        """
        return self.kube.connect() if self.kube else self.platform()

    def calls(self, timeout: float = TIMEOUT) -> Call[ApiCalls]:
        """Return the operations of the API server. Raises as `server`."""
        return ApiCalls((yield from work(self.server)), timeout)
