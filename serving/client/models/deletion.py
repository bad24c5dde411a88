"""Delete a Model and wait for the end of its replicas."""

from __future__ import annotations

from clusters.base.objects import MODEL, POD
from serving.client.api import ApiCalls
from serving.client.effects import Call, Tell, now, sleep
from serving.client.errors import TimedOut
from serving.types.annotations import LABEL_MODEL

POLL = 0.2  # s between two reads of the remaining replicas


def delete_model(api: ApiCalls, name: str, namespace: str, wait: float | None) -> Call[None]:
    """Delete a Model; wait until its replicas have ended, for at most `wait` seconds (None: do not wait).

    Raises NotFound, TimedOut.
    """
    yield from api.delete(MODEL, name, namespace)
    if wait is None:
        return
    deadline = (yield from now()) + wait
    while True:
        left = (yield from api.list(POD, namespace, f"{LABEL_MODEL}={name}"))["items"]
        if not left and not (yield from api.exists(MODEL, name, namespace)):
            return
        if (yield from now()) > deadline:
            raise TimedOut(
                f"model {name} still has {len(left)} replicas after {wait:g} s: wait until they have finished "
                "their requests"
            )
        yield Tell(f"deleting {name}: {len(left)} replicas are finishing their requests")
        yield from sleep(POLL)
