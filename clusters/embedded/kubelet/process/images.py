"""Container images of a node without containers: a name stands for a command, or for a function to fork into."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.base.objects import Object
from clusters.embedded.kubelet.process.errors import UnknownImage

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class Image:
    """What a `container.image` runs.

    `command` is the image's entry point. With `entry` ("module:function", called with the container's args, returns the
    exit code) and `preload` (args → modules to import beforehand) the process is forked from the zygote of these
    modules instead; no modules: no zygote. `env` is the image's environment, as ENV in a Dockerfile: of its processes
    (a container's own goes over it) and of its zygote, where libraries read it when they are imported.
    """

    command: tuple[str, ...]
    entry: str = ""
    preload: Callable[[Sequence[str]], tuple[str, ...]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: `argv`; or, where that is possible, `entry(args)` with `modules` imported under `preload_env`."""

    argv: tuple[str, ...]
    entry: str = ""
    args: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    preload_env: Mapping[str, str] = field(default_factory=dict)


def image_of(container: Object, images: Mapping[str, Image]) -> Image:
    """The container's image. Raises UnknownImage."""
    name = str(container.get("image", ""))
    image = images.get(name)
    if image is None:
        raise UnknownImage(f"no image {name!r} on this node: it has {', '.join(sorted(images)) or 'none'}")
    return image


def command_of(container: Object, images: Mapping[str, Image], env: Mapping[str, str]) -> Command:
    """The command of a container, `$(NAME)` replaced by `env` as Kubernetes does. Raises UnknownImage."""
    image = image_of(container, images)
    args = tuple(expand(str(arg), env) for arg in container.get("args") or ())
    if container.get("command"):  # replaces the image's entry point, as in Kubernetes
        return Command((*(expand(str(word), env) for word in container["command"]), *args))
    modules = image.preload(args) if image.preload is not None and image.entry else ()
    return Command((*image.command, *args), image.entry, args, modules, image.env)


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value, `$$` a dollar; an unknown name stays as it is (Kubernetes' dependent variables)."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else env.get(match[1], match[0])

    return _REFERENCE.sub(value, text)
