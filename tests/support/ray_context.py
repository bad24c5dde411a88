"""Contexts as Ray Serve's controller passes them to a policy, without Ray."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RayConfig:
    """Fields of `ray.serve.config.AutoscalingConfig`, as our documentation sets them."""

    initial_replicas: int | None = None
    target_ongoing_requests: float | None = 2.0
    upscale_delay_s: float = 0.0
    downscale_delay_s: float = 0.0
    look_back_period_s: float = 2.0


@dataclass
class RayContext:
    """Fields of `ray.serve.config.AutoscalingContext`."""

    current_num_replicas: int = 1
    target_num_replicas: int = 1
    total_num_requests: float = 0.0
    total_queued_requests: float | None = 0.0
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 5
    app_name: str | None = "shop"
    deployment_name: str = "Ranker"
    config: RayConfig = field(default_factory=RayConfig)
