"""Entry point of `kubectl knodel`: the command on the cluster of kubectl's current context."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from clusters.base.errors import KnodelError
from serving.cli.main import main as knodel
from serving.client.environments import VARIABLE
from serving.client.platform_ref import CONTEXT_VARIABLE
from serving.client.state import STATE_VARIABLE
from serving.client.targets import OPTIONS


def wants_current_context(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether neither an option nor a variable names a platform or a cluster."""
    options = {argument.partition("=")[0] for argument in arguments}
    return options.isdisjoint(OPTIONS) and not any(
        environ.get(name) for name in (CONTEXT_VARIABLE, STATE_VARIABLE, VARIABLE)
    )


def main() -> int:
    """Run one command and return its exit code. Without a kubeconfig it acts as `knodel` does."""
    if wants_current_context(sys.argv[1:], os.environ):
        from serving.client.kubeconfig import current_context  # its imports are slow

        try:
            context = current_context()
        except KnodelError:
            context = ""
        if context:
            os.environ[CONTEXT_VARIABLE] = context
    return knodel()


if __name__ == "__main__":
    sys.exit(main())
