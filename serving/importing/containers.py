"""Containers: which are a known model server, and the model that they load. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serving.importing.conversion import FieldPath, ForeignObject, NotConverted
from serving.importing.formats import IMAGES, ServerImage, code_to_do, normalized_uri, served_format
from serving.types.faults import SCHEMES

_OWN: Final = {
    "--digest": "digest", "--format": "modelFormat", "--slots": "containerConcurrency",
    "--max-batch-size": "batching.maxBatchSize",
}  # fmt: skip
"""Options of Knodel's model server with the Model's field."""
_NUMBERS: Final = ("--slots", "--max-batch-size")
GENERAL: Final = (
    "a container with a program of its own is not a model",
    "keep it as a Knative Service; or write its code as class Model (docs/server.md) and deploy it as format python",
)


def take_server(made: ForeignObject, at: FieldPath) -> None:
    """Set storageUri and modelFormat from a container of a known model server. Raises NotConverted."""
    image = made.text((*at, "image"), "spec.modelFormat")
    server = next((one for one in IMAGES if one.pattern.fullmatch(image)), None)
    if server is None:
        raise NotConverted(*GENERAL, path=(*at, "image"))
    where, uri = _uri_of(made, at, server)
    scheme = uri.partition("://")[0].lower()
    if "://" not in uri or normalized_uri(uri).partition("://")[0].lower() not in SCHEMES or scheme == "file":
        raise NotConverted(
            f"{server.name} loads {uri[:80] or 'a model'} from its own image or volume",
            "copy the files to a store or this machine, and `knodel deploy NAME --uri URI|PATH`",
            where or at,
        )
    made.take(where, "spec.storageUri")
    made.put("storageUri", normalized_uri(uri))
    if server.format != "knodel":
        chosen = served_format(server.format, uri, (*at, "image"))
        if chosen:
            made.put("modelFormat", chosen)
    if not str(made.get(*at, "command", 0)).startswith("-"):
        made.drop((*at, "command", 0), "the server's program")
    _take_own_options(made, at, server)
    made.to_do += code_to_do(str(made.spec.get("modelFormat", "")), str(made.get("metadata", "namespace") or ""))


def take_resources(made: ForeignObject, at: FieldPath) -> None:
    """Set the resources: the limits, and the requests where there is no limit. Others are left out."""
    for name in ("cpu", "memory"):
        limit, request = (*at, "limits", name), (*at, "requests", name)
        value = made.get(*limit)
        chosen = limit if value is not None else request
        amount = made.get(*chosen)
        if isinstance(amount, str | int | float) and not isinstance(amount, bool):
            if value is not None and made.get(*request) is not None and str(made.get(*request)) == str(value):
                made.take(request, f"spec.resources.{name}")
            made.carry(chosen, f"resources.{name}", str(amount))
    why = "requests and limits of a replica are equal here, so the limits are used"
    for name in ("cpu", "memory"):
        made.leave((*at, "requests", name), why, f"set spec.resources.{name} to the request to plan with that")


def take_environment(made: ForeignObject, at: FieldPath) -> Iterator[tuple[str, FieldPath]]:
    """Yield each variable of a container that has a value: its name and path."""
    given = made.get(*at, "env")
    for index, entry in enumerate(given if isinstance(given, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"], (*at, "env", index)


def _uri_of(made: ForeignObject, at: FieldPath, server: ServerImage) -> tuple[FieldPath, str]:
    """Return the place of the model's URI and the URI: an argument, else a variable."""
    for flag, place, value in _options(made, at):
        if flag in server.arguments and "://" in value:
            return place, value
    for name, place in take_environment(made, at):
        value = made.get(*place, "value")
        if name in server.variables and isinstance(value, str) and "://" in value:
            return place, value
    local = [(place, value) for flag, place, value in _options(made, at) if flag in server.arguments]
    return local[0] if local else ((), "")


def _options(made: ForeignObject, at: FieldPath) -> Iterator[tuple[str, FieldPath, str]]:
    """Yield flag, path and value of each option in `args` and `command`: `--flag=value` or `--flag value`."""
    for field in ("command", "args"):
        given = made.get(*at, field)
        words = given if isinstance(given, list) else []
        for index, word in enumerate(words):
            flag, separator, value = str(word).partition("=")
            if separator:
                yield flag, (*at, field, index), value
            elif index + 1 < len(words) and flag.startswith("--"):
                yield flag, (*at, field, index + 1), str(words[index + 1])


def _take_own_options(made: ForeignObject, at: FieldPath, server: ServerImage) -> None:
    """Carry the options of Knodel's own server, and mark the flags of carried options as carried."""
    for flag, place, value in list(_options(made, at)):
        index = place[-1]
        separate = isinstance(index, int) and made.get(*place[:-1], index - 1) == flag
        known = server.format == "knodel" and flag in _OWN
        if known:
            number = int(value) if flag in _NUMBERS and value.isdigit() else value
            made.carry(place, _OWN[flag], number)
        if server.format == "knodel" and flag == "--name":
            made.drop(place, "the Model's name is that of the object")
            known = True
        if separate and isinstance(index, int) and (known or flag in server.arguments):
            made.take((*place[:-1], index - 1), "spec.storageUri")
