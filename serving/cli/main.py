"""Entry point of `knodel`: register the verbs, and report each error as one line and an exit code."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from serving.cli.base.advice import complete_advice
from serving.cli.base.output import clean, uses_colour
from serving.client.errors import FAILED, INTERRUPTED, USAGE, exit_code_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS = {
    "Models": {
        "deploy": "Deploy a model, or a new version of it.",
        "list": "List models.",
        "get": "Show a model.",
        "describe": "Show a model with its conditions, traffic, versions and events.",
        "delete": "Delete a model.",
        "history": "Show the versions of a model.",
        "logs": "Print the logs of a model's replicas.",
        "wait": "Wait until a model is ready.",
        "restart": "Replace the replicas of a model, one after another.",
        "predict": "Send an inference request to a model.",
        "chat": "Chat with a language model.",
        "bench": "Put load on a model and print percentiles by version.",
        "top": "Show the cost of each model's replicas, or their load (--watch).",
        "explain": "Explain the number of replicas and the traffic of a model.",
        "render": "Print the objects that Knodel would apply.",
        "diff": "Show what deploying a file would change.",
        "import": "Convert KServe's InferenceServices and Knative Services to Models.",
    },
    "Traffic and rollouts": {
        "traffic": "Split traffic between versions.",
        "promote": "Send all traffic to the latest ready version.",
        "rollout": "Show a rollout, once or until it ends.",
        "pause": "Pause a rollout.",
        "resume": "Resume a paused rollout.",
        "abort": "Abort a rollout and send all traffic to the stable version.",
        "rollback": "Send all traffic to a previous version.",
    },
    "Events": {
        "events": "Manage event sources and inspect events.",
    },
    "Platform": {
        "status": "Show the platform and what needs attention on one page.",
        "version": "Show the versions of the command, the platform or the cluster.",
        "dashboard": "Open the dashboard in a browser.",
        "up": "Start the platform on this machine.",
        "down": "Stop the platform and every process that it started.",
        "doctor": "Find problems on this machine or in a cluster.",
        "gpus": "Show the GPUs, who holds them, and which nodes could be drained.",
        "config": "Print the settings that `knodel up` takes.",
        "pool": "Manage warm pools.",
        "env": "Manage environments: named platforms and clusters.",
        "namespace": "Create or label a namespace.",
        "secret": "Create or update a Secret with model-storage credentials.",
        "install": "Install or upgrade Knodel on a Kubernetes cluster.",
        "uninstall": "Remove Knodel from a Kubernetes cluster.",
        "serve": "Serve one model without a platform.",
        "init": "Create a project for a model.",
        "dev": "Serve a model, and reload it after each save.",
        "completion": "Print the completion script of a shell.",
    },
}
"""The verbs with their help lines, by the section of `knodel --help`."""
PLACES = {
    "Models": "verbs.models.{verb}",
    "Traffic and rollouts": "verbs.rollouts",
    "Events": "events.group",
    "Platform": "verbs.platform.{verb}",
}
"""The modules of `serving.cli` with the verbs of each section."""
MODULES = {"import": "verbs.models.import_models", "rollout": "verbs.rollout_watch"}
"""The modules of verbs that have another place than their section."""
VERBS = {name: line for section in SECTIONS.values() for name, line in section.items()}
"""Every verb with its help line. The module of a verb is imported only when the verb is used."""

ALIASES = {"ls": "list"}


def load_command(verb: str) -> click.Command:
    """Import and return the command of a verb: `command` of its module, or `VERB_command` of a module with several."""
    place = MODULES.get(verb) or next(PLACES[section] for section, verbs in SECTIONS.items() if verb in verbs)
    module = importlib.import_module(f"serving.cli.{place.format(verb=verb)}")
    command: click.Command = getattr(module, f"{verb}_command", None) or module.command
    return command


class Verbs(click.Group):
    """A click group that imports the module of a verb on use: `knodel list` does not pay for the imports of `up`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all verbs, in the order of `SECTIONS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the verb's command, or None for an unknown verb."""
        name = ALIASES.get(cmd_name, cmd_name)
        return load_command(name) if name in VERBS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the called verb. Raises click.UsageError, with similar verbs, for an unknown one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            close = " or ".join(f"`{name}`" for name in get_close_matches(args[0], VERBS))
            hint = f"did you mean {close}? " if close else ""
            raise click.UsageError(f"unknown verb {args[0]!r}: {hint}`knodel --help` lists the verbs")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs with the prefix `incomplete`, without importing any."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # takes 3 ms; only completion pays

        return [CompletionItem(name, help=line) for name, line in VERBS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by section, without importing any."""
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))


def _complete_option(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from serving.cli.context import contexts, environments  # slow imports; only completion needs them

    complete = environments if parameter.name == "env" else contexts
    return complete(context, parameter, incomplete)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="knodel", message="%(version)s")
@click.option("--debug", is_flag=True, help="Print tracebacks.")
@click.option(
    "--kube-context",
    metavar="NAME",
    shell_complete=_complete_option,
    help="Act on the cluster of this kubeconfig context.",
)
@click.option("--env", metavar="NAME", shell_complete=_complete_option, help="Act on this environment.")
def knodel(debug: bool, kube_context: str | None, env: str | None) -> None:
    """Serve models on Knative: deploy a file, split its traffic, roll it back."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Print an error as one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options: dict[str, str] = {}  # set by the verb: the caller's options for namespace and cluster
    try:
        result = knodel.main(given, prog_name="knodel", standalone_mode=False, obj=options)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # `knodel` without arguments prints its help
        return USAGE
    except click.ClickException as error:
        return _fail(error.format_message(), USAGE, given)
    except KnodelError as error:
        message = "; ".join([str(error), *getattr(error, "__notes__", ())])
        return _fail(complete_advice(message, options), exit_code_of(error), given)
    except ModuleNotFoundError as error:
        return _fail(_about_missing(error, given), FAILED, given)
    except Exception as error:  # a bug in Knodel: print one line here too, and the traceback with --debug
        return _fail(_about_bug(error, given), FAILED, given)


def plugin() -> int:
    """Run one command as `kubectl knodel`: on kubectl's current context, unless the caller names another place."""
    from serving.client.kubeconfig import current_context  # slow imports; only kubectl's plugin needs them
    from serving.client.platform_ref import CONTEXT_VARIABLE

    if wants_current_context(sys.argv[1:], os.environ):
        with suppress(KnodelError):  # without a kubeconfig, it acts as `knodel` does
            os.environ[CONTEXT_VARIABLE] = current_context()
    return main()


def wants_current_context(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether neither an option nor a variable names a platform or a cluster. Pure."""
    from serving.client.environments import VARIABLE
    from serving.client.platform_ref import CONTEXT_VARIABLE
    from serving.client.state import STATE_VARIABLE
    from serving.client.targets import OPTIONS

    options = {argument.partition("=")[0] for argument in arguments}
    return options.isdisjoint(OPTIONS) and not any(map(environ.get, (CONTEXT_VARIABLE, STATE_VARIABLE, VARIABLE)))


def _about_missing(error: ModuleNotFoundError, given: Sequence[str]) -> str:
    from serving.cli.base.missing import explain_missing

    called = next((ALIASES.get(word, word) for word in given if ALIASES.get(word, word) in VERBS), "")
    return explain_missing(called, error.name or "") or _about_bug(error, given)


def _about_bug(error: Exception, given: Sequence[str]) -> str:
    again = shlex.join(["knodel", "--debug", *given])
    return f"unexpected {error.__class__.__name__}: {error}; `{again}` prints the traceback"


def _fail(message: str, code: int, arguments: Sequence[str]) -> int:
    if "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments):
        import traceback

        click.echo(traceback.format_exc(), err=True, nl=False)
    prefix = click.style("knodel:", fg="red", bold=True) if uses_colour(sys.stderr) else "knodel:"
    click.echo(f"{prefix} {clean(one_line(message))}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
