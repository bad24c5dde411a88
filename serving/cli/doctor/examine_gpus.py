"""Collect the facts of `knodel doctor --kube-context` about GPUs, if a Model of the namespace has some. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from clusters.base.errors import Forbidden, Invalid, KnodelError
from clusters.base.objects import CONFIG_MAP, Kind, Object, name_of
from serving.cli.doctor import gpus as doctor
from serving.cli.doctor.cluster import Unreadable, check_flags
from serving.cli.doctor.findings import Finding
from serving.client.client import Client
from serving.client.installed import installed_settings
from serving.client.models.gpus import read_view
from serving.makers.knative_flags import NAMESPACE, Flag
from serving.types.model import Model
from serving.types.settings.settings import ServerSettings
from serving.types.validation import read_model

PRIORITY_CLASS: Final = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)


def examine_gpus(client: Client, context: str, objects: Sequence[Object]) -> Iterator[Finding]:
    """Run the checks about GPUs for these Models."""
    models: list[Model] = []
    for one in objects:
        with suppress(Invalid):  # the check of models reports it
            models.append(read_model(one))
    models = doctor.with_gpus(models)
    if not models:
        return
    server = ServerSettings()
    with suppress(KnodelError):  # the check of settings reports it
        server = client.call(installed_settings, context).server
    flags = doctor.gpu_flags(models, server)
    yield from check_flags(flags, read_config_maps(client, flags))
    yield doctor.check_priority_classes(models, server.gpu_priority_class, _priority_classes(client))
    try:
        view = read_view(client, None, ())
    except KnodelError as error:
        yield Finding("GPU nodes", True, str(error), seen=False)
    else:
        yield doctor.check_placing(view.inventory, {drain.node for drain in view.drains})


def read_config_maps(client: Client, flags: Iterable[Flag]) -> dict[str, Mapping[str, str] | Unreadable]:
    """Return the data of the ConfigMaps of Knative with these flags, by name."""
    return {name: _config_map(client, name) for name in dict.fromkeys(flag.configmap for flag in flags)}


def _config_map(client: Client, name: str) -> Mapping[str, str] | Unreadable:
    try:
        data = client.get(CONFIG_MAP, name, NAMESPACE).get("data")
    except KnodelError as error:
        return Unreadable(str(error), isinstance(error, Forbidden))
    return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def _priority_classes(client: Client) -> Collection[str] | Unreadable:
    try:
        return {name_of(one) for one in client.list(PRIORITY_CLASS, None)["items"]}
    except KnodelError as error:
        return Unreadable(str(error), isinstance(error, Forbidden))
