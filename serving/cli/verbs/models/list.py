"""`knodel list`."""

from __future__ import annotations

from datetime import datetime

from clusters.base.objects import MODEL, Object, name_of, namespace_of
from serving.cli.addresses import gateway_of
from serving.cli.context import Session, all_namespaces_option, managed_fields_option, verb
from serving.cli.listing import Listing, show_list, watch_option
from serving.client.inference.addresses import address_of
from serving.control_api.table import URL, age_of, columns_of


@verb(
    "list",
    examples=[
        ("List the models of all namespaces", "knodel list -A"),
        ("Show changes as they happen", "knodel list --watch"),
    ],
)
@all_namespaces_option
@watch_option
@managed_fields_option
def command(session: Session, all_namespaces: bool, watch: bool, show_managed_fields: bool) -> None:
    """List models. With --watch, -o json prints a line for each changed model."""
    gateway = None if session.output.structured else gateway_of(session)
    columns = [column for column in columns_of(MODEL) if session.output.wide or not column.wide]

    def row(item: Object, now: datetime) -> list[object]:
        cells = [address_of(gateway, item) if column.name == URL else column.cell(item) for column in columns]
        return [*([namespace_of(item)] if all_namespaces else []), name_of(item), *cells, age_of(item, now)]

    heads = [*(["namespace"] if all_namespaces else []), "name", *(column.name for column in columns), "age"]
    optional = ("url", "traffic", "reason", "version", "rollout")
    listing = Listing(MODEL, heads, row, optional=optional, managed_fields=show_managed_fields)
    show_list(session, listing, None if all_namespaces else session.namespace, watch=watch)
