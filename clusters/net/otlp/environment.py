"""OpenTelemetry's environment variables: whether a collector is named for traces and for metrics.

The SDK reads all other variables itself (headers, timeout, certificates, sampler, resource).
Names: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from clusters.base.errors import KnodelError

Signal = Literal["traces", "metrics"]

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SUPPORTED_PROTOCOL: Final = "http/protobuf"
DEFAULT_INTERVAL: Final = 60.0
"""s between two exports of metrics, the default of OpenTelemetry."""
_LEAST_INTERVAL: Final = 0.1
_MS: Final = 1000
_MAX_QUOTED: Final = 80  # characters of an invalid value that a message repeats


class InvalidTelemetry(KnodelError):
    """Raised for a variable of OpenTelemetry with a value that is not supported."""


def wants(signal: Signal, environ: Mapping[str, str]) -> bool:
    """Return whether the variables name a collector for a signal. Raises InvalidTelemetry."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    off = (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get(f"OTEL_{signal.upper()}_EXPORTER") == "none"
    )
    if off or not any(environ.get(name) for name in (f"{own}_ENDPOINT", ENDPOINT)):
        return False
    for name in (f"{own}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name, SUPPORTED_PROTOCOL) != SUPPORTED_PROTOCOL:
            raise InvalidTelemetry(
                f"{name}={environ[name][:_MAX_QUOTED]!r} is not supported: set it to {SUPPORTED_PROTOCOL}, "
                "and the endpoint to the collector's port for that protocol"
            )
    return True


def export_interval(environ: Mapping[str, str]) -> float:
    """Return the seconds between two exports of metrics. Raises InvalidTelemetry."""
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    text = environ.get(name, "")
    try:
        seconds = float(text) / _MS if text else DEFAULT_INTERVAL
    except ValueError:
        seconds = 0.0
    if not seconds >= _LEAST_INTERVAL:  # refuses NaN, too
        raise InvalidTelemetry(f"{name}={text[:_MAX_QUOTED]!r} is not a number of milliseconds: set at least 100")
    return seconds
