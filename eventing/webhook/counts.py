"""What the webhook counts for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from clusters.net.exposition import Family, one
from eventing.webhook.intake import COPY, IGNORED, TAKEN, Verdict

REFUSED = "refused"


class Counts:
    """Answers by status, events by what became of them."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._events: Counter[str] = Counter(dict.fromkeys((TAKEN, COPY, IGNORED, REFUSED), 0))

    def request(self, status: int) -> None:
        """One more answer."""
        self._requests[int(status)] += 1

    def events(self, verdicts: Sequence[Verdict]) -> None:
        """What became of the events of one request."""
        for verdict in verdicts:
            said = REFUSED if verdict.error is not None else verdict.message.partition(":")[0].partition(",")[0]
            self._events[said] += 1

    def families(self, bytes_held: int) -> Iterable[Family]:
        """As they stand."""
        requests = tuple(({"status": str(status)}, float(count)) for status, count in sorted(self._requests.items()))
        events = tuple(({"result": result}, float(count)) for result, count in sorted(self._events.items()))
        yield Family("knodel_webhook_requests_total", "counter", "Requests to the event webhook, by status.", requests)
        yield Family("knodel_webhook_events_total", "counter", "Events, by what became of them.", events)
        yield one("knodel_webhook_bytes", "gauge", "Bytes of requests under way.", float(bytes_held))
