"""`knodel env`: add, list, remove and choose environments."""

from __future__ import annotations

import os

import click

from clusters.base.names import dns_label_fault
from serving.cli.context import Session, environments, verb
from serving.client.environments import VARIABLE, Environment, environments_file, read_environments, write_environments
from serving.client.errors import UsageError
from serving.client.home import expand_home


@click.group("env")
def command() -> None:
    """Manage environments: names for a cluster or a platform of this machine, each with a namespace.

    `knodel --env NAME VERB` acts on one of them; without the option, KNODEL_ENV or the default one is used.
    """


@verb(
    "add", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Name a namespace of a cluster", "knodel env add prod --kube-context gke --namespace ml"),
        ("Name a platform of this machine", "knodel env add laptop --state ~/.local/state/knodel"),
    ],
)  # fmt: skip
@click.argument("name")
@click.option("--kube-context", "context", metavar="NAME", help="Context of your kubeconfig.")
@click.option("--state", "folder", metavar="DIR", help="State folder of a platform of this machine.")
@click.option("-n", "--namespace", "within", metavar="NAME", help="Namespace [that of the context, else default].")
def add_command(session: Session, name: str, context: str | None, folder: str | None, within: str | None) -> None:
    """Add the environment NAME: a context of your kubeconfig, or the state folder of a platform."""
    if (context is None) == (folder is None):
        raise UsageError("an environment is either a cluster or a platform: give --kube-context NAME or --state DIR")
    path = environments_file()
    state = os.path.normpath(expand_home(folder).absolute()) if folder else ""
    new = Environment(name, context or "", state, within or "")
    changed = read_environments(path).added(new)
    if fault := dns_label_fault(within) if within else "":
        raise UsageError(f"--namespace: {fault}")
    if context:
        from serving.client.kubeconfig import KubeContext  # heavy; only clusters need it

        KubeContext.find(context)
    write_environments(path, changed)
    session.output.text(f"environment {name} is {new.where}: `knodel list --env {name}` lists its models")


@verb("list", place="nowhere", namespaced=False, examples=[("Show all environments", "knodel env list")])
def list_command(session: Session) -> None:
    """List the environments; the default one is marked."""
    found = read_environments(environments_file())
    chosen = os.environ.get(VARIABLE) or found.default
    if session.output.structured:
        default = found.default
        values = [{"name": one.name, **one.fields(), "default": one.name == default} for one in found.known.values()]
        session.output.value(values)
        return
    rows = [
        ["*" if one.name == chosen else "", one.name, one.kube_context, one.namespace, one.state]
        for one in found.known.values()
    ]
    session.output.table(["in use", "name", "context", "namespace", "state folder"], rows)


@verb(
    "remove", place="nowhere", namespaced=False, prints=False,
    examples=[("Forget an environment; its models stay", "knodel env remove prod")],
)  # fmt: skip
@click.argument("name", shell_complete=environments)
def remove_command(session: Session, name: str) -> None:
    """Remove the environment NAME from the list. Its platform or cluster is not changed."""
    path = environments_file()
    before = read_environments(path)
    write_environments(path, before.removed(name))
    note = "; there is no default environment now" if before.default == name else ""
    session.output.text(f"environment {name} was removed{note}")


@verb(
    "use", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Act on an environment from now on", "knodel env use prod"),
        ("Act on the platform of this machine again", "knodel env use --none"),
    ],
)  # fmt: skip
@click.argument("name", required=False, shell_complete=environments)
@click.option("--none", is_flag=True, help="Have no default environment.")
def use_command(session: Session, name: str | None, none: bool) -> None:
    """Make NAME the default environment, which verbs use without --env and without variables."""
    if (name is None) != none:
        raise UsageError("give the NAME of an environment, or --none")
    path = environments_file()
    changed = read_environments(path).using(name or "")
    write_environments(path, changed)
    if name:
        session.output.text(f"environment {name} ({changed.known[name].where}) is the default now")
    else:
        session.output.text("there is no default environment now")


for _one in (add_command, list_command, remove_command, use_command):
    command.add_command(_one)
