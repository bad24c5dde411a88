"""What other tests need to know of a running testbed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed import addresses, paths
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.progress import Progress
from tests.testbed.testbed import Testbed


@dataclass(frozen=True, slots=True)
class Facts:
    """Where the testbed's cluster is reached, and its parts on this machine."""

    kubeconfig: Path
    context: str
    server: str  # URL of the API server
    ingress: str  # address of Kourier, port 80
    node: str
    pids: dict[str, int]  # of the running components, by name
    logs: Path  # NAME.log for every component
    audit: Path  # JSON lines
    kubectl: Kubectl


def load() -> Facts:
    """The facts of this user's testbed. Raises TestbedError when there is none."""
    where = paths.standard()
    if not where.kubeconfig.exists():
        raise TestbedError(f"no testbed at {where.state}: `python -m tests.testbed up` brings one up")
    testbed = Testbed(where, Progress())
    return Facts(
        kubeconfig=where.kubeconfig,
        context=addresses.CLUSTER,
        server=addresses.API_SERVER,
        ingress=addresses.INGRESS_ADDRESS,
        node=addresses.NODE,
        pids=testbed.pids(),
        logs=where.logs,
        audit=where.audit_log,
        kubectl=testbed.kubectl,
    )
