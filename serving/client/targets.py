"""Which platform or cluster a command or a client acts on: given, else by variables, else the default environment."""

from __future__ import annotations

import os
from typing import NamedTuple

from serving.client.environments import chosen_environment
from serving.client.errors import UsageError
from serving.client.platform_ref import CONTEXT_VARIABLE, DEFAULT_NAMESPACE, PlatformRef
from serving.client.state import state_folder

OPTIONS = ("--state", "--kube-context", "--env")


class Target(NamedTuple):
    """What was selected: the platform or cluster, its namespace, and the name of its environment, if any."""

    ref: PlatformRef
    namespace: str
    env: str = ""


def find_target(
    state: str | None, kube_context: str | None, env: str | None, on_machine: bool = False,
    names: tuple[str, str, str] = OPTIONS,
) -> Target:  # fmt: skip
    """Return the target of a state folder, a kubeconfig context or an environment, else of variables.

    Without these, it is the default environment, else the platform of this machine. With `on_machine` only state
    folders count: variables and a default environment that name a cluster are ignored. `names` are those of the first
    three arguments in messages. Raises UsageError for several of them, and for a context or an environment that does
    not exist.
    """
    values = (state, kube_context, env)
    several = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    if len(several) > 1:
        shown = " and ".join(name for name, _ in several)
        raise UsageError(f"{shown} select different platforms or clusters: give only one of them")
    if several and several[0][1] == "":
        what = "the name of a context in your kubeconfig" if kube_context == "" else "the name of an environment"
        raise UsageError(f"{several[0][0]} is empty: give {what}")
    chosen = chosen_environment(env, elsewhere=state is not None or kube_context is not None)
    if chosen is not None and on_machine and chosen.kube_context:
        if env is not None:
            raise UsageError(f"environment {env} is a cluster ({chosen.where}), and this verb acts on this machine")
        chosen = None
    if chosen is not None:
        return Target(*chosen.open(), chosen.name)
    context = kube_context or (os.environ.get(CONTEXT_VARIABLE) if state is None and not on_machine else None)
    folder = state_folder(state)
    if not context:
        return Target(PlatformRef(folder), DEFAULT_NAMESPACE)
    from serving.client.kubeconfig import KubeContext  # heavy; only clusters need it

    kube = KubeContext.find(context)
    return Target(PlatformRef(folder, kube), kube.namespace)
