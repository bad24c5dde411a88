"""Defaults for absent fields of a Model. They are applied when it is read: the stored object keeps what was written."""

from __future__ import annotations

from typing import Literal

from autoscaler.types import AUTO

CPU = "1"
"""Cores; one core answers some hundred requests a second of a small model."""
MEMORY = "1Gi"
"""Enough for an engine and a model of a few hundred megabytes."""
CONTAINER_CONCURRENCY = 0
"""Requests; 0 means no hard limit (Knative's default)."""
TIMEOUT = 300.0
"""s of one request (Knative's revision-timeout-seconds)."""
STARTUP_DEADLINE = 600.0
"""s without progress until a version fails (Knative's progress-deadline)."""
MIN_REPLICAS = 0
"""Scale to zero when idle."""
MAX_REPLICAS = 4
"""Fits a laptop."""
SCALE_TARGET = 4.0
"""Busy slots that are planned for each replica."""
TARGET_UTILIZATION = 0.7
"""Share of the slots that scaling aims at (Knative's container-concurrency-target-percentage)."""
SCALE_TO_ZERO_AFTER = AUTO
"""s without a request, or AUTO: depends on how long a replica takes to start, at least one minute."""
HOLD_QUEUE = 1000
"""Requests held for each revision while it starts."""
MAX_BATCH_SIZE = 16
"""Rows of one inference with `batching`. Larger batches gain little more."""
MAX_BATCH_LATENCY = 0.002
"""s that a request waits for others: too short for callers to notice."""
VISIBILITY: Literal["public"] = "public"
"""Reachable through the public gateway."""
