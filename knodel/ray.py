"""Knodel's autoscaler as a policy of Ray Serve, for deployments that run in Ray without Knodel.

    from ray import serve
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    import knodel.ray

    @serve.deployment(
        max_ongoing_requests=4,
        autoscaling_config=AutoscalingConfig(
            min_replicas=1, max_replicas=5,
            upscale_delay_s=0, downscale_delay_s=0, metrics_interval_s=0.5, look_back_period_s=2,
            policy=AutoscalingPolicy(**knodel.ray.checked(target=4)),
        ),
    )
    class Ranker: ...

Ray's controller makes one `Policy` for each deployment and calls it ten times a second. The decision is the platform's
own (`autoscaler.scaling.decider.decide`). Ray itself does not need to be importable here: this module reads attributes
of the context only. The controller needs `pip install "knodel[ray]"`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, Final, Protocol

import numpy as np

from autoscaler.config import DecisionSettings, Sampling
from autoscaler.metrics.window import Windows
from autoscaler.scaling.decider import decide, panic_window
from autoscaler.scaling.reasons import Reason, render
from autoscaler.scaling.start_times import StartTimes
from autoscaler.scaling.table import NAN, DeciderState, Observations, Specs
from autoscaler.types import AUTO, InvalidPolicy
from autoscaler.types import Policy as ScalingPolicy
from clusters.base.errors import FieldError

log = logging.getLogger("ray.serve.knodel")  # below Ray Serve's logger: the controller's log files have these lines

KEYWORDS: Final = {
    "target": "scale_target",
    "utilization": "target_utilization",
    "stable_window": "stable_window",
    "scale_down_delay": "scale_down_delay",
    "scale_to_zero_after": "scale_to_zero_after",
}
"""Keyword arguments of `Policy`, with the fields of a Model's scaling policy of which they have the ranges."""
PATHS: Final = {
    "scaleTarget": "target",
    "targetUtilization": "utilization",
    "stableWindow": "stable_window",
    "scaleDownDelay": "scale_down_delay",
    "scaleToZeroAfter": "scale_to_zero_after",
}
"""Keyword arguments by the names that errors of a scaling policy contain."""

LEAST_QUEUE: Final = 0.5
"""Requests that wait at handles, on average. Below it, requests only pass through the handles' queues."""
LONGEST_LOOK_BACK: Final = 5.0
"""Seconds of Ray's own averages (`look_back_period_s`) up to which ours are not noticeably delayed."""
ROW: Final = np.array([0])


class RayConfig(Protocol):
    """The part of `ray.serve.config.AutoscalingConfig` that a policy reads. Durations are in seconds."""

    initial_replicas: int | None
    target_ongoing_requests: float | None
    upscale_delay_s: float
    downscale_delay_s: float
    look_back_period_s: float


class Context(Protocol):
    """The part of `ray.serve.config.AutoscalingContext` that a policy reads."""

    app_name: str | None
    deployment_name: str
    current_num_replicas: int  # running
    target_num_replicas: int
    total_num_requests: float
    capacity_adjusted_min_replicas: int
    capacity_adjusted_max_replicas: int
    config: Any  # with the attributes of `RayConfig`

    @property
    def total_queued_requests(self) -> float | None:
        """Requests that wait at handles."""
        ...


