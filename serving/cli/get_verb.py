"""`knodel get`."""

from __future__ import annotations

from clusters.objects import MODEL
from serving.api.table import columns_of
from serving.cli.context import Session, verb
from serving.cli.names import model_name


@verb("get")
@model_name()
def command(session: Session, name: str) -> None:
    """Show the model NAME."""
    model = session.client().get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model)
        return
    rows = [[column.name, column.cell(model)] for column in columns_of(MODEL)]
    session.output.table(["field", name], rows, wrapped=name)
