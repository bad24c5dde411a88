"""Copy the local model files of a deploy before anything changes, so that a version always serves the same bytes.

The copies are stored in the state folder by the digest of their content.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, Kind, Object, condition_of, generation_of, name_of, namespace_of
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.errors import ClientError, TimedOut, UsageError
from serving.client.home import expand_home
from serving.client.mlflow.references import REGISTERED, is_reference, read_reference
from serving.client.models.waiting import wait_until
from serving.storage.archives.archive import SUFFIXES
from serving.storage.transfer.urls import is_file_uri, with_lower_scheme
from serving.types.faults import model_name_fault, storage_uri_fault
from serving.types.lifecycle import CONFIGURATIONS_READY
from serving.types.model import history_of
from serving.types.settings.state import KEPT_FOLDER, Facts, StateError

_SCHEME = re.compile(r"[A-Za-z][-+.A-Za-z0-9]*:")
RECORD_TIMEOUT = 5.0  # s for the digest of a version to be recorded after it became ready
SHORT = 12
"""Hex digits of a digest in tables."""


def uri_of(text: str) -> str:
    """Return a URI with its scheme in lower case, or the file:// URI of a path."""
    path = expand_home(text)
    if "://" in text:
        return with_lower_scheme(text)
    if _SCHEME.match(text) and not path.exists():  # the platform reports an unknown scheme, with the remedy
        return text
    return Path(os.path.normpath(path.absolute())).as_uri()


def is_local_path(text: str) -> bool:
    """Return whether a text of `--uri` is a path of this machine rather than a URI."""
    return uri_of(text) != with_lower_scheme(text)


def name_for(location: str) -> str:
    """Return the name of a model for the path or URI of its files: their own name without suffix.

    Raises UsageError when that is not a valid name.

    Example:
        >>> name_for("./models/iris.onnx")
        'iris'
    """
    last = location.rstrip("/").rpartition("/")[2].partition("?")[0]
    if is_reference(location) and (found := read_reference(location)).kind in REGISTERED:
        last = found.name  # of the registered model
    elif is_local_path(location):
        last = Path(os.path.normpath(expand_home(location).absolute())).name
    archive = next((suffix for suffix in SUFFIXES if last.lower().endswith(suffix)), "")
    name = last.removesuffix(last[-len(archive) :]) if archive else Path(last).stem
    if fault := model_name_fault(name):
        raise UsageError(f"{location} does not name a model, since a name {fault}: give NAME, and --uri {location}")
    return name


def keep_files(state: Path, model: Object, *, dry_run: bool = False) -> Object:
    """Copy the local files of the Model and its adapters into the state folder; return the Model with their digests.

    A Model without local files is returned unchanged. With `dry_run` nothing is copied. Raises UsageError when the
    files cannot be read or do not match the digest of the Model, and ClientError when the disk has no room.
    """
    spec = model.get("spec")
    if not isinstance(spec, dict):
        return model
    kept = _keep(state, spec, "storageUri", dry_run)
    llm = spec["llm"] if isinstance(spec.get("llm"), dict) else {}
    if isinstance(adapters := llm.get("adapters"), list):
        found = [_keep(state, one, "uri", dry_run) if isinstance(one, dict) else one for one in adapters]
        kept = {**kept, "llm": {**llm, "adapters": found}}
    return model if kept == spec else {**model, "spec": kept}


def _keep(state: Path, fields: Object, field: str, dry_run: bool) -> Object:
    """Copy the files at the local URI in `field`, and return the fields with their `digest`; others unchanged."""
    from serving.storage import kept
    from serving.storage.base import digest as digests  # heavy; only local files need these
    from serving.storage.base.errors import RetryableStorageError, StorageError
    from serving.storage.sources.local import file_uri_path

    uri = fields.get(field)
    if not isinstance(uri, str) or not is_file_uri(uri) or storage_uri_fault(uri):
        return fields
    promised = fields.get("digest") or ""
    folder = state / KEPT_FOLDER
    try:
        path = file_uri_path(uri, uri)
        digests.check_form(uri, promised)
        if promised and kept.is_intact(folder, path, uri, promised):
            return fields
        if dry_run:
            digest = kept.digest_at(path, uri)
            digests.check(uri, promised, digest)
        else:
            digest = kept.keep(path, uri, promised, folder, kept_limit(state), verify=True)
    except RetryableStorageError as error:
        raise ClientError(str(error)) from error
    except StorageError as error:
        raise UsageError(str(error)) from error
    return {**fields, "digest": digest}


