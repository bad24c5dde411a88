"""What a Model means where it says nothing. The stored object keeps what its author wrote; defaults are read in."""

from __future__ import annotations

from typing import Literal

from autoscaler.types import AUTO

CPU = "1"
"""Cores; one core answers some hundred requests a second of a small model."""
MEMORY = "1Gi"
"""Room for an engine and a model of a few hundred megabytes."""
CONTAINER_CONCURRENCY = 0
"""Requests; 0 is no hard limit (Knative's default)."""
TIMEOUT = 300.0
"""s of one request (Knative's revision-timeout-seconds)."""
STARTUP_DEADLINE = 600.0
"""s without progress until a version has failed (Knative's progress-deadline)."""
MIN_REPLICAS = 0
"""To zero when idle."""
MAX_REPLICAS = 4
"""Fits a laptop."""
SCALE_TARGET = 4.0
"""Slots: work that one replica holds at once."""
TARGET_UTILIZATION = 0.7
"""Share of the slots that scaling aims at (Knative's container-concurrency-target-percentage)."""
SCALE_TO_ZERO_AFTER = AUTO
"""s without a request, or AUTO: as long as the start of a replica makes worth while, a minute at least."""
HOLD_QUEUE = 1000
"""Requests held for each revision while it starts."""
MAX_BATCH_SIZE = 16
"""Rows of one inference, where `batching` says nothing else: most of what larger batches gain."""
MAX_BATCH_LATENCY = 0.002
"""s that a request waits for others; less than a caller notices."""
VISIBILITY: Literal["public"] = "public"
"""Reachable through the public gateway."""
