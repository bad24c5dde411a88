"""The dependencies of the reconciler of PodAutoscalers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.config import AutoscalerSettings
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.metrics.collector import MetricCollector
from autoscaler.metrics.source import ActivatorLoad
from autoscaler.reconciler.adapters import AdapterReports
from autoscaler.reconciler.decision_recorder import DecisionRecorder
from autoscaler.reconciler.digests import DigestEnforcer
from autoscaler.reconciler.metrics_availability import MetricsAvailability
from autoscaler.reconciler.observed import ObjectReader
from autoscaler.reconciler.progress import StartProgress
from autoscaler.reconciler.scale_to_zero import ScaleToZero
from autoscaler.reconciler.starts import StartTracker
from autoscaler.scaling.multi_scaler import MultiScaler
from autoscaler.usage.ledger import UsageLedger
from autoscaler.warmpool.starts import WarmStarts
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.runtime.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The objects that the reconciler uses; `autoscaler.controller` creates them."""

    cluster: Cluster
    reader: ObjectReader
    scaler: MultiScaler
    collector: MetricCollector
    activator: ActivatorLoad
    scale_to_zero: ScaleToZero
    decisions: DecisionRecorder
    progress: StartProgress
    starts: StartTracker
    warm: WarmStarts
    availability: MetricsAvailability
    recorder: Recorder
    clock: Clock
    settings: AutoscalerSettings
    signal_available: Callable[[], bool]  # of requests that wait at zero
    ledger: UsageLedger
    digests: DigestEnforcer
    adapters: AdapterReports
    gpus: GpuSharing | None = None
