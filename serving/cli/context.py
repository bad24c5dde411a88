"""What every verb shares: `-n`, `-o`, `--state`, and from them the client and the printer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from clusters.names import dns_label_fault
from serving.cli.client import LEAST_TIMEOUT, TIMEOUT, Client
from serving.cli.errors import UsageError
from serving.cli.output import FORMATS, Output
from serving.cli.state import Platform, state_folder

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation: where the platform's state is, in which namespace it acts, how it prints."""

    state: Path
    namespace: str
    output: Output

    def platform(self) -> Platform:
        """The running platform. Raises CommandError when there is none."""
        return Platform.find(self.state)

    def client(self, patience: float = TIMEOUT) -> Client:
        """A client of the running platform, for a command that is to take no longer than `patience` seconds."""
        return Client(self.platform(), min(TIMEOUT, max(LEAST_TIMEOUT, patience)))


def verb(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command whose function gets a `Session` first; adds `-n`, `-o` and `--state`."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(namespace: str, output: str, state: str | None, **arguments: Any) -> Any:
            if fault := dns_label_fault(namespace):
                raise UsageError(f"--namespace: {fault}")
            return function(Session(state_folder(state), namespace, Output(output)), **arguments)

        wrapped: Any = run
        for option in (
            click.option("--state", metavar="DIR", help="State folder of the platform [KNODEL_STATE]."),
            click.option("-o", "--output", type=click.Choice(FORMATS), default="table", help="How to print."),
            click.option("-n", "--namespace", default="default", show_default=True, help="Namespace."),
        ):
            wrapped = option(wrapped)
        command: Callable[[Callable[..., Any]], click.Command] = click.command(name, **settings)
        return command(wrapped)

    return decorate


def every_namespace(function: F) -> F:
    """Adds `-A`: all namespaces."""
    return click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")(function)
