"""Containers: which are a known model server, and the model that they load. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from clusters.base.redact import redact_url
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


class Option(NamedTuple):
    """An option of a command line, with the place of its value, and of its flag if that is a word of its own."""

    flag: str
    value: str
    place: FieldPath
    flag_place: FieldPath = ()


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
            f"{server.name} loads {redact_url(uri)[:80] or 'a model'} from its own image or volume",
            "copy the files to a store or this machine, and `knodel deploy NAME --uri URI` deploys them",
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
    _take_options(made, at, server)
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


def options(made: ForeignObject, at: FieldPath) -> list[Option]:
    """Return the options in `args` and `command` of a container: `--flag=value` or `--flag value`."""
    found = []
    for field in ("command", "args"):
        given = made.get(*at, field)
        words = [str(word) for word in given] if isinstance(given, list) else []
        for index, word in enumerate(words):
            flag, separator, value = word.partition("=")
            if separator:
                found.append(Option(flag, value, (*at, field, index)))
            elif flag.startswith("--") and index + 1 < len(words):
                found.append(Option(flag, words[index + 1], (*at, field, index + 1), (*at, field, index)))
    return found


def drop_option(made: ForeignObject, option: Option, why: str) -> None:
    """Mark the words of an option as without a meaning here."""
    for place in (option.place, option.flag_place):
        if place:
            made.drop(place, why)


def _uri_of(made: ForeignObject, at: FieldPath, server: ServerImage) -> tuple[FieldPath, str]:
    """Return the place of the model's URI and the URI: an argument, else a variable."""
    named = [option for option in options(made, at) if option.flag in server.arguments]
    for option in named:
        if "://" in option.value:
            return option.place, option.value
    for name, place in take_environment(made, at):
        value = made.get(*place, "value")
        if name in server.variables and isinstance(value, str) and "://" in value:
            return place, value
    return (named[0].place, named[0].value) if named else ((), "")


def _take_options(made: ForeignObject, at: FieldPath, server: ServerImage) -> None:
    """Carry the options of Knodel's own server, and drop those that name the model and its place."""
    own = server.format == "knodel"
    for option in options(made, at):
        if own and option.flag in _OWN:
            number = option.flag in _NUMBERS and option.value.isdigit()
            made.carry(option.place, _OWN[option.flag], int(option.value) if number else option.value)
            drop_option(made, option, "the flag of a carried value")
        elif own and option.flag == "--name":
            drop_option(made, option, "the Model's name is that of the object")
        elif option.flag in server.arguments:
            drop_option(made, option, "the place of the model, which is carried")
