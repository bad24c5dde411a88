"""Turn the facts about GPUs of a cluster into findings of `knodel doctor --kube-context`. Pure.

Advice is a finding without a problem, with a remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from autoscaler.gpu.inventory import Inventory
from clusters.base.objects import key_of
from serving.cli.doctor.cluster import Unreadable
from serving.cli.doctor.findings import Finding
from serving.cli.doctor.models import first_few
from serving.makers.knative_flags import FLAGS, Flag, flags_needed
from serving.types.model import Model, sizes_of
from serving.types.settings.settings import ServerSettings

SERVING: Final = "knodel-serving"
TRAINING: Final = "knodel-training"
SET_CLASS: Final = f"set server.gpuPriorityClass: {SERVING} in knodel-config"


def with_gpus(models: Sequence[Model]) -> list[Model]:
    """Return the Models whose replicas have GPUs."""
    return [model for model in models if any(size.has_gpus for size in sizes_of(model.spec))]


def gpu_flags(models: Sequence[Model], server: ServerSettings) -> list[Flag]:
    """Return the flags of Knative that only these Models need."""
    return list({flag: None for model in models for flag in flags_needed(model, server) if flag not in FLAGS})


def check_priority_classes(
    models: Sequence[Model], priority_class: str, present: Collection[str] | Unreadable
) -> Finding:
    """Check the PriorityClasses by which serving gets GPUs from training; `models` have GPUs."""
    check = "priority classes"
    if isinstance(present, Unreadable):
        return Finding(check, True, present.reason, seen=False)
    install = "`knodel install --kube-context NAME --configure-knative` creates knodel-serving and knodel-training"
    if priority_class and priority_class not in present:
        message = f"there is no PriorityClass {priority_class}, so Pods of Models with GPUs are refused"
        return Finding(check, False, message, f"{install}; or change server.gpuPriorityClass in knodel-config")
    if missing := [name for name in (SERVING, TRAINING) if name not in present]:
        return Finding(check, False, f"there is no PriorityClass {' and no '.join(missing)}", install)
    ranked = [str(key_of(model.object)) for model in models if model.spec.gpu_share.priority]
    if ranked and not priority_class:
        message = f"the scheduler does not know the priority of {first_few(ranked)}: it takes no GPUs from training"
        return Finding(check, True, message, SET_CLASS)
    if not priority_class:
        return Finding(check, True, "the scheduler takes no GPUs from training for Models", SET_CLASS)
    return Finding(check, True, f"Models with GPUs have {priority_class}")


def check_placing(inventory: Inventory, drainable: Collection[str]) -> Finding:
    """Advise to fill nodes one after another, if Pods hold GPUs on more nodes than they need."""
    used = [node.name for node in inventory.nodes if any(node.held(resource) for resource in node.allocatable)]
    spread = [name for name in used if name in drainable]
    if not spread:
        return Finding("GPU nodes", True, f"Pods hold GPUs on {len(used)} of {len(inventory.nodes)} nodes")
    message = f"Pods hold GPUs on {len(used)} nodes, and could do with {len(used) - len(spread)}: {first_few(spread)}"
    remedy = (
        "kube-scheduler spreads Pods by default: a profile with the strategy MostAllocated of NodeResourcesFit keeps "
        "whole nodes free; `knodel gpus -A --kube-context NAME` shows the moves"
    )
    return Finding("GPU nodes", True, message, remedy)
