"""Images of a node without containers: a name maps to a command, or to a function to call in a fork."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.base.objects import Object
from clusters.embedded.kubelet.process.errors import ImageNotFound

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """The program of one `container.image`.

    `command` is the image's entry point.
    `entry` is a function, as "module:function", that gets the container's args and returns the exit code.
    `preload` maps the args to the modules to import before a fork.
    With both, the process is forked from the zygote of these modules. Without modules, `command` is executed.
    `env` is the image's environment, as ENV in a Dockerfile. It applies to the image's processes, where the container's
    own variables override it, and to its zygote, where libraries read it when they are imported.
    """

    command: tuple[str, ...]
    entry: str = ""
    preload: Callable[[Sequence[str]], tuple[str, ...]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """The command of a container: `argv` to execute, or `entry(args)` to call in a fork.

    A fork is possible when there are `modules`, which its zygote imports under the variables `preload_env`.
    """

    argv: tuple[str, ...]
    entry: str = ""
    args: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    preload_env: Mapping[str, str] = field(default_factory=dict)


def image_of(container: Object, images: Mapping[str, ContainerImage]) -> ContainerImage:
    """Return the container's image. Raises ImageNotFound."""
    name = str(container.get("image", ""))
    image = images.get(name)
    if image is None:
        raise ImageNotFound(
            f"unknown image {name!r}: the images of this node are {', '.join(sorted(images)) or 'none'}"
        )
    return image


def command_of(container: Object, images: Mapping[str, ContainerImage], env: Mapping[str, str]) -> ContainerCommand:
    """Return the command of a container with `$(NAME)` replaced from `env`, as in Kubernetes. Raises ImageNotFound."""
    image = image_of(container, images)
    args = tuple(expand(str(arg), env) for arg in container.get("args") or ())
    if container.get("command"):  # replaces the image's entry point, as in Kubernetes
        return ContainerCommand((*(expand(str(word), env) for word in container["command"]), *args))
    modules = image.preload(args) if image.preload is not None and image.entry else ()
    return ContainerCommand((*image.command, *args), image.entry, args, modules, image.env)


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`. A reference to an unknown name is unchanged.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else env.get(match[1], match[0])

    return _REFERENCE.sub(value, text)
