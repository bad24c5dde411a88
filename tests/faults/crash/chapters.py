"""The chapters of a Model's life: what a person or a training sends, as the commands of Knodel send it.

Each may be sent again when no answer came, and must then come to the same.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, REVISION
from eventing.auth.signing import sign
from eventing.emit import TYPE
from serving.client.models.changes import change_model, store_model
from serving.reconciler.rollout.commands import promote, rollback
from serving.types.annotations import LABEL_MODEL
from tests.faults.crash.crashing import NAMESPACE, CrashingMachine
from tests.scenarios.world import model

SOURCE = "/training/nightly"
CANARY = 20  # percent
WITHIN = 10.0  # s; the criterion of the catalogue
CLAIM_WITHIN = 60.0  # s; its criterion for a claim that nobody has recorded
JUDGED_WITHIN = 30.0
"""s: after a crash the judge looks anew, each second, and what it refused goes to zero when it was idle for a while."""
REST = 1.5  # s
LONG_REST = 6.0  # s; longer than what was refused stays
TIMEOUT = 5.0  # s for an answer of the webhook
REFUSED: dict[str, Any] = {
    "steps": [50, 100], "stepDuration": "1h", "judge": {"interval": "1s", "maxLatencyRatio": 100},
}  # fmt: skip
"""A rollout whose first step lasts until the judge has seen that its version fails."""

HELD: dict[str, Any] = {**REFUSED, "judge": {"interval": "1h"}, "onInsufficientTraffic": "hold"}
"""One that stays at its first step; each look of the judge would be a write."""


class Chapter(NamedTuple):
    """`send` may be called until it returns; `asked`: the Model has callers meanwhile.

    `within`: seconds from the start of the platform after a crash to the same objects. `spared`: no crash comes here.
    `rest`: seconds without a write after which it is over, when there is no crash.
    """

    name: str
    send: Callable[[CrashingMachine, str], None]
    asked: bool = False
    within: float = WITHIN
    spared: bool = False
    rest: float = REST


def allow_events(here: CrashingMachine) -> str:
    """Let trainings change Models; the key."""
    allowed = ("--models", "life-*", "--storage-prefix", f"file://{here.folder}/", "-o", "json")
    said = json.loads(here.run("events", "allow", SOURCE, *allowed))
    [key] = (one["stringData"]["current"] for one in said["items"] if one["kind"] == "Secret")
    return str(key)


def deploy(here: CrashingMachine, life: str) -> None:
    """The first version, with one replica."""
    spec: dict[str, Any] = {"storageUri": uri(here, "double"), "version": "1", "minReplicas": 1, "maxReplicas": 2}
    here.client().call(store_model, model(life, **spec))


def canary(here: CrashingMachine, life: str) -> None:
    """A second version beside it."""
    _change(here, life, {"storageUri": uri(here, "triple"), "version": "2", "canaryTrafficPercent": CANARY})


def promoted(here: CrashingMachine, life: str) -> None:
    """All traffic to the second version."""
    here.client().call(change_model, life, NAMESPACE, promote)


def rolled_back(here: CrashingMachine, life: str) -> None:
    """All traffic to the first one again."""
    client = here.client()
    revisions = client.list(REVISION, NAMESPACE, f"{LABEL_MODEL}={life}")["items"]
    client.call(change_model, life, NAMESPACE, lambda found: rollback(found, revisions, f"{life}-00001"))


def trained(key: str) -> Callable[[CrashingMachine, str], None]:
    """An event of a training, signed with this key: a third version. The same event, however often it is sent."""

    def send(here: CrashingMachine, life: str) -> None:
        event = {
            "specversion": "1.0",
            "id": life,
            "source": SOURCE,
            "type": TYPE,
            "time": "2026-01-01T00:00:00Z",
            "data": {"model": life, "storageUri": uri(here, "double"), "version": "3"},
        }
        body = json.dumps(event).encode()
        headers = {
            "content-type": "application/cloudevents+json", **sign(key, f"msg-{life}", datetime.now(UTC), body),
        }  # fmt: skip
        request = urllib.request.Request(f"http://127.0.0.1:{here.control}/events", body, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            assert answer.status == HTTPStatus.ACCEPTED

    return send


def judged(here: CrashingMachine, life: str) -> None:
    """A version that takes other inputs than its callers send, judged step by step."""
    _change(here, life, {"storageUri": uri(here, "text"), "version": "2", "rollout": REFUSED})


def held(here: CrashingMachine, life: str) -> None:
    """A version whose rollout stays at its first step, as nobody asks it anything."""
    _change(here, life, {"storageUri": uri(here, "triple"), "version": "2", "rollout": HELD})


def grown(here: CrashingMachine, life: str) -> None:
    """A second replica, which a member of the warm pool becomes."""
    _change(here, life, {"minReplicas": 2})


def deleted(here: CrashingMachine, life: str) -> None:
    """No Model any more."""
    with suppress(NotFound):
        here.client().delete(MODEL, life, NAMESPACE)


def by_hand(key: str) -> tuple[Chapter, ...]:
    """A life in which a person decides, and a training has the last word."""
    return (
        Chapter("deploy", deploy),
        Chapter("canary", canary),
        Chapter("promote", promoted),
        Chapter("rollback", rolled_back),
        Chapter("event", trained(key)),
        Chapter("delete", deleted),
    )


def by_judge() -> tuple[Chapter, ...]:
    """A life in which a judge does."""
    judge = Chapter("judge", judged, asked=True, within=JUDGED_WITHIN, rest=LONG_REST)
    return BEGINNING, judge, END


def by_rollout() -> tuple[Chapter, ...]:
    """A life that ends in the middle of a rollout."""
    return BEGINNING, Chapter("rollout", held, spared=True), Chapter("delete", deleted)


def by_claim() -> tuple[Chapter, ...]:
    """A life with a warm start."""
    grow = Chapter("grow", grown, within=CLAIM_WITHIN)
    return BEGINNING, grow, END


BEGINNING, END = Chapter("deploy", deploy, spared=True), Chapter("delete", deleted, spared=True)
"""Of lives in which other chapters are swept: `by_hand` has crashes in these."""


def uri(here: CrashingMachine, name: str) -> str:
    """Of an artifact."""
    return Path(here.artifact(name)).as_uri()


def _change(here: CrashingMachine, life: str, spec: dict[str, Any]) -> None:
    here.client().call(change_model, life, NAMESPACE, lambda _: {"spec": spec})
