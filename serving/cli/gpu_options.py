"""The options of verbs for GPUs: those of `resources` of a Model or a warm pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from serving.cli.base.options import Command, option_group
from serving.client.models.gpu_fields import gpu_fields


def gpu_options(owner: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options; `owner` ends the help texts (`of each replica`)."""
    options = (
        click.option("--gpu", type=click.IntRange(min=0), metavar="N", help=f"Number of GPUs {owner}; 0 for none."),
        click.option("--gpu-fraction", type=float, metavar="NUMBER",
                     help=f"Part of one GPU {owner}, instead of --gpu; only on one machine."),
        click.option("--gpu-resource", metavar="NAME",
                     help="Extended resource of the GPUs, such as nvidia.com/mig-1g.10gb [nvidia.com/gpu]."),
        click.option("--gpu-type", "gpu_types", multiple=True, metavar="TYPE",
                     help="Type of GPU that will do, the best first, as nodes are labelled; may be repeated."),
    )  # fmt: skip
    return option_group(options)


def take_gpu_fields(named: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options from `named`, and return them as fields of `resources`; None if none is given."""
    gpu, fraction, resource = (named.pop(name) for name in ("gpu", "gpu_fraction", "gpu_resource"))
    return gpu_fields(gpu, fraction, resource, named.pop("gpu_types") or None)
