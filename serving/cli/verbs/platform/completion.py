"""`knodel completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from serving.cli.context import Session, verb


@verb(
    "completion", place="nowhere", namespaced=False, prints=False,
    examples=[("Enable completion in this shell", 'eval "$(knodel completion bash)"')],
)  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(session: Session, shell: str) -> None:
    """Print the completion script of SHELL."""
    completion = get_completion_class(shell)
    if completion is not None:
        session.output.raw(
            (
                completion(click.get_current_context().find_root().command, {}, "knodel", "_KNODEL_COMPLETE").source()
                + "\n"
            ).encode()
        )
