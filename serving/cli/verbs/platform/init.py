"""`knodel init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serving.cli.context import Session, verb
from serving.cli.names import name_of_path
from serving.cli.projects import NAMES, SERVED, description, fill, next_commands, template_files, write_project
from serving.client.errors import UsageError
from serving.client.home import expand_home

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _folders(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # takes 3 ms; only completion pays

    return [CompletionItem(incomplete, type="dir")]


@verb(
    "init", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Create a project that trains a scikit-learn model", "knodel init iris --template sklearn"),
        ("List the templates", "knodel init --list"),
    ],
)  # fmt: skip
@click.argument("folder", metavar="[DIR]", default=".", shell_complete=_folders)
@click.option("--template", type=click.Choice(NAMES), help="Template of the project.")
@click.option("--name", metavar="NAME", help="Name of the model [that of the folder].")
@click.option("--list", "listing", is_flag=True, help="List the templates.")
def command(session: Session, folder: str, template: str | None, name: str | None, listing: bool) -> None:
    """Create a project for a model in DIR: its code, a Model, an example request, a test and a README.

    No file is overwritten.
    """
    width = max(map(len, NAMES))
    if listing:
        for one in NAMES:
            session.output.text(f"{one:{width}}  {description(one)}")
        return
    if template is None:
        raise UsageError(f"no template is given: use --template {'|'.join(NAMES)}; `knodel init --list` describes them")
    path = expand_home(folder)
    model = _checked_name(name, path)
    files = fill(template_files(template), model, (path.resolve() / SERVED).as_uri())
    write_project(path, files)
    for written in files:
        session.output.text(f"created {path / written}")
    session.output.text("next:")
    for line in next_commands(template, shlex.quote(str(path)), model):
        session.output.text(f"  {line}")


def _checked_name(name: str | None, path: Path) -> str:
    """Return the given name, or that of the folder. Raises UsageError."""
    from serving.types.faults import model_name_fault  # 30 ms

    chosen = name or name_of_path(str(path.resolve()))
    if fault := model_name_fault(chosen):
        source = f"--name {chosen!r}" if name else f"{chosen!r}, the name of the folder, is not a name of a model: it"
        raise UsageError(f"{source} {fault}" + ("" if name else "; give one with --name"))
    return chosen
