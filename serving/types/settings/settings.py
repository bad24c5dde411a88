"""The settings of a platform: one typed value, from defaults, then a YAML file, then `KNODEL_*` variables.

A key is `group.field` in camelCase (`gateway.port`); its variable is KNODEL_GROUP_FIELD (`KNODEL_GATEWAY_PORT`).
Unknown keys and variables are refused. `knodel config` prints the settings. On Kubernetes the file is the ConfigMap
`knodel-config`, and variables are not used, so the ConfigMap shows the settings in force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from autoscaler.gpu.claims import AllocationSettings
from autoscaler.gpu.settings import SECTION as GPUS
from autoscaler.gpu.settings import allocation_to_dict, read_allocation
from clusters.base.distribution import VERSION
from clusters.base.durations import format_duration
from clusters.base.names import subdomain_fault
from clusters.net.hosts import PATTERN_FORM, is_host_pattern
from clusters.net.strict_yaml import LoadError, load_documents
from serving.storage.upload.prefix import prefix_fault
from serving.types.input_files import open_input
from serving.types.settings import ports
from serving.types.settings.prices import GROUP as PRICES
from serving.types.settings.prices import Prices, prices_to_dict, read_prices
from serving.types.settings.runtimes import GROUP as RUNTIMES
from serving.types.settings.runtimes import Runtime, read_runtimes, runtimes_to_dict
from serving.types.settings.setting import (
    VARIABLE_PREFIX,
    SettingField,
    SettingsError,
    from_variable,
    port_setting,
    read_value,
    setting,
)

__all__ = [
    "ArtifactSettings",
    "AutoscalerSettings",
    "ControlSettings",
    "DashboardSettings",
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

FREE_FORM = frozenset({RUNTIMES, PRICES, GPUS})
"""Sections with names chosen by users. They have no variables, and are set only in files."""

OTHER_VARIABLES = frozenset(
    {
        "KNODEL_STATE",
        "KNODEL_KUBE_CONTEXT",
        "KNODEL_TERMINATION_LOG",
        "KNODEL_CACHE",
        "KNODEL_CACHE_LIMIT",
        "KNODEL_FILES_AT_ONCE",
        "KNODEL_KEPT",
        "KNODEL_DEVICES",
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
"""Variables that are not settings of a platform: its state folder, which contains everything else, and those of model
servers and training scripts."""

SIGNALS = ("traces", "metrics")
"""Signals of `server.otlpSignals`."""
FORMATS = ("knodel", "cdevents")
"""Formats of outgoing events (`eventing.outbound.service_events`)."""
MEBIBYTE = 1024 * 1024  # bytes
DAY = 86_400.0  # s
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+)(:[0-9]{1,5})?(/[0-9A-Za-z._~%/-]*)?")
"""URL of a server: a scheme and a host, optionally a port and a path."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The data plane's public address and its limits."""

    address: str = setting("127.0.0.1", "address", "loopback by default, since requests need no token")
    port: int = port_setting(ports.GATEWAY, "the usual port of a local HTTP service")
    domain: str = setting("localhost", "domain", "browsers and curl resolve *.localhost without any configuration")
    hosts: str = setting(
        "", "names, with commas", "further names of the gateway for requests and web pages; *.DOMAIN, or * for any name"
    )
    max_request_bytes: int = setting(
        64 * MEBIBYTE, "bytes", "largest body; one page of OCR is 13 MB of tensors as JSON", 1024, 1024 * MEBIBYTE
    )
    max_header_bytes: int = setting(32 * 1024, "bytes", "limits the memory of one connection", 1024, 96 * 1024)
    max_headers: int = setting(100, "headers", "Envoy's own default", 1, 1000)
    header_timeout: float = setting(10.0, "s", "time for a client to send its headers", 0.1, 3600)


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The addresses of the control API."""

    address: str = setting("127.0.0.1", "address", "loopback by default")
    port: int = port_setting(ports.CONTROL, "next to the gateway's; with another gateway.port the next one")
    tls_port: int = port_setting(ports.CONTROL_TLS, "for kubectl, over TLS; with another gateway.port the next but one")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The container that runs a model."""

    image: str = setting(
        f"knodel.dev/server:{VERSION}",
        "image",
        "the model server of this release; a change creates revisions",
    )
    port: int = port_setting(8080, "the container's port, Knative's default")
    allow_hosts: str = setting(
        "",
        "hosts, with commas",
        "private hosts that models may be fetched from, as written in URIs; a change creates revisions",
    )
    gpu_priority_class: str = setting(
        "",
        "PriorityClass",
        "PriorityClass of Pods with GPUs, such as knodel-serving; a change creates revisions",
    )
    gpu_scheduler: str = setting(
        "",
        "scheduler",
        "schedulerName of Pods with GPUs, such as volcano; empty: the cluster's default; a change creates revisions",
    )
    gpu_queue: str = setting(
        "",
        "queue",
        "queue of Pods with GPUs, with the scheduler volcano or kai-scheduler; {namespace} is replaced by the Pod's "
        "namespace; a change creates revisions",
    )
    otlp_endpoint: str = setting(
        "",
        "URL",
        "OpenTelemetry collector for traces and metrics of models, by OTLP over HTTP; a change creates revisions",
    )
    otlp_signals: str = setting(
        "traces,metrics",
        "traces, metrics, with commas",
        "signals that models send to server.otlpEndpoint; a change creates revisions",
    )
    trace_percent: int = setting(
        100,
        "percent",
        "of the requests without a trace of their caller begin one; a change creates revisions",
        0,
        100,
    )

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that models send to a collector."""
        return tuple(name.strip() for name in self.otlp_signals.split(","))


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The autoscaler on Kubernetes, where `autoscaler.settings_file` reads these settings."""

    scale_to_zero_grace: float = setting(
        10.0,
        "s",
        "time for gateways to route to the activator before the last replica stops; Knative's default is 30 s",
        0,
        3600,
    )
    activator_poll_interval: float = setting(
        0.025, "s", "between two polls of Knative's activators while a revision is at zero", 0.005, 10
    )
    activator_namespace: str = setting("knative-serving", "namespace", "where Knative's activators run")
    cluster_domain: str = setting("cluster.local", "domain", "suffix of the names of Services")


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """The source of metrics for judges of rollouts."""

    prometheus_url: str = setting("", "URL", "Prometheus for the metrics of a judge")


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """The source of the dashboard's history."""

    prometheus_url: str = setting(
        "", "URL", "Prometheus for the last day in the dashboard, such as http://prometheus.monitoring:9090"
    )


