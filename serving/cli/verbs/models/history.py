"""`knodel history`."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.base.objects import MODEL
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.texts import rollout_lines
from serving.client.models.local_files import short_digest

OUTCOMES = {"rolledback": "rolled back"}
"""Text of an outcome, if it differs from the value."""


@verb(
    "history",
    examples=[
        ("Show the versions of a model", "knodel history iris"),
        ("Show their whole digests and storage URIs", "knodel history iris -o wide"),
    ],
)
@model_name()
def command(session: Session, name: str) -> None:
    """Show the versions of the model NAME with their causes and outcomes."""
    model = session.client().get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model)
        return
    records = (model.get("status") or {}).get("history") or []
    rows = [
        [
            record.get("revision", ""),
            record.get("version", ""),
            OUTCOMES.get(record.get("outcome", ""), record.get("outcome", "")),
            _cause(record.get("cause") or {}),
            record.get("at", ""),
            short_digest(record.get("digest", "")),
            record.get("storageUri", ""),
        ]
        for record in records
    ]
    heads = ["revision", "version", "outcome", "by", "at", "digest", "storage"]
    session.output.table(heads, rows, optional=("storage", "by"))
    for line in rollout_lines(model)[:2]:
        session.output.text(line)


def _cause(cause: Mapping[str, str]) -> str:
    """Return the kind of a cause; for a promotion, also the environment from which it came."""
    by, source = cause.get("by", ""), cause.get("source", "")
    return f"{by} from {source}" if by == "promotion" and source else by
