"""`knodel events allow` and `deny`: manage EventSources and their signing keys. A new key is printed only once."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

import click

from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.names import LONGEST_LABEL
from clusters.base.objects import EVENT_SOURCE, SECRET, Kind, Object, name_of, uid_of
from eventing.auth.hmac_keys import CURRENT, PREVIOUS, keys_of
from eventing.auth.signing import KEY_BYTES, make_secret
from eventing.mapping.presets import MLFLOW
from serving.cli.context import Session, verb
from serving.cli.events.list import list_of
from serving.cli.events.mapping import mapping_of, mapping_options, replacement_patch
from serving.cli.names import sources
from serving.cli.webhook import RBAC, is_kubernetes
from serving.client.client import Client
from serving.client.errors import DoesNotExist, UsageError
from serving.client.models.changes import change_object, store_object

KEY_SUFFIX: Final = "-key"
"""Suffix of a Secret's name, after the name of its EventSource."""
OTHERS: Final = re.compile(r"[^a-z0-9]+")
DIGITS: Final = 10
"""Hex digits of a hash that is appended to a truncated name."""
WEBHOOK: Final = "knodel-eventing"
"""The ServiceAccount of the webhook on a cluster (manifests/base/rbac/eventing.yaml)."""
READERS: Final = (WEBHOOK, "knodel-controller")
"""The ServiceAccounts that may read a key: the webhook, and the controller, which reports invalid keys."""


@verb(
    "allow",
    examples=[
        ("Allow a pipeline to redeploy iris from one bucket",
         "knodel events allow ci/train --models iris --storage-prefix s3://models/"),
        ("Create a new signing key; the present one stays valid too", "knodel events allow ci/train --rotate"),
    ],
)  # fmt: skip
@click.argument("source", shell_complete=sources)
@click.option(
    "--models", multiple=True, metavar="GLOB", help="Models that its events may change: [NAMESPACE/]NAME with * and ?."
)
@click.option("--storage-prefix", "prefixes", multiple=True, metavar="PREFIX",
              help="Allowed prefix of artifact URIs.")  # fmt: skip
@click.option("--create-models/--no-create-models", default=None, help="Allow its events to create models.")
@click.option("--allow-code/--no-allow-code", default=None, help="Allow formats that run code.")
@mapping_options
@click.option("--rotate", is_flag=True, help="Create a new key; the previous one stays valid until the next.")
@click.option("--key-only", is_flag=True, help="Print only the new key, for scripts.")
@click.option("--name", default="", metavar="NAME", help="Name of the EventSource [derived from SOURCE].")
def allow_command(
    session: Session, source: str, models: tuple[str, ...], prefixes: tuple[str, ...], rotate: bool, key_only: bool,
    name: str, preset: str | None, mapping: str | None, **flags: bool | None,
) -> None:  # fmt: skip
    """Allow events of SOURCE to change models. SOURCE is an exact source, or a prefix followed by *."""
    client = session.client()
    present = _present(client, session.namespace, source, name)
    if key_only and present is not None and not rotate:
        raise UsageError(f"the key of {source} is printed only when it is created: add --rotate to create a new one")
    fields = _fields(models, prefixes, flags)
    if (given := mapping_of(preset, mapping)) is not None:
        fields["mapping"] = replacement_patch(given, (present or {}).get("spec", {}).get("mapping"))
    if present is None:
        stored = _make(client, session.namespace, name or name_from(source), source, fields)
    else:
        stored = present
        if fields:
            stored = client.call(
                change_object, EVENT_SOURCE, name_of(present), session.namespace, lambda _: {"spec": fields}
            )
    key = _ensure_key(client, stored, session.namespace, rotate)
    if is_kubernetes(session, client):
        _let_webhook_read(client, stored, session.namespace)
    if key_only:
        session.output.text(key)
    else:
        _print(session, stored, key)


