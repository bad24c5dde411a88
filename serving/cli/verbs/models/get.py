"""`knodel get`."""

from __future__ import annotations

from clusters.base.objects import MODEL
from serving.cli.addresses import address_lines, aligned
from serving.cli.context import Session, managed_fields_option, verb
from serving.cli.names import model_name
from serving.cli.texts import adapters_text
from serving.control_api.table import URL, columns_of


@verb("get", examples=[("Print a model as YAML", "knodel get iris -o yaml")])
@model_name()
@managed_fields_option
def command(session: Session, name: str, show_managed_fields: bool) -> None:
    """Show the model NAME."""
    model = session.client().get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model, managed_fields=show_managed_fields)
        return
    addresses = address_lines(session, model)  # below the table, since a table may shorten its cells
    rows = [[column.name, column.cell(model)] for column in columns_of(MODEL) if column.name != URL or not addresses]
    if adapters := adapters_text(model):
        rows.append(["Adapters", adapters])
    session.output.table(["field", name], rows, wrapped=name)
    for line in aligned(addresses):
        session.output.text(line)
