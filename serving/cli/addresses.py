"""Addresses of models as the command prints them.

A model's host, `NAME.NAMESPACE.localhost`, resolves in browsers and in curl, but not in Python or on Debian. The
gateway of one machine therefore takes the model in the path as well, and the command prints that address first. On
Kubernetes the ingress is not ours and has no path form: there the address in the Model's status is the only one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from clusters.base.objects import Object, name_of, namespace_of
from clusters.net.authority import url_host
from serving.cli.context import Session
from serving.cli.ingress import CLUSTER_LOCAL

JSON_HEADER = "Content-Type: application/json"


def path_address(gateway: tuple[str, int], namespace: str, name: str, tag: str = "") -> str:
    """Return the base URL of a model's path form, whatever names resolve. Pure.

    Example:
        >>> path_address(("127.0.0.1", 8080), "team", "iris", "blue")
        'http://127.0.0.1:8080/namespaces/team/models/iris@blue'
    """
    host, port = gateway
    return f"http://{reachable_host(host)}:{port}/namespaces/{namespace}/models/{name}{f'@{tag}' if tag else ''}"


def gateway_of(session: Session) -> tuple[str, int] | None:
    """Return host and port of the gateway that has the path form, None on Kubernetes. Raises CommandError."""
    return None if session.kube else session.platform().gateway


def address_of(gateway: tuple[str, int] | None, model: Object, tag: str = "") -> str:
    """Return the base URL that reaches the model by its split, or the version with `tag`; empty before it has one.

    `gateway` is the one of `gateway_of`.
    """
    status = model.get("status") or {}
    tagged = (one.get("url", "") for one in status.get("traffic") or () if one.get("tag") == tag)
    url = str(next(tagged, "") if tag else status.get("url") or "")
    if gateway is None or not url or is_local(url):
        return url
    return path_address(gateway, namespace_of(model), name_of(model), tag)


def is_local(url: str) -> bool:
    """Whether only clients inside the cluster reach the address. Pure."""
    return (urlsplit(url).hostname or "").endswith(CLUSTER_LOCAL)


def curl(url: str, body: str = "") -> str:
    """Return a command line that sends a GET, or a POST with a JSON `body`, ready to paste into a shell. Pure."""
    words: Iterable[str] = ("curl", url, "-H", JSON_HEADER, "-d", body) if body else ("curl", url)
    return shlex.join(words)


def address_lines(session: Session, model: Object, example: str = "") -> list[tuple[str, str]]:
    """Return what a person needs to call the model, as pairs of a label and a text; none before it has an address.

    `example`: the body of an inference request; without one the curl line reads the model's metadata.
    """
    gateway = gateway_of(session)
    name, url = name_of(model), address_of(gateway, model)
    if not url:
        return []
    host = str((model.get("status") or {}).get("url", ""))
    lines = [("URL", url)]
    for share in (model.get("status") or {}).get("traffic") or ():
        if tag := share.get("tag"):
            place = f"{share.get('revision')}, {share.get('percent') or 0} % of the traffic"
            lines.append((f"Tag {tag}", f"{address_of(gateway, model, tag)} ({place})"))
    if url != host:
        lines.append(("Host URL", f"{host} (where names below {_domain(host)} resolve, as in browsers and curl)"))
    if not is_local(url):
        metadata = f"{url}/v2/models/{name}"
        lines.append(("Example", curl(f"{metadata}/infer", example) if example else curl(metadata)))
    return lines


def aligned(pairs: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Return a line for each label and text; the texts are below each other, after `least` characters at least. Pure.

    Example:
        >>> aligned([("URL", "http://a"), ("Tag blue", "http://b")])
        ['URL:       http://a', 'Tag blue:  http://b']
    """
    width = max([least, *(len(label) + 3 for label, _ in pairs)])
    return [f"{label + ':':<{width}}{text}".rstrip() for label, text in pairs]


def reachable_host(host: str) -> str:
    """Return a URL's host that connects: a server that listens on every address is reached by the loopback one."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return url_host(reachable)


def _domain(url: str) -> str:
    return (urlsplit(url).hostname or "").rpartition(".")[2]
