"""Addresses of models as the command prints them.

The host name of a model, `NAME.NAMESPACE.localhost`, resolves in browsers and in curl, but not in Python or on Debian.
The gateway of a platform therefore also routes by path, and the command prints that address first. The ingress of a
Kubernetes cluster has no such path: only the address in the Model's status is printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from clusters.base.objects import Object, name_of
from serving.cli.context import Session
from serving.client.inference.addresses import address_of, is_local

JSON_HEADER = "Content-Type: application/json"


def gateway_of(session: Session) -> tuple[str, int] | None:
    """Return host and port of the platform's gateway, which routes by path; None on Kubernetes. Raises ClientError."""
    return None if session.kube else session.platform().gateway


def curl(url: str, body: str = "") -> str:
    """Return a curl command for a GET, or for a POST with a JSON `body`, quoted for a shell. Pure."""
    words: Iterable[str] = ("curl", url, "-H", JSON_HEADER, "-d", body) if body else ("curl", url)
    return shlex.join(words)


def address_lines(session: Session, model: Object, example: str = "") -> list[tuple[str, str]]:
    """Return (label, text) pairs with the addresses of the model and an example call; none while it has no address.

    The example sends the inference request `example`; without one it reads the model's metadata.
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
        domain = (urlsplit(host).hostname or "").rpartition(".")[2]
        lines.append(("Host URL", f"{host} (where names below {domain} resolve, as in browsers and curl)"))
    if not is_local(url):
        metadata = f"{url}/v2/models/{name}"
        lines.append(("Example", curl(f"{metadata}/infer", example) if example else curl(metadata)))
    return lines


def aligned(pairs: Sequence[tuple[str, str]], least: int = 0) -> list[str]:
    """Return a line for each label and text, with the texts aligned in one column, at `least` or later. Pure.

    Example:
        >>> aligned([("URL", "http://a"), ("Tag blue", "http://b")])
        ['URL:       http://a', 'Tag blue:  http://b']
    """
    width = max([least, *(len(label) + 3 for label, _ in pairs)])
    return [f"{label + ':':<{width}}{text}".rstrip() for label, text in pairs]