@dataclass(frozen=True, slots=True)
class ArtifactSettings:
    """The store of local files that the command uploads for a cluster (`serving.storage.upload`)."""

    prefix: str = setting(
        "",
        "URI",
        "store to which a deploy uploads local files: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
        "oci://REGISTRY/REPOSITORY",
    )
    secret: str = setting(
        "", "name", "Secret in the Model's namespace with which replicas read that store, unless --secret names another"
    )


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The sink of rollout events, and the limits of received events."""

    sink: str = setting("", "URL", "receiver of rollout events, such as a Knative Broker; none by default")
    format: str = setting("knodel", "knodel or cdevents", "cdevents: only service.deployed and service.rolledback")
    rate: int = setting(
        50_000, "events a second", "of one EventSource, so that none fills the common queue", 1, 1_000_000
    )
    pending: int = setting(10_000, "events", "of one EventSource that are not finished", 100, 1_000_000)
    retention: float = setting(
        7 * DAY, "s", "for which finished events are kept, to recognise duplicates", 3600, 90 * DAY
    )
    issuer_hosts: str = setting("", "hosts, with commas", "private hosts of OIDC issuers, as written in EventSources")
    kept: int = setting(20_000, "events", "finished events of one EventSource: 8 kB of memory each", 100, 1_000_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a platform. `runtimes`, `prices` and `gpu` have names chosen by users: they are set in files."""

    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    control: ControlSettings = field(default_factory=ControlSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    autoscaler: AutoscalerSettings = field(default_factory=AutoscalerSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    artifacts: ArtifactSettings = field(default_factory=ArtifactSettings)
    events: EventSettings = field(default_factory=EventSettings)
    runtimes: tuple[Runtime, ...] = ()
    prices: Prices = field(default_factory=Prices)
    gpu: AllocationSettings = field(default_factory=AllocationSettings)


def load_settings(
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    gateway_port: int | None = None,
    control_port: int | None = None,
    control_tls_port: int | None = None,
) -> Settings:
    """Return the settings in force: defaults, the file `config`, variables, then ports from the command line.

    With another gateway port, unset ports of the control API are the next ones, so that one port is enough for a second
    platform on a machine. Raises SettingsError, LoadError.

    Example:
        >>> load_settings(environ={"KNODEL_GATEWAY_PORT": "9380"}).control.port
        9381
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
    """Return the settings in a YAML text, with defaults for the rest. `where` is the name of the text in errors.

    Raises SettingsError, LoadError.
    """
    return _settings_with(_from_document(text, where))


def settings_to_dict(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the settings in the form of the file."""
    answer: dict[str, dict[str, Any]] = {}
    for entry in _setting_fields().values():
        value = getattr(getattr(settings, entry.group), entry.name)
        shown = format_duration(value) if entry.about.unit == "s" else value
        answer.setdefault(entry.group, {})[entry.key.partition(".")[2]] = shown
    return answer | {
        RUNTIMES: runtimes_to_dict(settings.runtimes),
        PRICES: prices_to_dict(settings.prices),
        GPUS: allocation_to_dict(settings.gpu),
    }


def text_with_values(text: str, where: str, values: Mapping[str, str]) -> str:
    """Return a YAML text of settings with the `values` by key, written as in variables; "" removes a key.

    Raises SettingsError, LoadError.

    Example:
        text_with_values("gateway: {port: 8080}", "FILE", {"gateway.port": "8081"})  # "gateway:\n  port: 8081\n"
    """
    import yaml  # 20 ms, which most users of this module do not need

    _settings_with(_from_document(text, where))
    documents = load_documents(text, where)
    document: dict[str, dict[str, Any]] = (documents[0] if documents else None) or {}
    for key, value in values.items():
        if key not in _setting_fields():
            raise SettingsError(f"{key}: unknown setting; known: {', '.join(_setting_fields())}")
        group, _, name = key.partition(".")
        members = {other: old for other, old in (document.get(group) or {}).items() if other != name}
        document[group] = members | ({name: from_variable(_setting_fields()[key], value)} if value else {})
    changed = yaml.safe_dump({group: members for group, members in document.items() if members}, sort_keys=False)
    _settings_with(_from_document(changed, where))
    return changed


def describe_settings() -> list[dict[str, Any]]:
    """Return every setting with `key`, `variable`, `default`, `unit`, and `for` (its purpose), in order."""
    defaults = settings_to_dict(Settings())
    return [
        {
            "key": entry.key,
            "variable": entry.variable,
            "default": defaults[entry.group][entry.key.partition(".")[2]],
            "unit": entry.about.unit,
            "for": entry.about.reason,
        }
        for entry in _setting_fields().values()
    ]


def _read_gpus(given: Any, prices: Prices) -> AllocationSettings:
    try:
        return read_allocation(given, {**prices.gpu, **prices.gpu_types})
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _settings_with(given: Mapping[str, Any]) -> Settings:
    prices = read_prices(given.get(PRICES, {}))
    settings = Settings(
        runtimes=read_runtimes(given.get(RUNTIMES, {})), prices=prices, gpu=_read_gpus(given.get(GPUS), prices)
    )
    entries = _setting_fields()
    for key, value in given.items():
        if key in FREE_FORM:
            continue
        entry = entries[key]
        group = replace(getattr(settings, entry.group), **{entry.name: read_value(entry, value)})
        settings = replace(settings, **{entry.group: group})
    _check_ports(settings)
    _check_url("rollout.prometheusUrl", settings.rollout.prometheus_url)
    _check_url("dashboard.prometheusUrl", settings.dashboard.prometheus_url)
    _check_url("events.sink", settings.events.sink)
    _check_url("server.otlpEndpoint", settings.server.otlp_endpoint)
    _check_signals(settings.server)
    if settings.events.format not in FORMATS:
        known = ", ".join(FORMATS)
        raise SettingsError(f"events.format: {settings.events.format[:40]!r} is unknown; known: {known}")
    _check_hosts(settings.gateway)
    _check_artifacts(settings.artifacts)
    return settings


@cache
def _setting_fields() -> dict[str, SettingField]:
    """Return all settings by their keys."""
    found: dict[str, SettingField] = {}
    for group, made in _groups().items():
        types = get_type_hints(made)
        for one in fields(made):
            first, *rest = one.name.split("_")
            key = f"{group}.{first}{''.join(part.capitalize() for part in rest)}"
            found[key] = SettingField(key, group, one.name, types[one.name], one.metadata["about"], one.default)
    return found


def _groups() -> dict[str, Any]:
    """Return the groups of settings with fixed names, each with its dataclass."""
    return {name: made for name, made in get_type_hints(Settings).items() if name not in FREE_FORM}


def _check_hosts(gateway: GatewaySettings) -> None:
    for name in filter(None, map(str.strip, gateway.hosts.split(","))):
        if not is_host_pattern(name):
            raise SettingsError(f"gateway.hosts: {name[:80]!r} is not a host name: {PATTERN_FORM}")
    if not is_host_pattern(f"*.{gateway.domain}"):
        raise SettingsError(
            f"gateway.domain: {gateway.domain[:80]!r} is not a domain: write it as in models.example.org"
        )


def _check_artifacts(artifacts: ArtifactSettings) -> None:
    if artifacts.prefix and (fault := prefix_fault(artifacts.prefix)):
        raise SettingsError(f"artifacts.prefix: {fault}")
    if artifacts.secret and (fault := subdomain_fault(artifacts.secret)):
        raise SettingsError(f"artifacts.secret: {fault}")


def _read_text(path: Path) -> str:
    try:
        with open_input(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise LoadError(f"cannot read the settings {path}: {reason}") from error


def _from_document(text: str, where: str) -> dict[str, Any]:
    documents = load_documents(text, where)
    if len(documents) > 1:
        raise SettingsError(f"{where} contains {len(documents)} documents: write one")
    found: dict[str, Any] = {}
    for group, members in (_mapping(documents[0], where) if documents else {}).items():
        if group in FREE_FORM:
            found[group] = _mapping(members, group)
            continue
        if group not in _groups():
            raise SettingsError(
                f"{group}: unknown setting in {where}; known: {', '.join([*_groups(), *sorted(FREE_FORM)])}"
            )
        for name, value in _mapping(members, group).items():
            key = f"{group}.{name}"
            if key not in _setting_fields():
                known = [other for other in _setting_fields() if other.startswith(f"{group}.")]
                raise SettingsError(f"{key}: unknown setting in {where}; known: {', '.join(known)}")
            found[key] = value
    return found


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: must be a mapping of settings, as in `gateway: {{port: 8080}}`")
    return value


def _from_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    keys = {entry.variable: entry.key for entry in _setting_fields().values()}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(VARIABLE_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable not in keys:
            raise SettingsError(f"{variable}: unknown setting; known: {', '.join(keys)}")
        found[keys[variable]] = from_variable(_setting_fields()[keys[variable]], text)
    return found


def _check_signals(server: ServerSettings) -> None:
    """Check the signals. Raises SettingsError."""
    for name in server.signals:
        if name not in SIGNALS:
            raise SettingsError(f"server.otlpSignals: {name[:40]!r} is unknown; known: {', '.join(SIGNALS)}")


def _check_url(key: str, value: str) -> None:
    """Check a URL. User and password are not allowed, since settings are not secret."""
    if value and not _URL.fullmatch(value):
        raise SettingsError(f"{key}: {value[:200]!r} is not a URL such as http://prometheus.monitoring:9090")


def _check_ports(settings: Settings) -> None:
    control = settings.control
    chosen = {"gateway.port": settings.gateway.port, "control.port": control.port, "control.tlsPort": control.tls_port}
    taken: dict[int, str] = {}
    for key, port in chosen.items():
        if port in taken:
            raise SettingsError(f"{key}: {port} is already {taken[port]}: choose another port")
        taken[port] = key
