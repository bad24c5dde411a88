"""What a WarmPool means where its spec says nothing: read by the pool manager and by the door that checks specs."""

from __future__ import annotations

from typing import Final

AUTO: Final = "auto"
"""`spec.size`, also when absent: as many members as measured arrivals and start times ask for."""
MIN: Final = 1
"""Members that `auto` keeps at least: the first start after a quiet night is the one that people notice."""
MAX: Final = 4
"""Members that `auto` keeps at most: as many as a Model gets replicas when it says nothing."""
MAX_AGE: Final = 86_400.0
"""s (a day) until a member is replaced: what leaks or goes stale in an idle process is bounded by it."""
