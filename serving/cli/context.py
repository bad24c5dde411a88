"""The options that verbs share (`-n`, `-o`, `--state`, `--kube-context`), and the client and printer they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from clusters.base.errors import KnodelError
from clusters.base.names import dns_label_fault
from clusters.base.objects import NAMESPACE
from serving.cli.base.errors import UsageError
from serving.cli.base.output import FORMATS, Output
from serving.cli.client.client import LEAST_TIMEOUT, TIMEOUT, Client
from serving.cli.client.state import Platform, state_folder, version_skew

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from serving.cli.client.kubeconfig import KubeContext

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT_VARIABLE = "KNODEL_KUBE_CONTEXT"
NO_FOLDER = Path("/nonexistent")
"""The state folder of verbs that use none: they work without a home folder."""
DEFAULT_NAMESPACE = "default"
Place = Literal["machine", "cluster", "either", "nowhere"]
"""Where a verb works: on the platform of this machine, on a Kubernetes cluster, on the one that the caller names, or
without any."""
Example = tuple[str, str]
"""What a command does, and the command."""


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation: where it acts (a context of a kubeconfig, else a state folder), in which namespace, and how it
    prints."""

    state: Path
    namespace: str
    output: Output
    kube: KubeContext | None = None
    bound: bool = False
    """Whether the caller named the namespace: objects of a file must be of it then."""

    def platform(self) -> Platform:
        """The running platform. Raises CommandError when there is none."""
        return Platform.find(self.state)

    def client(self, patience: float = TIMEOUT) -> Client:
        """A client of the cluster or the platform, for a command that is to take no longer than `patience` seconds.

        Raises CommandError when there is no platform, or no credentials for the cluster.
        """
        server = self.kube.connect() if self.kube else self.platform()
        return Client(server, min(TIMEOUT, max(LEAST_TIMEOUT, patience)))


def verb(
    name: str,
    *,
    place: Place = "either",
    namespaced: bool = True,
    prints: bool = True,
    examples: Sequence[Example] = (),
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a click command of a function, which gets a `Session` first.

    The command takes the options of its `place`, `-n` when it is `namespaced`, and `-o` when it `prints` objects or a
    table. Its help ends with the `examples`.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(
            namespace: str | None = None, output: str = FORMATS[0], state: str | None = None,
            kube_context: str | None = None, **arguments: Any,
        ) -> Any:  # fmt: skip
            _check_no_empty_option(click.get_current_context())
            named = kube_context if kube_context is not None else group_context(click.get_current_context())
            is_local = place in ("machine", "nowhere")
            if is_local and named is not None:
                raise UsageError(f"`knodel {name}` acts on this machine: leave --kube-context out")
            kube = None if is_local else find_context(state, named)
            if kube is None and place == "cluster":
                raise UsageError(
                    f"which cluster? `knodel {name} --kube-context NAME` names a context of the kubeconfig"
                )
            chosen = namespace if namespace is not None else kube.namespace if kube else DEFAULT_NAMESPACE
            if fault := dns_label_fault(chosen):
                raise UsageError(f"--namespace: {fault}")
            folder = NO_FOLDER if place == "nowhere" else state_folder(state)
            places = {"--namespace": namespace, "--state": state, "--kube-context": named}
            options = {option: value for option, value in places.items() if value is not None}
            click.get_current_context().ensure_object(dict).update(options)
            with _naming_skew(None if kube or place == "nowhere" else folder):
                printer = Output(output, options)
                return function(Session(folder, chosen, printer, kube, namespace is not None), **arguments)

        wrapped: Any = run
        for option in _options(place, namespaced, prints):
            wrapped = option(wrapped)
        command: Callable[[Callable[..., Any]], click.Command] = click.command(
            name, epilog=_epilog(examples), **settings
        )
        return command(wrapped)

    return decorate


def _check_no_empty_option(context: click.Context) -> None:
    """Raise UsageError for an option with an empty value: most often a variable of the shell that is not set."""
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option, click.Option) and (value == "" or (isinstance(value, tuple) and "" in value)):
            flag = max(option.opts, key=len)
            if context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE:
                raise UsageError(f"{flag} is empty: give it a value, or leave it out")


def find_context(state: str | None, named: str | None) -> KubeContext | None:
    """The context that `--kube-context` names, else KNODEL_KUBE_CONTEXT; None: the platform of this machine.

    Raises UsageError when there is no such context, or a state folder is named too.
    """
    if state is not None and named is not None:
        raise UsageError("--state is a platform of this machine, --kube-context a cluster: give one of them")
    if named == "":
        raise UsageError("--kube-context is empty: name a context of your kubeconfig")
    chosen = named or (os.environ.get(CONTEXT_VARIABLE) if state is None else None)
    if not chosen:
        return None
    from serving.cli.client.kubeconfig import KubeContext  # imports what only clusters need

    return KubeContext.find(chosen)


def group_context(context: click.Context) -> str | None:
    """What `knodel --kube-context NAME VERB` names."""
    found = context.find_root().params.get("kube_context") if context.parent else None
    return str(found) if found is not None else None


def every_namespace(function: F) -> F:
    """Add `-A`: all namespaces."""
    return click.option("-A", "--all-namespaces", is_flag=True, help="List objects of all namespaces.")(function)


def managed_fields_option(function: F) -> F:
    """Add `--show-managed-fields`."""
    return click.option("--show-managed-fields", is_flag=True, help="Keep metadata.managedFields in JSON and YAML.")(
        function
    )


@contextmanager
def _naming_skew(state: Path | None) -> Iterator[None]:
    """A failure on a platform of another version says so: it may be the cause."""
    try:
        yield
    except KnodelError as error:
        if state is not None and (skew := version_skew(state)):
            error.add_note(skew)
        raise


def _epilog(examples: Sequence[Example]) -> str | None:
    if not examples:
        return None
    lines = [line for purpose, command in examples for line in (f"  # {purpose}", f"  {command}")]
    return "\n".join(["\b", "Examples:", *lines])  # \b keeps the lines as they are


def _options(place: Place, namespaced: bool, prints: bool) -> list[Callable[[Any], Any]]:
    """In the reverse of the order in which help shows them."""
    context = click.option(
        "--kube-context", metavar="NAME", shell_complete=_contexts,
        help=f"Act on the cluster of this kubeconfig context [{CONTEXT_VARIABLE}].",
    )  # fmt: skip
    state = click.option(
        "--state", metavar="DIR", shell_complete=_folders, help="State folder of the platform [KNODEL_STATE]."
    )
    output = click.option(
        "-o", "--output", type=click.Choice(FORMATS), default=FORMATS[0],
        help="Output format; wide shows every column and cuts no cell.",
    )  # fmt: skip
    namespace = click.option(
        "-n", "--namespace", shell_complete=_namespaces, help="Namespace [the context's, else default]."
    )
    places = {"machine": [state], "cluster": [context], "either": [context, state], "nowhere": []}
    return [*places[place], *([output] if prints else []), *([namespace] if namespaced else [])]


def _folders(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # 3 ms that other calls save

    return [CompletionItem(incomplete, type="dir")]


def _namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from serving.cli.names import names_of  # it imports this module

    return names_of(NAMESPACE, context, incomplete)


def _contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Names of contexts that begin so; none without a kubeconfig, as an error would spoil the line being typed."""
    from serving.cli.client.kubeconfig import contexts_of

    try:
        return [name for name in contexts_of() if name.startswith(incomplete)]
    except KnodelError:
        return []
