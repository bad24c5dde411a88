"""Named environments: a cluster or the platform of a state folder, with a namespace, in a file of the user.

default: prod
environments:
  prod: {kubeContext: gke, namespace: ml}
  laptop: {state: /home/ann/.local/state/knodel}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from clusters.base.names import dns_label_fault
from clusters.base.redact import error_text
from serving.client.errors import ClientError, UsageError
from serving.client.home import expand_home
from serving.client.platform_ref import CONTEXT_VARIABLE, DEFAULT_NAMESPACE, PlatformRef
from serving.client.state import STATE_VARIABLE, state_folder

FILE = Path("knodel", "environments.yaml")
VARIABLE = "KNODEL_ENV"
FIELDS = ("kubeContext", "state", "namespace")


class Environment(NamedTuple):
    """An environment: either a kubeconfig context or a state folder. An empty namespace is that of the context."""

    name: str
    kube_context: str = ""
    state: str = ""
    namespace: str = ""

    @property
    def where(self) -> str:
        """The place in words, such as `context gke, namespace ml`."""
        place = f"context {self.kube_context}" if self.kube_context else f"state folder {self.state}"
        return f"{place}, namespace {self.namespace}" if self.namespace else place

    def fields(self) -> dict[str, str]:
        """Return the fields in the file, without empty ones."""
        values = (self.kube_context, self.state, self.namespace)
        return {field: value for field, value in zip(FIELDS, values, strict=True) if value}

    def open(self) -> tuple[PlatformRef, str]:
        """Return the platform or cluster, and the namespace. Raises UsageError when the context does not exist."""
        if not self.kube_context:
            return PlatformRef(state_folder(self.state)), self.namespace or DEFAULT_NAMESPACE
        from serving.client.kubeconfig import KubeContext  # heavy; only clusters need it

        try:
            kube = KubeContext.find(self.kube_context)
        except UsageError as error:
            remedy = f"`knodel env remove {self.name}` removes the environment"
            raise UsageError(f"environment {self.name}: {error}; {remedy}") from error
        return PlatformRef(state_folder(None), kube), self.namespace or kube.namespace


class Environments(NamedTuple):
    """All environments by name, and the name of the default one; empty for none."""

    known: Mapping[str, Environment] = MappingProxyType({})
    default: str = ""

    def find(self, name: str) -> Environment:
        """Return an environment. Raises UsageError, with the known ones."""
        if found := self.known.get(name):
            return found
        listed = f"known ones are {', '.join(sorted(self.known))}" if self.known else "none has been added yet"
        add = "" if dns_label_fault(name) else f"; `knodel env add {name} --kube-context NAME` adds it"
        raise UsageError(f"there is no environment {name!r}: {listed}{add}")

    def added(self, new: Environment) -> Environments:
        """Return them with one more. Raises UsageError for a name that is invalid or taken."""
        if fault := dns_label_fault(new.name):
            raise UsageError(f"environment {fault}")
        if former := self.known.get(new.name):
            remedy = f"`knodel env remove {new.name}` removes it"
            raise UsageError(f"environment {new.name} exists already ({former.where}): {remedy}")
        return self._replace(known={**self.known, new.name: new})

    def removed(self, name: str) -> Environments:
        """Return them without one; the default environment leaves no default. Raises UsageError."""
        self.find(name)
        known = {one: environment for one, environment in self.known.items() if one != name}
        return Environments(known, self.default if self.default != name else "")

    def using(self, name: str) -> Environments:
        """Return them with another default; "" for none. Raises UsageError."""
        return self._replace(default=self.find(name).name if name else "")


def environments_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file, by the XDG base directory specification. Raises UsageError."""
    base = Path(environ.get("XDG_CONFIG_HOME") or "")
    return (base if base.is_absolute() else expand_home("~/.config")) / FILE


def read_environments(path: Path) -> Environments:
    """Return the environments of the file; none without a file. Raises ClientError for an invalid file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Environments()
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{path} cannot be read: {error_text(error)}") from error
    from clusters.net.strict_yaml import LoadError, load_documents  # heavy; only environments need it

    try:
        documents = load_documents(text, str(path))
    except LoadError as error:
        raise ClientError(str(error)) from error
    if len(documents) > 1:
        raise ClientError(f"{path} has {len(documents)} documents: keep one")
    return _parse(documents[0] if documents else {}, path)


def write_environments(path: Path, environments: Environments) -> None:
    """Replace the file atomically. Raises ClientError."""
    entries = {one.name: one.fields() for one in environments.known.values()}
    content = {**({"default": environments.default} if environments.default else {}), "environments": entries}
    import tempfile  # heavy; only changes need these

    import yaml

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
            yaml.safe_dump(content, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError as error:
        raise ClientError(
            f"{path} cannot be written ({error.strerror}): check its folder and its permissions"
        ) from error


def chosen_environment(
    env: str | None, *, elsewhere: bool = False, environ: Mapping[str, str] = os.environ
) -> Environment | None:
    """Return the environment of `env`, else of KNODEL_ENV, else the default one; None for none.

    `elsewhere`: a platform or a cluster is given, which excludes the last two. The variables of a state folder and of a
    context exclude the default one. Raises UsageError for an unknown environment, ClientError for an invalid file.
    """
    if env is not None:
        return read_environments(environments_file(environ)).find(env)
    if elsewhere:
        return None
    if name := environ.get(VARIABLE):
        return read_environments(environments_file(environ)).find(name)
    if environ.get(CONTEXT_VARIABLE) or environ.get(STATE_VARIABLE):
        return None
    try:
        path = environments_file(environ)
    except UsageError:  # this user has no home folder, and so no environments
        return None
    found = read_environments(path)
    return found.find(found.default) if found.default else None


def _parse(content: Any, path: Path) -> Environments:
    def fault(where: str, what: str) -> ClientError:
        return ClientError(f"{path}: {where} {what}")

    if not isinstance(content, dict):
        raise fault("the content", "must be a mapping with `environments`")
    for field in set(content) - {"default", "environments"}:
        raise fault(field, "is not a field: use default and environments")
    entries = content.get("environments") or {}
    if not isinstance(entries, dict):
        raise fault("environments", "must be a mapping by name")
    known: dict[str, Environment] = {}
    for name, entry in entries.items():
        where = f"environments.{name}"
        if reason := dns_label_fault(name):
            raise fault("environments:", reason)
        if not isinstance(entry, dict) or not all(isinstance(value, str) and value for value in entry.values()):
            raise fault(where, f"must be a mapping of texts: {', '.join(FIELDS)}")
        for field in set(entry) - set(FIELDS):
            raise fault(f"{where}.{field}", f"is not a field: use {', '.join(FIELDS)}")
        if ("kubeContext" in entry) == ("state" in entry):
            raise fault(where, "must have either kubeContext or state")
        if reason := dns_label_fault(entry.get("namespace", DEFAULT_NAMESPACE)):
            raise fault(f"{where}.namespace:", reason)
        known[name] = Environment(name, *(entry.get(field, "") for field in FIELDS))
    default = content.get("default") or ""
    if default and default not in known:
        listed = ", ".join(known) or "none"
        raise fault("default", f"is {json.dumps(default)[:80]}, which is not an environment: known ones are {listed}")
    return Environments(known, str(default))