@verb(
    "deny",
    prints=False,
    examples=[("Stop accepting the events of a pipeline, and delete its key", "knodel events deny ci/train")],
)
@click.argument("source", shell_complete=sources)
@click.option("--name", default="", metavar="NAME", help="Name of the EventSource, if several have this source.")
def deny_command(session: Session, source: str, name: str) -> None:
    """Delete the EventSource of SOURCE and its key. Its events are then refused.

    SOURCE is the same text as in `knodel events allow`.
    """
    client = session.client()
    present = _of_source(client.list(EVENT_SOURCE, session.namespace)["items"], source, name)
    if not present:
        named = f" with the name {name}" if name else ""
        raise DoesNotExist(
            f"no EventSource of namespace {session.namespace} is for {source}{named}: `knodel events sources` lists all"
        )
    if len(present) > 1:
        names = ", ".join(map(name_of, present))
        raise UsageError(f"several EventSources have the source {source}: give --name with one of {names}")
    client.delete(EVENT_SOURCE, name_of(present[0]), session.namespace)
    session.output.text(f"events of {source} are refused: EventSource {name_of(present[0])} and its key are deleted")


def name_from(source: str) -> str:
    """Derive the name of an object from the source."""
    return OTHERS.sub("-", source.lower()).strip("-")[: LONGEST_LABEL - len(KEY_SUFFIX)].strip("-") or "all"


def secret_name(event_source: Object) -> str:
    """Return the name of the Secret with the keys. Raises UsageError for an EventSource without keys."""
    auth = event_source["spec"].get("auth") or {}
    reference = (auth.get("hmac") or {}).get("secretRef") or {}
    if not reference.get("name"):
        raise UsageError(
            f"EventSource {name_of(event_source)} authenticates by tokens (auth.oidc), so it has no key: omit --rotate"
        )
    return str(reference["name"])


def _present(client: Client, namespace: str, source: str, name: str) -> Object | None:
    """Return the EventSource with this source, and with this name if one is given. Raises UsageError."""
    found = client.list(EVENT_SOURCE, namespace)["items"]
    for one in _of_source(found, source, name):
        return dict(one)
    wanted = name or name_from(source)
    if any(name_of(one) == wanted for one in found):
        raise UsageError(f"EventSource {wanted} has another source: choose another name with --name")
    return None


def _of_source(found: Iterable[Object], source: str, name: str) -> list[Object]:
    """Return the EventSources with this source, and with this name if one is given."""
    return [one for one in found if (one.get("spec") or {}).get("source") == source and name in ("", name_of(one))]


def _fields(models: Iterable[str], prefixes: Iterable[str], flags: dict[str, bool | None]) -> dict[str, Any]:
    """Return the fields of the spec for the given options."""
    given = {
        "models": [glob for text in models for glob in text.split(",")],
        "storagePrefixes": list(prefixes),
        "createModels": flags["create_models"],
        "allowCode": flags["allow_code"],
    }
    return {name: value for name, value in given.items() if value not in ([], None)}


def _make(client: Client, namespace: str, name: str, source: str, fields: dict[str, Any]) -> Object:
    for field, option in (("models", "--models"), ("storagePrefixes", "--storage-prefix")):
        if field not in fields:
            raise UsageError(f"{source} has no EventSource yet: give {option} to create it")
    auth = {"hmac": {"secretRef": {"name": name + KEY_SUFFIX}}}
    metadata = {"name": name, "namespace": namespace}
    made = {"apiVersion": EVENT_SOURCE.api_version, "kind": EVENT_SOURCE.kind, "metadata": metadata}
    return client.call(store_object, EVENT_SOURCE, {**made, "spec": {"source": source, "auth": auth, **fields}})


def _ensure_key(client: Client, event_source: Object, namespace: str, rotate: bool) -> str:
    """Create a key if there is none or with `rotate`, and return it; empty if the present key remains."""
    auth = event_source["spec"].get("auth") or {}
    if not rotate and "oidc" in auth:
        return ""
    name = secret_name(event_source)
    if (event_source["spec"].get("mapping") or {}).get("preset") == MLFLOW:
        key = secrets.token_urlsafe(KEY_BYTES)  # MLflow uses the whole text as the key, without decoding a prefix
    else:
        key = make_secret(secrets.token_bytes(KEY_BYTES))
    try:
        known = keys_of(client.get(SECRET, name, namespace))
    except NotFound:
        _store(client, SECRET, namespace, _owned(event_source, SECRET, name, {"data": {CURRENT: _encoded(key)}}))
        return key
    if known and not rotate:
        return ""
    values = {CURRENT: _encoded(key), PREVIOUS: _encoded(known[0]) if known else None}
    # A store that keeps `stringData` would let it override `data`: remove it.
    client.merge(SECRET, name, namespace, {"data": values, "stringData": dict.fromkeys(values)})
    return key


