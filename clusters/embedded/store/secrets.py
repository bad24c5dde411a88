"""Validate Secrets and ConfigMaps as the API server does, and decode the values of Secrets.

Sources: kubernetes `pkg/apis/core/validation` (`ValidateSecret`, `ValidateConfigMap`), and for `stringData`
`pkg/apis/core/v1/conversion.go`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from clusters.base.errors import FieldError, shown_name
from clusters.base.objects import Object
from clusters.base.sizes import format_size

LARGEST: Final = 1 << 20
"""Maximum bytes of all values (`MaxSecretSize`; the same for ConfigMaps)."""
LONGEST_KEY: Final = 253
"""Maximum characters of a key (`IsConfigMapKey`)."""
KEY: Final = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_BREAKS: Final = re.compile(r"[\r\n]")  # Go's decoder ignores them, as does ours without `validate`
_FIELDS: Final = ("apiVersion", "kind", "metadata", "type", "data", "stringData", "immutable")
_CONFIG_MAP_FIELDS: Final = ("apiVersion", "kind", "metadata", "data", "binaryData", "immutable")


def validate_secret(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return all faults of a Secret."""
    faults = [FieldError(shown_name(field), "unknown field") for field in new if field not in _FIELDS]
    if not isinstance(new.get("type") or "", str):
        faults.append(FieldError("type", "it must be a string"))
    faults += _map_faults("data", new.get("data"), _is_base64, "it must be Base64")
    faults += _map_faults("stringData", new.get("stringData"), _is_text, "it must be a string")
    if faults:
        return faults
    if old is not None and old.get("immutable") is True and _contents(old) != _contents(new):
        return [FieldError("data", "field is immutable when `immutable` is set: create another Secret")]
    if (size := sum(map(len, values_of(new).values()))) > LARGEST:
        return [FieldError("data", f"it has {format_size(size)}: at most {format_size(LARGEST)} are allowed")]
    return ()


def merge_string_data(secret: Object) -> Object:
    """Return the Secret with its `stringData` merged into `data`, as the API server stores it.

    A malformed `stringData` or `data` is not changed, and `validate_secret` reports its faults.
    """
    texts, data = secret.get("stringData"), secret.get("data") or {}
    if texts is None:
        return secret
    if not isinstance(texts, dict) or not isinstance(data, dict) or not all(map(_is_text, texts.values())):
        return secret
    merged = {**data, **{key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}}
    rest = {field: value for field, value in secret.items() if field not in ("data", "stringData")}
    return {**rest, "data": merged} if merged else rest


def validate_config_map(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return all faults of a ConfigMap."""
    faults = [FieldError(shown_name(field), "unknown field") for field in new if field not in _CONFIG_MAP_FIELDS]
    faults += _map_faults("data", new.get("data"), _is_text, "it must be a string")
    faults += _map_faults("binaryData", new.get("binaryData"), _is_base64, "it must be Base64")
    if faults:
        return faults
    texts, binaries = new.get("data") or {}, new.get("binaryData") or {}
    if both := sorted(texts.keys() & binaries.keys()):
        return [FieldError(f"binaryData[{both[0]}]", "the key is also in `data`")]
    if old is not None and old.get("immutable") is True and _config(old) != _config(new):
        return [FieldError("data", "field is immutable when `immutable` is set: create another ConfigMap")]
    size = sum(len(value.encode()) for value in texts.values())
    size += sum(len(base64.b64decode(value)) for value in binaries.values())
    return (
        [FieldError("", f"it has {format_size(size)}: at most {format_size(LARGEST)} are allowed")]
        if size > LARGEST
        else ()
    )


def values_of(secret: Object) -> dict[str, bytes]:
    """Return the decoded values by key, of a valid Secret. A Secret of an older version may still have `stringData`."""
    decoded = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
    return decoded | {key: value.encode() for key, value in (secret.get("stringData") or {}).items()}


def is_key(name: str) -> bool:
    """Return whether a key is valid in a Secret or a ConfigMap, where it is also the name of a file."""
    return len(name) <= LONGEST_KEY and KEY.fullmatch(name) is not None and not name.startswith("..") and name != "."


def _contents(secret: Object) -> tuple[Any, Any, Any]:
    return secret.get("data"), secret.get("stringData"), secret.get("immutable")


def _config(config_map: Object) -> tuple[Any, Any, Any]:
    return config_map.get("data"), config_map.get("binaryData"), config_map.get("immutable")


def _map_faults(field: str, value: object, is_value: Callable[[object], bool], remedy: str) -> Iterator[FieldError]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield FieldError(field, "it must be a map of strings")
        return
    for key, content in value.items():
        if not isinstance(key, str) or not is_key(key):
            yield FieldError(
                f"{field}[{str(key)[:40]}]",
                "a key consists of letters, digits, '-', '_' and '.', and does not begin with '..'",
            )
        elif not is_value(content):
            yield FieldError(f"{field}[{key}]", remedy)


def _is_base64(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        base64.b64decode(_BREAKS.sub("", value), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str)
