"""The options that verbs share (`-n`, `-o`, `--state`, `--kube-context`), with the client and printer for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from clusters.base.durations import parse_duration
from clusters.base.errors import KnodelError
from clusters.base.names import dns_label_fault
from clusters.base.objects import NAMESPACE
from serving.cli.base.output import FORMATS, PROGRESS_DELAY, Output, ProgressLine
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.client import MIN_TIMEOUT, TIMEOUT, Client
from serving.client.environments import environments_file, read_environments
from serving.client.errors import UsageError
from serving.client.platform_ref import CONTEXT_VARIABLE, DEFAULT_NAMESPACE, PlatformRef
from serving.client.state import LocalPlatform, version_skew
from serving.client.targets import Target, find_target

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from serving.client.kubeconfig import KubeContext

F = TypeVar("F", bound=Callable[..., Any])

NO_FOLDER = Path("/nonexistent")
"""Placeholder state folder of verbs that need none, so that they work without a home folder."""
Place = Literal["machine", "cluster", "either", "nowhere"]
"""Where a verb acts: on the platform of this machine, on a Kubernetes cluster, on either of them, or on neither."""
Example = tuple[str, str]
"""An example in the help of a verb: (purpose, command line)."""


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of one invocation: its cluster (a kubeconfig context or a state folder), namespace and printer."""

    state: Path
    namespace: str
    output: Output
    kube: KubeContext | None = None
    namespace_given: bool = False
    """Whether the caller named the namespace; objects in a file must then be in it."""
    env: str = ""
    """The name of the environment; empty if the place was given in another way."""

    @property
    def ref(self) -> PlatformRef:
        """The platform or cluster."""
        return PlatformRef(self.state, self.kube)

    def platform(self) -> LocalPlatform:
        """Return the running platform. Raises ClientError when none runs."""
        return self.ref.platform()

    @property
    def driver(self) -> BlockingDriver:
        """The driver of operations; it shows progress and warnings on stderr."""
        return BlockingDriver(HttpTransport(), partial(ProgressLine, delay=PROGRESS_DELAY), self.output.warn)

    def client(self, timeout: float = TIMEOUT) -> Client:
        """Return a client of the cluster or the platform, for a command that may take `timeout` seconds in all.

        Raises ClientError when no platform runs, or when the context has no usable credentials.
        """
        return Client(self.ref.server(), min(TIMEOUT, max(MIN_TIMEOUT, timeout)), self.driver)


def verb(
    name: str,
    *,
    place: Place = "either",
    namespaced: bool = True,
    prints: bool = True,
    takes_env: bool = True,
    examples: Sequence[Example],
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that turns a function into a click command; its first argument is the `Session`.

    The command takes the options of its `place`, `-n` if `namespaced`, and `-o` if it `prints` objects or a table.
    Without `takes_env`, `--env` has another meaning, and the environment is given before the verb. The help ends with
    the `examples`.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(
            namespace: str | None = None, output: str = FORMATS[0], state: str | None = None,
            kube_context: str | None = None, env: str | None = None, **arguments: Any,
        ) -> Any:  # fmt: skip
            context = click.get_current_context()
            _check_no_empty_option(context)
            kube_context = before_the_verb(context, "kube_context", kube_context)
            envs = arguments.get("envs", ())  # `knodel diff` takes two
            env = before_the_verb(context, "env", envs[0] if len(envs) == 1 else env)
            refused = {"--kube-context": kube_context if place in ("machine", "nowhere") else None,
                       "--env": env if place == "nowhere" else None}  # fmt: skip
            for option, value in refused.items():
                if value is not None:
                    raise UsageError(f"`knodel {name}` acts on this machine: omit {option}")
            target = NOWHERE if place == "nowhere" else find_target(state, kube_context, env, place == "machine")
            if target.ref.kube is None and place == "cluster":
                raise UsageError(f"no cluster is given: use `knodel {name} --kube-context NAME`")
            chosen = namespace if namespace is not None else target.namespace
            if fault := dns_label_fault(chosen):
                raise UsageError(f"--namespace: {fault}")
            places = {"--namespace": namespace, "--state": state, "--kube-context": kube_context, "--env": env}
            options = {option: value for option, value in places.items() if value is not None}
            context.ensure_object(dict).update(options)
            folder, kube = target.ref.state, target.ref.kube
            with _noting_version_skew(None if kube or place == "nowhere" else folder):
                printer = Output(output, options)
                session = Session(folder, chosen, printer, kube, namespace is not None, target.env)
                return function(session, **arguments)

        wrapped: Any = run
        for option in _options(place, namespaced, prints, takes_env):
            wrapped = option(wrapped)
        lines = [line for purpose, line in examples for line in (f"  # {purpose}", f"  {line}")]
        epilog = "\n".join(["\b", "Examples:", *lines])  # \b keeps click from wrapping the lines
        command: Callable[[Callable[..., Any]], click.Command] = click.command(name, epilog=epilog, **settings)
        return command(wrapped)

    return decorate


def _check_no_empty_option(context: click.Context) -> None:
    """Raise UsageError for an option with an empty value: usually a shell variable that is not set."""
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option, click.Option) and (value == "" or (isinstance(value, tuple) and "" in value)):
            flag = max(option.opts, key=len)
            if context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE:
                raise UsageError(f"{flag} is empty: give a value, or omit the option")