class Policy:
    """Decides the replicas of one deployment.

    After a restart of the controller, or a new configuration of a running deployment, a new object finds replicas. It
    keeps them until its own measurements cover a stable window.
    """

    def __init__(
        self,
        target: float | None = None,
        utilization: float = 0.7,
        stable_window: float = 60.0,
        scale_down_delay: float = 0.0,
        scale_to_zero_after: float = AUTO,
        **unknown: object,
    ) -> None:
        """Create the policy. All arguments have the ranges and defaults of a Model's scaling policy.

        `target`: requests that one replica processes at the same time, as a rule the deployment's
        `max_ongoing_requests`, which the context does not contain. Without it, `target_ongoing_requests` of the
        autoscaling config is the average per replica. `utilization`: share of `target` to use on average.
        `stable_window`: seconds over which requests are averaged. `scale_down_delay`: seconds of lower demand before a
        replica is removed. `scale_to_zero_after`: seconds without a request before the last replica is removed, or -1
        to derive them from the start time; it needs `min_replicas=0`.

        Raises InvalidPolicy with every invalid argument.
        """
        given = {
            "utilization": utilization, "stable_window": stable_window, "scale_down_delay": scale_down_delay,
            "scale_to_zero_after": scale_to_zero_after,
        }  # fmt: skip
        _check(given if target is None else {"target": target, **given}, unknown)
        self._target, self._utilization = target, utilization
        self._columns = {**given, "initialized": True, "reachable": True}
        self._settings, self._tick = DecisionSettings(), Sampling().tick
        self._state = DeciderState.empty(1)
        self._windows = Windows(1)
        self._windows.reset(0, stable_window)
        self._start_times = StartTimes()
        self._starting: deque[float] = deque()  # times of the requests for replicas that are not ready
        self._current = self._ready = 0
        self._adopted: bool | None = None  # None: before the first decision
        self._first_read = self._last_read = self._busy_at = self._decided_at = self._called_at = NAN
        self._desired = 0
        self.reasons: tuple[Reason, ...] = ()
        """The reasons of the last decision."""

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas and no state: Ray keeps this object as long as it would keep a state."""
        return self.decide(context, time.monotonic()), {}

    def decide(self, context: Context, now: float) -> int:
        """Return the number of replicas at `now` (monotonic seconds).

        A decision is made once in a tick of the autoscaler (1 s), and at once while requests wait or Ray has raised
        the number. The decision stays in between.
        """
        if self._adopted is not None or not _is_recovering(context):
            self._observe(context, now)
        else:
            self._desired = context.target_num_replicas
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(self._desired, least), most)

    def _observe(self, context: Context, now: float) -> None:
        """Record the context, and decide if it is time."""
        if self._adopted is None:
            self._begin(context, now)
        total = max(0.0, context.total_num_requests)
        queued = min(max(0.0, context.total_queued_requests or 0.0), total)
        self._count(context, now)
        self._record(total, queued, now)
        waits = queued >= LEAST_QUEUE
        if waits or self._current > self._desired or not now - self._decided_at < self._tick:
            self._decide(context, total if waits else 0.0, now)

    def _begin(self, context: Context, now: float) -> None:
        self._adopted = context.current_num_replicas > 0
        self._current = context.target_num_replicas
        self._desired, self._ready = self._current, context.current_num_replicas
        if not self._adopted:  # otherwise it is unknown when they were requested
            self._starting.extend([now] * max(0, self._current - self._ready))
        config: RayConfig = context.config
        delays = [
            f"{name}={seconds:g}"
            for name, seconds, limit in (
                ("upscale_delay_s", config.upscale_delay_s, 0.0),
                ("downscale_delay_s", config.downscale_delay_s, 0.0),
                ("look_back_period_s", config.look_back_period_s, LONGEST_LOOK_BACK),
            )
            if seconds > limit
        ]
        if delays:
            log.warning(
                "%s: Ray delays the decisions of Knodel's policy by %s: set upscale_delay_s=0, downscale_delay_s=0 and "
                "look_back_period_s=2, with metrics_interval_s=0.5",
                _name(context), ", ".join(delays),
            )  # fmt: skip

    def _count(self, context: Context, now: float) -> None:
        """Update the replicas and measure their starts."""
        current, ready = context.target_num_replicas, context.current_num_replicas
        requested = now if np.isnan(self._called_at) else self._called_at  # Ray raised the number after that call
        self._starting.extend([requested] * max(0, current - self._current))
        for _ in range(min(max(0, ready - self._ready), len(self._starting))):
            self._start_times.record(now - self._starting.popleft())
        while len(self._starting) > max(0, current - ready):
            self._starting.pop()
        if self._current + self._ready > 0 and current + ready == 0:
            self._forget()
        self._current, self._ready, self._called_at = current, ready, now

    def _forget(self) -> None:
        """Clear all measurements but the start times, as when the last replica of a revision is removed."""
        self._windows.reset(0, self._columns["stable_window"])
        self._state = DeciderState.empty(1)
        self._first_read = self._last_read = self._busy_at = NAN
        self._adopted = False

    def _record(self, total: float, queued: float, now: float) -> None:
        """Record the requests since the last call. Without a ready replica, nothing is measured."""
        if self._ready == 0:
            return
        start = self._last_read if now - self._last_read <= self._tick else now - self._tick
        if now > start:
            self._windows.record(ROW, np.array([start]), now, np.array([total - queued]), np.zeros(1))
        self._last_read = now
        if np.isnan(self._first_read):
            self._first_read = self._busy_at = now
        if total > 0.0:
            self._busy_at = now
            self._state.at_rest[0] = False

    def _decide(self, context: Context, crowd: float, now: float) -> None:
        specs = Specs.of(
            min=context.capacity_adjusted_min_replicas, max=context.capacity_adjusted_max_replicas,
            target=self._target or (context.config.target_ongoing_requests or 1.0) / self._utilization,
            **self._columns,
        )  # fmt: skip
        stable = self._windows.average(ROW, specs.stable_window, now)
        panic = self._windows.work(ROW, panic_window(specs.stable_window, self._settings), now)
        observations = Observations.of(
            current=self._current,
            ready=self._ready,
            starting_seconds=sum(now - requested for requested in self._starting),
            stable=stable.work,
            panic=panic,
            age=now - self._first_read,
            covered=stable.covered,
            crowd=crowd,
            idle=now - self._busy_at if self._ready else NAN,
            start_time=self._start_times.typical(),
            adopted=bool(self._adopted),
        )
        decisions, self._state = decide(specs, observations, self._state, now, self._settings)
        before, self._desired = self._desired, int(decisions.desired[0])
        self.reasons, self._decided_at = decisions.reasons(0), now
        if self._desired != before:
            reasons = "; ".join(map(render, self.reasons)) or "as Ray has set it"
            log.info("%s: %d->%d replicas: %s", _name(context), before, self._desired, reasons)


def checked(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of Ray's `AutoscalingPolicy` for a `Policy` with these arguments.

    They are checked here, in the caller's process: when a policy cannot be made in Ray's controller, Ray 2.60 neither
    fails the deployment nor updates it. Raises InvalidPolicy with every invalid argument.

    Example: `AutoscalingPolicy(**knodel.ray.checked(target=4))`
    """
    Policy(**arguments)
    return {"policy_function": "knodel.ray:Policy", "policy_kwargs": arguments}


def _check(given: dict[str, float], unknown: dict[str, object]) -> None:
    """Raise InvalidPolicy with every argument that is unknown, no number, or out of range."""
    errors = [
        FieldError(name, f"is not a keyword of knodel.ray:Policy: it has {', '.join(KEYWORDS)}") for name in unknown
    ]
    numbers: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            errors.append(FieldError(name, f"must be a number, not {value!r}"))
        else:
            numbers[KEYWORDS[name]] = value
    errors += [FieldError(PATHS[error.path], error.message) for error in ScalingPolicy(**numbers).validate()]
    if errors:
        raise InvalidPolicy(errors)


def _is_recovering(context: Context) -> bool:
    """Return whether a restarted controller has not found its replicas again: none runs, and the number is not one of
    a new deployment.
    """
    first = max(context.capacity_adjusted_min_replicas, context.config.initial_replicas or 0)
    return context.current_num_replicas == 0 and context.target_num_replicas > first


def _name(context: Context) -> str:
    return f"{context.app_name}/{context.deployment_name}" if context.app_name else context.deployment_name
