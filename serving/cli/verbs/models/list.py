"""`knodel list`."""

from __future__ import annotations

from datetime import UTC, datetime

from clusters.base.objects import MODEL, name_of, namespace_of
from serving.cli.addresses import address_of, gateway_of
from serving.cli.context import Session, all_namespaces_option, managed_fields_option, verb
from serving.control_api.table import URL, age_of, columns_of


@verb("list", examples=[("List the models of all namespaces", "knodel list -A")])
@all_namespaces_option
@managed_fields_option
def command(session: Session, all_namespaces: bool, show_managed_fields: bool) -> None:
    """List models."""
    found = session.client().list(MODEL, None if all_namespaces else session.namespace)
    if session.output.structured:
        session.output.value(found, managed_fields=show_managed_fields)
        return
    now, gateway = datetime.now(UTC), gateway_of(session)
    columns = [column for column in columns_of(MODEL) if session.output.wide or not column.wide]
    rows = [
        [*([namespace_of(item)] if all_namespaces else []), name_of(item)]
        + [address_of(gateway, item) if column.name == URL else column.cell(item) for column in columns]
        + [age_of(item, now)]
        for item in found["items"]
    ]
    heads = [*(["namespace"] if all_namespaces else []), "name", *(column.name for column in columns), "age"]
    session.output.table(heads, rows, optional=("url", "traffic", "reason", "version", "rollout"))