def _let_webhook_read(client: Client, event_source: Object, namespace: str) -> None:
    """Create a Role that allows the webhook and the controller to read this Secret, and no other."""
    from serving.client.installed import SYSTEM_NAMESPACE
    from serving.install.kinds import SERVICE_ACCOUNT, kind_of  # heavy; only clusters need these

    if "oidc" in (event_source["spec"].get("auth") or {}):
        return
    name = role_name(name_of(event_source))
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret_name(event_source)], "verbs": ["get"]}
    ]
    subjects = [{"kind": SERVICE_ACCOUNT.kind, "name": reader, "namespace": SYSTEM_NAMESPACE} for reader in READERS]
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    for word, parts in (("Role", {"rules": rules}), ("RoleBinding", {"roleRef": reference, "subjects": subjects})):
        kind = kind_of({"apiVersion": f"{RBAC}/v1", "kind": word})
        _store(client, kind, namespace, _owned(event_source, kind, name, parts))


def role_name(event_source: str) -> str:
    """Return the name of the Role and RoleBinding, which is unique for each EventSource."""
    name = f"{WEBHOOK}-{event_source}"
    if len(name) <= LONGEST_LABEL:
        return name
    mark = hashlib.sha256(event_source.encode()).hexdigest()[:DIGITS]
    return f"{name[: LONGEST_LABEL - DIGITS - 1].rstrip('-.')}-{mark}"


def _owned(event_source: Object, kind: Kind, name: str, parts: dict[str, Any]) -> Object:
    """Return an object that is deleted with its EventSource."""
    owner = {
        "apiVersion": EVENT_SOURCE.api_version,
        "kind": EVENT_SOURCE.kind,
        "name": name_of(event_source),
        "uid": uid_of(event_source),
    }
    metadata = {"name": name, "ownerReferences": [owner]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def _store(client: Client, kind: Kind, namespace: str, obj: Object) -> None:
    metadata = {**obj["metadata"], "namespace": namespace}
    try:
        client.create(kind, {**obj, "metadata": metadata}, namespace)
    except AlreadyExists:
        _check_owner(client.get(kind, name_of(obj), namespace), kind, obj)
        parts = {
            part: value for part, value in obj.items() if part not in ("apiVersion", "kind", "metadata", "roleRef")
        }
        owners = {"ownerReferences": obj["metadata"]["ownerReferences"]}
        client.merge(kind, name_of(obj), namespace, {"metadata": owners, **parts})


def _check_owner(present: Object, kind: Kind, obj: Object) -> None:
    """Raise UsageError for an object of another EventSource, which would otherwise lose it."""
    [mine] = obj["metadata"]["ownerReferences"]
    for owner in (present.get("metadata") or {}).get("ownerReferences") or ():
        if (owner.get("kind"), owner.get("name")) != (mine["kind"], mine["name"]):
            raise UsageError(
                f"{kind.kind} {name_of(obj)} belongs to {owner.get('kind')} {owner.get('name')}: choose another name "
                "with --name, or delete it"
            )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _print(session: Session, event_source: Object, key: str) -> None:
    if session.output.structured:
        secret = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "stringData": {CURRENT: key}}
        metadata = {"namespace": session.namespace}
        if key:
            metadata["name"] = secret_name(event_source)
        session.output.value(list_of([event_source, *([{**secret, "metadata": metadata}] if key else [])]))
        return
    spec = event_source["spec"]
    models, prefixes = (", ".join(spec.get(name) or ("nothing",)) for name in ("models", "storagePrefixes"))
    session.output.text(f"events of {spec['source']} may change {models} with artifacts of {prefixes}")
    if key:
        session.output.text(f"their key, which is printed only now: {key}")
    else:
        session.output.text("their key is unchanged: --rotate creates a new one")