NOWHERE = Target(PlatformRef(NO_FOLDER), DEFAULT_NAMESPACE)


def before_the_verb(context: click.Context, option: str, value: str | None) -> str | None:
    """Return the value of an option of the verb, else that of the option before it, as in `knodel --env NAME list`."""
    found = context.find_root().params.get(option) if value is None and context.parent else value
    return str(found) if found is not None else None


def all_namespaces_option(function: F) -> F:
    """Add the option `-A`."""
    return click.option("-A", "--all-namespaces", is_flag=True, help="List objects of all namespaces.")(function)


def managed_fields_option(function: F) -> F:
    """Add the option `--show-managed-fields`."""
    return click.option("--show-managed-fields", is_flag=True, help="Keep metadata.managedFields in JSON and YAML.")(
        function
    )


def timeout_option(default: str, help: str = "Maximum time to wait.") -> Callable[[F], F]:
    """Add the option `--timeout DURATION`."""
    return click.option("--timeout", metavar="DURATION", default=default, show_default=True, help=help)


def parse_timeout(text: str, option: str = "--timeout") -> float:
    """Return the seconds of the duration of an option, such as `300s` or `5m`. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from error


@contextmanager
def _noting_version_skew(state: Path | None) -> Iterator[None]:
    """Add a note to an error when command and platform have different versions, as that may be the cause."""
    try:
        yield
    except KnodelError as error:
        if state is not None and (skew := version_skew(state)):
            error.add_note(skew)
        raise


def _options(place: Place, namespaced: bool, prints: bool, takes_env: bool) -> list[Callable[[Any], Any]]:
    """Return the options, last one of the help first."""
    context = click.option(
        "--kube-context", metavar="NAME", shell_complete=contexts,
        help=f"Act on the cluster of this kubeconfig context [{CONTEXT_VARIABLE}].",
    )  # fmt: skip
    state = click.option(
        "--state", metavar="DIR", shell_complete=_folders, help="State folder of the platform [KNODEL_STATE]."
    )
    output = click.option(
        "-o", "--output", type=click.Choice(FORMATS), default=FORMATS[0],
        help="Output format; wide prints all columns without truncation.",
    )  # fmt: skip
    namespace = click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        shell_complete=_namespaces,
        help="Namespace [that of the context, else default].",
    )
    env = click.option(
        "--env", metavar="NAME", shell_complete=environments,
        help="Act on this environment [KNODEL_ENV, else the default one].",
    )  # fmt: skip
    places = {"machine": [state], "cluster": [context], "either": [context, state], "nowhere": []}
    envs = [env] if takes_env and place != "nowhere" else []
    return [*envs, *places[place], *([output] if prints else []), *([namespace] if namespaced else [])]


def _folders(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # takes 3 ms; only completion pays

    return [CompletionItem(incomplete, type="dir")]


def _namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from serving.cli.names import names_of  # that module imports this one

    return names_of(NAMESPACE, context, incomplete)


def environments(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of environments with this prefix; none for an invalid file."""
    try:
        found = read_environments(environments_file()).known
    except KnodelError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the context names with this prefix; none without a kubeconfig, as completion must not print errors."""
    from serving.client.kubeconfig import contexts_of

    try:
        return [name for name in contexts_of() if name.startswith(incomplete)]
    except KnodelError:
        return []
