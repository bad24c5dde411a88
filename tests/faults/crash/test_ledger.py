"""The ledger sees what a sweep must never see: it would have told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM
from clusters.base.objects import (
    CONFIGURATION,
    INGRESS,
    MODEL,
    MODEL_EVENT,
    POD,
    REVISION,
    ROUTE,
    SERVICE,
    Kind,
    Object,
)
from tests.faults.crash.ledger import Ledger
from tests.faults.kit.crash import transcript_of

OWNER = {"kind": "Model", "name": "m", "uid": "model", "controller": True}


def obj(kind: Kind, name: str = "m", uid: str = "", owner: dict[str, Any] | None = None, **parts: Any) -> Object:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": uid or f"{kind.plural}-{name}"}
    metadata |= {"ownerReferences": [owner]} if owner else {}
    metadata |= parts.pop("metadata", {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}, **parts}


def revision(name: str, generation: str) -> Object:
    labels = {
        "serving.knative.dev/configuration": "m",
        "serving.knative.dev/configurationGeneration": generation,
    }
    return obj(REVISION, name, metadata={"labels": labels})


def read(tmp_path: Path, *transactions: list[tuple[Kind, Object]]) -> Ledger:
    """A ledger that followed these transactions."""
    lines = [
        json.dumps([[kind.resource, f"default/{one['metadata']['name']}", one] for kind, one in rows]) + "\n"
        for rows in transactions
    ]
    transcript_of(tmp_path).write_text("".join(lines))
    ledger = Ledger(tmp_path)
    ledger.follow()
    return ledger


def split(*percents: int) -> dict[str, Any]:
    return {"traffic": [{"revisionName": f"m-{number}", "percent": one} for number, one in enumerate(percents)]}


def paths(*percents: int) -> dict[str, Any]:
    return {"rules": [{"http": {"paths": [{"splits": [{"percent": one} for one in percents]}]}}]}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (ROUTE, {"spec": split(60, 30)}),
        (ROUTE, {"status": split(60, 60)}),
        (MODEL, {"status": split(99)}),
        (INGRESS, {"spec": paths(80, 10)}),
    ],
    ids=lambda value: value.kind if isinstance(value, Kind) else "",
)
def test_traffic_that_is_not_all(tmp_path: Path, kind: Kind, parts: dict[str, Any]) -> None:
    [fault] = read(tmp_path, [(kind, obj(kind, **parts))]).faults
    assert "sums to" in fault


def test_two_children_of_one_owner(tmp_path: Path) -> None:
    ledger = read(
        tmp_path, [(SERVICE, obj(SERVICE, "m", owner=OWNER))], [(SERVICE, obj(SERVICE, "again", owner=OWNER))]
    )
    assert ledger.faults == [f"transaction 2: model has 2 {SERVICE.resource}"]


def test_two_revisions_of_one_version(tmp_path: Path) -> None:
    ledger = read(tmp_path, [(REVISION, revision("m-00001", "1"))], [(REVISION, revision("m-00002", "1"))])
    assert len(ledger.faults) == 1 and "has 2 Revisions" in ledger.faults[0]


def test_a_member_that_is_claimed_twice(tmp_path: Path) -> None:
    claims = [obj(POD, metadata={"annotations": {ANNOTATION_CLAIM: claim}}) for claim in ("", "one", "two")]
    ledger = read(tmp_path, *([(POD, one)] for one in claims))
    assert ledger.faults == ["pods default/m: it was claimed twice"]


def test_an_event_with_two_ends(tmp_path: Path) -> None:
    phases = [obj(MODEL_EVENT, status={"phase": phase}) for phase in ("Accepted", "Applied", "Superseded")]
    ledger = read(tmp_path, *([(MODEL_EVENT, one)] for one in phases))
    assert ledger.faults == ["modelevents.knodel.dev default/m: it went from Applied to Superseded"]


def test_who_lost_its_owner(tmp_path: Path) -> None:
    assert read(tmp_path, [(CONFIGURATION, obj(CONFIGURATION, owner=OWNER))]).orphans() == [
        f"{CONFIGURATION.resource} m"
    ]


def test_what_is_right_is_no_fault(tmp_path: Path) -> None:
    ledger = read(
        tmp_path,
        [(MODEL, obj(MODEL, uid="model", status=split(80, 20))), (SERVICE, obj(SERVICE, owner=OWNER))],
        [(REVISION, revision("m-00001", "1")), (REVISION, revision("m-00002", "2"))],
    )
    assert (ledger.faults, ledger.orphans()) == ([], [])


def test_a_transaction_that_is_being_written_waits(tmp_path: Path) -> None:
    ledger = read(tmp_path)
    line = json.dumps([[MODEL.resource, "default/m", obj(MODEL)]]) + "\n"
    for text, known in ((line[:20], 0), (line, 1)):
        transcript_of(tmp_path).write_text(text)
        ledger.follow()
        assert len(ledger.of_kind(MODEL)) == known
