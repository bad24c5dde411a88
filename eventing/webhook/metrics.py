"""Prometheus metrics of the webhook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from clusters.net.exposition import Family, one
from eventing.webhook.intake import COPY, IGNORED, TAKEN, EventVerdict

REFUSED = "refused"
"""Value of the label `result` besides `taken`, `copy` and `ignored`."""


class WebhookMetrics:
    """Counts responses by status, and events by result."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._events: Counter[str] = Counter(dict.fromkeys((TAKEN, COPY, IGNORED, REFUSED), 0))

    def record_response(self, status: int) -> None:
        """Count one response."""
        self._requests[int(status)] += 1

    def record_events(self, verdicts: Sequence[EventVerdict]) -> None:
        """Count the events of one request."""
        for verdict in verdicts:
            result = REFUSED if verdict.error is not None else verdict.message.partition(":")[0].partition(",")[0]
            self._events[result] += 1

    def families(self, bytes_held: int) -> Iterable[Family]:
        """Return the metrics; `bytes_held`: bytes of memory reserved by requests in progress."""
        requests = tuple(({"status": str(status)}, float(count)) for status, count in sorted(self._requests.items()))
        events = tuple(({"result": result}, float(count)) for result, count in sorted(self._events.items()))
        yield Family("knodel_webhook_requests_total", "counter", "Requests to the event webhook, by status.", requests)
        yield Family("knodel_webhook_events_total", "counter", "Events received, by result.", events)
        yield one("knodel_webhook_bytes", "gauge", "Memory reserved by requests in progress.", float(bytes_held))
