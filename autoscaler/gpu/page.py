"""Prometheus metrics of GPUs: how many there are, how many are held, and what is wanted and granted. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from autoscaler.gpu.claims import Claim, Grant
from autoscaler.gpu.inventory import GpuNode, parts_of
from clusters.net.exposition import Family


def gpu_families(nodes: Iterable[GpuNode], claims: Iterable[Claim], grants: Mapping[str, Grant]) -> Iterator[Family]:
    """Yield the metrics. A claim without a grant gets what it wants, because everything fits."""
    units: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for node in nodes:
        for resource, total in node.allocatable.items():
            kind = node.types.get(resource, "")
            units[resource, kind, "total"] += total
            units[resource, kind, "held"] += node.held(resource) + parts_of(node.pods, resource)
    yield Family(
        "knodel_gpu_units",
        "gauge",
        "Units of GPUs on the nodes, by resource, type and state.",
        tuple(
            ({"resource": resource, "type": kind, "state": state}, float(count))
            for (resource, kind, state), count in sorted(units.items())
        ),
    )
    samples = []
    for claim in sorted(claims, key=lambda claim: claim.name):
        grant = grants.get(claim.name)
        counts = {"wanted": claim.want, "granted": claim.want if grant is None else grant.replicas, "held": claim.holds}
        labels = {"namespace": claim.tenant, "claim": claim.name, "kind": claim.kind}
        samples += [({**labels, "state": state}, float(count)) for state, count in counts.items()]
    about = "Replicas with GPUs that Models, warm pools and elastic jobs want, are granted, and hold."
    yield Family("knodel_gpu_claim_replicas", "gauge", about, tuple(samples))
