"""The load under several policies, in a Ray of this process: `python -m loadtests.ray_policy.driver OUT TEMP POLICY…`.

Each policy gets an application of its own, one after another: `CALLERS` callers for `SECONDS`, then idle until one
replica is left. Results are written to OUT as JSON. This module imports Ray, so it runs only as a process of its own
(`session.py`), which ends all processes of this Ray.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from loadtests.ray_policy.outcome import CALLERS, MOST, SECONDS, SERVICE, SLOTS, Outcome, policy_named

OBJECT_STORE = 75 * 1024 * 1024
"""Bytes; Ray's minimum. No request uses the object store."""
SAMPLE = 0.2
"""Seconds between two readings of the replicas."""
DEPLOYMENT = "Sleeper"


class Sleeper:
    """A model whose requests take `SERVICE` seconds."""

    async def __call__(self) -> None:
        """Answer one request."""
        await asyncio.sleep(SERVICE)


def main(out: Path, temporary: str, names: list[str]) -> None:
    """Run the load under each policy and write the outcomes."""
    ray.init(
        address="local", include_dashboard=False, num_cpus=4, object_store_memory=OBJECT_STORE, log_to_driver=False,
        _temp_dir=temporary,
    )  # fmt: skip
    serve.start(proxy_location="Disabled")
    out.write_text(json.dumps([_measure(name) for name in names]))
    os._exit(0)  # threads of Ray may end a process during `ray.shutdown` with 1; the session ends Ray's processes


def _measure(name: str) -> dict[str, Any]:
    policy = policy_named(name)
    arguments = dict(policy.autoscaling)
    if policy.function:
        arguments["policy"] = AutoscalingPolicy(
            policy_function=policy.function, policy_kwargs=dict(policy.function_arguments)
        )
    deployment = serve.deployment(
        name=DEPLOYMENT, max_ongoing_requests=SLOTS, ray_actor_options={"num_cpus": 0.1},
        autoscaling_config=AutoscalingConfig(min_replicas=1, max_replicas=MOST, **arguments),
    )(Sleeper)  # fmt: skip
    handle = serve.run(deployment.bind(), name=name, route_prefix=None)
    began = time.monotonic()
    latencies: list[float] = []
    callers = [threading.Thread(target=_call, args=(handle, began + SECONDS, latencies)) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    asked = full = back = None
    while back is None and time.monotonic() < began + SECONDS + policy.wait:
        at = time.monotonic() - began
        running, wanted = _replicas(name)
        asked = at if asked is None and wanted > 1 else asked
        full = at if full is None and running == MOST else full
        back = at if asked is not None and at > SECONDS and wanted == running == 1 else back
        time.sleep(SAMPLE)
    for caller in callers:
        caller.join()
    serve.delete(name)
    middle, slow = np.quantile(latencies, (0.5, 0.95)).tolist()
    return Outcome(name, asked, full, len(latencies), middle, slow, None if back is None else back - SECONDS)._asdict()


def _call(handle: Any, until: float, latencies: list[float]) -> None:
    while (sent := time.monotonic()) < until:
        handle.remote().result()
        latencies.append(time.monotonic() - sent)


def _replicas(application: str) -> tuple[int, int]:
    """Return the running replicas, and these with the starting ones."""
    states = serve.status().applications[application].deployments[DEPLOYMENT].replica_states
    running = int(states.get("RUNNING", 0))
    return running, running + sum(int(states.get(state, 0)) for state in ("STARTING", "PENDING_INITIALIZATION"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