def keep_by_digest(state: Path, model: Object, present: Object, *, dry_run: bool = False) -> None:
    """Copy the files of the `present` Model for a Model that gives their digest but no URI. Raises UsageError."""
    spec, uri = model.get("spec"), (present.get("spec") or {}).get("storageUri")
    if isinstance(spec, dict) and spec.get("digest") and not spec.get("storageUri"):
        keep_files(state, {**model, "spec": {"storageUri": uri, "digest": spec["digest"]}}, dry_run=dry_run)


def kept_limit(state: Path) -> int:
    """Return the size limit of all copies, in bytes: that of the platform on this folder, else of the environment."""
    from serving.storage.kept import size_limit

    with suppress(StateError):  # other parts report an unreadable file
        facts = Facts.read(state)
        if facts is not None and facts.kept_limit is not None:
            return facts.kept_limit
    return size_limit(os.environ)


def without_same_bytes(model: Object, present: Object) -> Object:
    """Return the Model without `storageUri` and `digest` if `present` already serves the same bytes.

    Local files are stored by content, so their location may differ. Replicas fetch other files from their URI, so
    another URI is another version. Other bytes are another version too; it does not inherit the label and the digest
    of the present one.
    """
    given, before = model.get("spec"), present.get("spec") or {}
    if not before or not isinstance(given, dict) or not (given.get("storageUri") or given.get("digest")):
        return model
    uri, served_uri = given.get("storageUri") or before.get("storageUri"), before.get("storageUri")
    promised = before.get("digest") or None
    digest = (given["digest"] or None) if "digest" in given else promised if uri == served_uri else None
    named = bool(given.get("modelFormat") or before.get("modelFormat"))
    same_format = _format_marks(uri, named) == _format_marks(served_uri, named)
    same_bytes = digest and digest == (promised or recorded_digest(present)) and same_format
    if same_bytes and (uri == served_uri or (is_file_uri(str(uri)) and is_file_uri(str(served_uri)))):
        return {**model, "spec": {name: value for name, value in given.items() if name not in ("storageUri", "digest")}}
    if (uri, digest) == (served_uri, promised):
        return model
    label = {} if same_bytes or given.get("version") or not before.get("version") else {"version": None}
    return {**model, "spec": {**given, "digest": digest, **label}}


def recorded_digest(model: Object) -> str:
    """Return the digest that the first replica of the newest version loaded; "" while it is unknown.

    It is unknown until the platform has created a version for the present spec, and it is ready or has failed.
    """
    status = model.get("status") or {}
    newest = condition_of(model, CONFIGURATIONS_READY) or {}
    if status.get("observedGeneration") != generation_of(model) or newest.get("status") not in ("True", "False"):
        return ""
    revision, uri = status.get("latestCreatedRevision"), (model.get("spec") or {}).get("storageUri")
    entries = [entry for entry in history_of(model) if (entry.revision, entry.storage_uri) == (revision, uri)]
    return entries[-1].digest if entries else ""


def present_object(api: ApiCalls, kind: Kind, obj: Object) -> Call[Object | None]:
    """Return the stored object, or None if it does not exist.

    If `obj` has a digest and the stored version has just become ready, wait until that version's digest is recorded.
    """
    name, namespace, spec = name_of(obj), namespace_of(obj), obj.get("spec")
    with suppress(NotFound):
        present = yield from api.get(kind, name, namespace)
        if kind is MODEL and isinstance(spec, dict) and spec.get("digest") and awaits_record(present):
            with suppress(TimedOut):
                return (
                    yield from wait_until(api, name, namespace, RECORD_TIMEOUT, lambda model: not awaits_record(model))
                )
        return present
    return None


def awaits_record(model: Object) -> bool:
    """Return whether the newest version is ready, but the digest that it loaded is not recorded yet."""
    spec, status = model.get("spec") or {}, model.get("status") or {}
    observed = status.get("observedGeneration") == generation_of(model)
    ready = (condition_of(model, CONFIGURATIONS_READY) or {}).get("status") == "True"
    return observed and ready and not spec.get("digest") and not recorded_digest(model)


def short_digest(digest: str) -> str:
    """Return the first digits of a digest for display; `-` without one."""
    return digest.removeprefix("sha256:")[:SHORT] or "-"


def _format_marks(uri: object, named: bool) -> tuple[str, str]:
    """Return the parts of a file name that determine its format: its suffix, and a known name such as `model.txt`.

    Known names are ignored if the Model gives its format (`named`). Names of archives are ignored.
    """
    from serving.engines.base.registry import FORMATS  # heavy; only local files need it
    from serving.storage.archives.archive import is_archive

    path = Path(str(uri).lower())
    if is_archive(path.name):
        return "archive", ""
    known = {name for made in FORMATS.values() for name in made.names}
    return path.suffix, path.name if path.name in known and not named else ""
