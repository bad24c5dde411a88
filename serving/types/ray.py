"""The table of `spec.ray`: options of a Ray Serve application (see `tables`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from serving.engines.base.ray_options import APPLICATION, LONGEST_APPLICATION, application_fault
from serving.engines.base.registry import RAY
from serving.storage.base.service import service_uri, service_url
from serving.types import formats
from serving.types.faults import DNS_1035, LONGEST_URI
from serving.types.fields import Text
from serving.types.reader import short_repr
from serving.types.schema import rule

SERVICE: Final = re.compile(
    rf"https?://[A-Za-z0-9][-.A-Za-z0-9]{{0,252}}(?::(?:{formats.PORT}))?(?:/[-._~!&'()*+,;=:@%A-Za-z0-9]+)*/?"
)
"""The URL of a service. It is also in the CustomResourceDefinition: only features of RE2."""
_DOTS: Final = r".*/[.][.]?(?:/.*)?"
LONGEST_SERVICE: Final = LONGEST_URI - len(service_uri(""))
"""Characters; with the scheme of a storage URI it must not be longer than such a URI."""
SERVICE_FORM: Final = "http:// or https://, a host, and optionally a port and the prefix of an application"
_BOTH: Final = "is the address of the model: omit {}, or omit service"
_CLUSTER_DOMAIN: Final = ".cluster.local"


def ray_fault(model_format: str) -> str:
    """Return why a model of this format has no `ray`; empty if it may have it."""
    return "" if model_format == RAY else f"is for models of the format {RAY}: set modelFormat {RAY}, or omit it"


def service_fault(url: str) -> str:
    """Check the URL of a service."""
    if len(url) > LONGEST_SERVICE:
        return f"must be at most {LONGEST_SERVICE} characters, not {len(url)}"
    if not SERVICE.fullmatch(url):
        return f"must be {SERVICE_FORM}, not {short_repr(url)}"
    return "must not contain '.' or '..' in its path" if re.fullmatch(_DOTS, url) else ""


@dataclass(frozen=True, slots=True)
class Ray:
    """Options of a Ray Serve application."""

    application: Annotated[
        str,
        Text(
            "Import path of the application, MODULE:NAME. Absent: serve.yaml in the folder, or app:app.",
            formats.matching(APPLICATION, application_fault, LONGEST_APPLICATION, bad="app"),
        ),
    ] = ""
    service: Annotated[
        str,
        Text(
            "URL of a RayService, or of another Ray Serve, that serves the model in place of files. A Service of the "
            "Model's namespace, or a host that the settings allow, may have a private address.",
            formats.matching(
                SERVICE, service_fault, LONGEST_SERVICE, formats.excludes(_DOTS, service_fault, "http://h/..")
            ),
        ),
    ] = ""

    RULES: ClassVar = (rule("!has(self.service) || !has(self.application)", _BOTH.format("application"), ".service"),)

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rule in Python."""
        if given.get("service") is not None and given.get("application") is not None:
            yield "service", _BOTH.format("application")


NO_RAY: Final = Ray()

HAS_SERVICE: Final = "has(self.ray) && has(self.ray.service)"
"""A CEL expression over the spec of a Model."""
SOURCE_RULES: Final = (
    rule(f"has(self.storageUri) || ({HAS_SERVICE})", f"is required: {formats.STORAGE_URI_FORM}", ".storageUri"),
    *(
        rule(f"!({HAS_SERVICE} && has(self.{name}))", _BOTH.format(name), ".ray.service")
        for name in ("storageUri", "digest")
    ),
)
"""A Model has the address of its files, or of its service."""


def has_service(spec: Any) -> bool:
    """Return whether the spec of a Model, as written, names a service in place of files. It may be of another type."""
    ray = spec.get("ray") if isinstance(spec, Mapping) else None
    return isinstance(ray, Mapping) and ray.get("service") is not None


def source_faults(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Check `SOURCE_RULES` in Python."""
    if not has_service(given):
        if given.get("storageUri") is None:
            yield "storageUri", f"is required: {formats.STORAGE_URI_FORM}"
        return
    for name in ("storageUri", "digest"):
        if given.get(name) is not None:
            yield "ray.service", _BOTH.format(name)


def source_patch(uri: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch of a Model's `spec` that sets its files, or its service, to those of a version.

    `uri` is the storage URI that the history has for the version.
    """
    if url := service_url(uri):
        return {"storageUri": None, "ray": {"service": url}}
    return {"storageUri": uri, **({"ray": {"service": None}} if has_service(spec) else {})}


def own_service(url: str, namespace: str) -> str:
    """Return the host of a URL if it names a Service of this namespace, else an empty text.

    Only names count that no one outside of the cluster can own: `NAME.NAMESPACE` may be a name of the internet.

    Example:
        own_service("http://ranker-serve-svc:8000", "ml")  # "ranker-serve-svc"
        own_service("http://ranker-serve-svc.other.svc:8000", "ml")  # ""
    """
    host = (urlsplit(url).hostname or "").removesuffix(".")
    name = host.partition(".")[0]
    names = (name, f"{name}.{namespace}.svc", f"{name}.{namespace}.svc{_CLUSTER_DOMAIN}")
    return host if host in names and DNS_1035.fullmatch(name) and name != "localhost" else ""
