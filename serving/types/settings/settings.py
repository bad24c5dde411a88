"""The settings of a platform: one typed value, from defaults, then a YAML file, then `KNODEL_*` variables.

A key is `group.field` in camelCase (`gateway.port`); its variable is KNODEL_GROUP_FIELD (`KNODEL_GATEWAY_PORT`). Keys
and variables that no setting has are refused by name. `knodel config` prints the settings. On Kubernetes the
file is the ConfigMap `knodel-config` and variables do not count: whoever reads the ConfigMap sees what is in force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from clusters.base.durations import format_duration
from clusters.base.version import VERSION
from clusters.net.hosts import PATTERN_FORM, is_host_pattern
from serving.types.input_files import open_input
from serving.types.loader import LoadError, load_documents
from serving.types.settings import ports
from serving.types.settings.prices import GROUP as PRICES
from serving.types.settings.prices import Prices, prices_to_dict, read_prices
from serving.types.settings.runtimes import GROUP as RUNTIMES
from serving.types.settings.runtimes import Runtime, read_runtimes, runtimes_to_dict
from serving.types.settings.setting import (
    VARIABLE_PREFIX,
    SettingsError,
    Slot,
    from_variable,
    port_setting,
    read_value,
    setting,
)

__all__ = [
    "AutoscalerSettings",
    "ControlSettings",
    "EventSettings",
    "GatewaySettings",
    "RolloutSettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "describe_settings",
    "load_settings",
    "settings_from_text",
    "settings_to_dict",
]

FREE = frozenset({RUNTIMES, PRICES})
"""Sections with names that people choose; of no variables, by files alone."""

OTHER_VARIABLES = frozenset(
    {
        "KNODEL_STATE",
        "KNODEL_KUBE_CONTEXT",
        "KNODEL_TERMINATION_LOG",
        "KNODEL_CACHE",
        "KNODEL_CACHE_LIMIT",
        "KNODEL_KEPT",
        "KNODEL_KEPT_LIMIT",
        "KNODEL_CREDENTIALS",
        "KNODEL_ALLOW_HOSTS",
        "KNODEL_ALLOWED_HOSTS",
        "KNODEL_LOAD_TOKEN_SHA256",
        "KNODEL_EVENTS_URL",
        "KNODEL_EVENTS_SECRET",
        "KNODEL_EVENTS_SOURCE",
        "KNODEL_EVENTS_WAIT",
    }
)
"""Variables that are no settings of a platform: its state folder, by which everything else is found, and those that
model servers and training scripts read."""

FORMATS = ("knodel", "cdevents")
"""Of the events that go out (`eventing.outbound.service_events`)."""
MEBIBYTE = 1024 * 1024  # bytes
DAY = 86_400.0  # s
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+)(:[0-9]{1,5})?(/[0-9A-Za-z._~%/-]*)?")
"""Of a server: a scheme, a host, perhaps port and path."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The data plane's public address and its limits."""

    address: str = setting("127.0.0.1", "address", "loopback only unless asked: requests need no token")
    port: int = port_setting(ports.GATEWAY, "the usual port of a local HTTP service")
    domain: str = setting("localhost", "domain", "browsers and curl resolve *.localhost without any configuration")
    hosts: str = setting(
        "", "names, with commas", "further names of the gateway for requests and web pages; *.DOMAIN, or * for any name"
    )
    max_request_bytes: int = setting(
        64 * MEBIBYTE, "bytes", "one page of OCR is 13 MB of tensors as JSON", 1024, 1024 * MEBIBYTE
    )
    max_header_bytes: int = setting(32 * 1024, "bytes", "bounds what one connection can hold", 1024, 96 * 1024)
    max_headers: int = setting(100, "headers", "Envoy's own default", 1, 1000)
    header_timeout: float = setting(10.0, "s", "a client that drips its headers is cut off", 0.1, 3600)


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Where the control API listens."""

    address: str = setting("127.0.0.1", "address", "loopback only unless asked")
    port: int = port_setting(ports.CONTROL, "next to the gateway's; with another gateway.port the next one")
    tls_port: int = port_setting(ports.CONTROL_TLS, "for kubectl, over TLS; with another gateway.port the next but one")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The container that runs a model."""

    image: str = setting(
        f"knodel.dev/server:{VERSION}",
        "image",
        "our model server, of this release; a change makes revisions",
    )
    port: int = port_setting(8080, "the container's port, Knative's default")
    allow_hosts: str = setting(
        "",
        "hosts, with commas",
        "hosts that models may be fetched from though they are private, as URIs name them; a change makes revisions",
    )


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The autoscaler on Kubernetes; `autoscaler.settings_file` reads them there."""

    scale_to_zero_grace: float = setting(
        10.0,
        "s",
        "gateways learn within seconds that the activator is in the path; Knative gives 30 s",
        0,
        3600,
    )
    activator_poll_interval: float = setting(
        0.025, "s", "between two looks at Knative's activators while something is at zero", 0.005, 10
    )
    activator_namespace: str = setting("knative-serving", "namespace", "where Knative's activators run")
    cluster_domain: str = setting("cluster.local", "domain", "how the names of Services end")


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """What judges of rollouts may ask."""

    prometheus_url: str = setting("", "URL", "of a Prometheus, which further metrics of a judge are asked from")


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Who is told what became of rollouts; how many events are taken, and how long they are kept."""

    sink: str = setting("", "URL", "where events of rollouts are sent, as to a Knative Broker; none by default")
    format: str = setting("knodel", "knodel or cdevents", "cdevents: service.deployed and service.rolledback alone")
    rate: int = setting(50_000, "events a second", "of one EventSource: none fills the queue of all", 1, 1_000_000)
    pending: int = setting(10_000, "events", "of one EventSource that may wait for their effect", 100, 1_000_000)
    retention: float = setting(7 * DAY, "s", "finished events are kept, to know copies by", 3600, 90 * DAY)
    issuer_hosts: str = setting(
        "", "hosts, with commas", "hosts of OIDC issuers that may have private addresses, as EventSources name them"
    )
    kept: int = setting(20_000, "events", "finished ones of one EventSource: 8 kB of memory each", 100, 1_000_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a platform; `runtimes` and `prices`, in which names are free, by files alone."""

    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    control: ControlSettings = field(default_factory=ControlSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    autoscaler: AutoscalerSettings = field(default_factory=AutoscalerSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    events: EventSettings = field(default_factory=EventSettings)
    runtimes: tuple[Runtime, ...] = ()
    prices: Prices = field(default_factory=Prices)


def load_settings(
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    gateway_port: int | None = None,
    control_port: int | None = None,
    control_tls_port: int | None = None,
) -> Settings:
    """The settings in force: defaults, the file `config`, variables, then what the command line names.

    With another port of the gateway, the ports of the control API that are not set are the next ones, so that one port
    is enough for a second platform on a machine. Raises SettingsError, LoadError.
    """
    given: dict[str, Any] = {}
    if config is not None:
        given |= _from_document(_read_text(config), str(config))
    given |= _from_variables(environ)
    named = {"gateway.port": gateway_port, "control.port": control_port, "control.tlsPort": control_tls_port}
    for key, value in named.items():
        if value is not None:
            given[key] = value
    return _settings_with(ports.next_ports(given) | given)


def settings_from_text(text: str, where: str) -> Settings:
    """The settings that the YAML `text` says, defaults for the rest; `where` names it in errors.

    Raises SettingsError, LoadError.
    """
    return _settings_with(_from_document(text, where))


def settings_to_dict(settings: Settings) -> dict[str, dict[str, Any]]:
    """The settings as the file would say them."""
    answer: dict[str, dict[str, Any]] = {}
    for slot in _slots().values():
        value = getattr(getattr(settings, slot.group), slot.name)
        shown = format_duration(value) if slot.about.unit == "s" else value
        answer.setdefault(slot.group, {})[slot.key.partition(".")[2]] = shown
    return answer | {RUNTIMES: runtimes_to_dict(settings.runtimes), PRICES: prices_to_dict(settings.prices)}


def describe_settings() -> list[dict[str, Any]]:
    """Every setting in order: `key` in the file, `variable`, `default`, `unit`, and what it is `for`."""
    defaults = settings_to_dict(Settings())
    return [
        {
            "key": slot.key,
            "variable": slot.variable,
            "default": defaults[slot.group][slot.key.partition(".")[2]],
            "unit": slot.about.unit,
            "for": slot.about.reason,
        }
        for slot in _slots().values()
    ]


def _settings_with(given: Mapping[str, Any]) -> Settings:
    settings = Settings(
        runtimes=read_runtimes(given.get(RUNTIMES, {})),
        prices=read_prices(given.get(PRICES, {})),
    )
    slots = _slots()
    for key, value in given.items():
        if key in FREE:
            continue
        slot = slots[key]
        group = replace(getattr(settings, slot.group), **{slot.name: read_value(slot, value)})
        settings = replace(settings, **{slot.group: group})
    _check_ports(settings)
    _check_url("rollout.prometheusUrl", settings.rollout.prometheus_url)
    _check_url("events.sink", settings.events.sink)
    _check_format(settings.events.format)
    _check_names("gateway.hosts", settings.gateway.hosts)
    _check_domain(settings.gateway.domain)
    return settings


@cache
def _slots() -> dict[str, Slot]:
    found: dict[str, Slot] = {}
    for group, made in _groups().items():
        types = get_type_hints(made)
        for one in fields(made):
            key = f"{group}.{_camel(one.name)}"
            found[key] = Slot(key, group, one.name, types[one.name], one.metadata["about"], one.default)
    return found


def _groups() -> dict[str, Any]:
    """The groups of settings with names of ours, each with its dataclass."""
    return {name: made for name, made in get_type_hints(Settings).items() if name not in FREE}


def _check_names(key: str, value: str) -> None:
    wrong = next((name for name in filter(None, map(str.strip, value.split(","))) if not is_host_pattern(name)), None)
    if wrong is not None:
        raise SettingsError(f"{key}: {wrong[:80]!r} is not a host name: {PATTERN_FORM}")


def _check_domain(domain: str) -> None:
    if not is_host_pattern(f"*.{domain}"):
        raise SettingsError(f"gateway.domain: {domain[:80]!r} is not a domain: write it as in models.example.org")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _read_text(path: Path) -> str:
    try:
        with open_input(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise LoadError(f"cannot read the settings {path}: {reason}") from error


def _from_document(text: str, where: str) -> dict[str, Any]:
    documents = load_documents(text, where)
    if len(documents) > 1:
        raise SettingsError(f"{where} holds {len(documents)} documents: write one")
    found: dict[str, Any] = {}
    for group, members in (_mapping(documents[0], where) if documents else {}).items():
        if group in FREE:
            found[group] = _mapping(members, group)
            continue
        if group not in _groups():
            raise SettingsError(f"{group}: unknown setting in {where}; known: {', '.join([*_groups(), *sorted(FREE)])}")
        for name, value in _mapping(members, group).items():
            key = f"{group}.{name}"
            if key not in _slots():
                known = [other for other in _slots() if other.startswith(f"{group}.")]
                raise SettingsError(f"{key}: unknown setting in {where}; known: {', '.join(known)}")
            found[key] = value
    return found


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: a mapping of settings is expected, as in `gateway: {{port: 8080}}`")
    return value


def _from_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    keys = {slot.variable: slot.key for slot in _slots().values()}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(VARIABLE_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable not in keys:
            raise SettingsError(f"{variable}: unknown setting; known: {', '.join(keys)}")
        found[keys[variable]] = from_variable(_slots()[keys[variable]], text)
    return found


def _check_url(key: str, value: str) -> None:
    """No user or password in it: settings are no secret."""
    if value and not _URL.fullmatch(value):
        raise SettingsError(f"{key}: {value[:200]!r} is no address as in http://prometheus.monitoring:9090")


def _check_format(value: str) -> None:
    if value not in FORMATS:
        raise SettingsError(f"events.format: {value[:40]!r} is unknown; known: {', '.join(FORMATS)}")


def _check_ports(settings: Settings) -> None:
    control = settings.control
    chosen = {"gateway.port": settings.gateway.port, "control.port": control.port, "control.tlsPort": control.tls_port}
    taken: dict[int, str] = {}
    for key, port in chosen.items():
        if port in taken:
            raise SettingsError(f"{key}: {port} is {taken[port]} already: choose another port")
        taken[port] = key
