"""`knodel wait`."""

from __future__ import annotations

from serving.cli.addresses import gateway_of
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.cli.names import model_name
from serving.client.inference.addresses import address_of
from serving.client.models.waiting import wait_until_ready


@verb("wait", examples=[("Wait at most ten minutes until a model is ready", "knodel wait iris --timeout 10m")])
@model_name()
@timeout_option("300s")
def command(session: Session, name: str, timeout: str) -> None:
    """Wait until the newest version of the model NAME is ready."""
    seconds = parse_timeout(timeout)
    model = session.client(seconds).call(wait_until_ready, name, session.namespace, seconds)
    if session.output.structured:
        session.output.value(model)
        return
    session.output.text(f"model {name} is ready at {address_of(gateway_of(session), model)}")
