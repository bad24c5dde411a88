"""The CustomResourceDefinitions of EventSource and ModelEvent. Pure.

`manifests/base/crds/eventsources.yaml` and `modelevents.yaml` hold them; a test keeps them equal.
"""

from __future__ import annotations

from typing import get_args

from clusters.base.names import LONGEST_LABEL
from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, Object
from eventing.mapping.presets import PRESETS
from eventing.mapping.spec import VALUES
from eventing.objects.apis import Phase
from serving.crds import texts
from serving.crds.definition import column, make_definition, name_rules
from serving.crds.schema import (
    PRESERVE,
    RULES,
    Schema,
    array,
    flag,
    listing,
    mapping,
    matches,
    opaque,
    plain,
    record,
    rule,
    text,
    words_of,
)
from serving.crds.status import make_condition
from serving.types import event_source


def make_event_source_crd() -> Object:
    """The CustomResourceDefinition as it is applied."""
    columns = [
        column("Source", ".spec.source", "Events of which source it is for"),
        column("Models", ".spec.models", "Which Models they may change"),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether anybody can send by it"),
        column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why"),
        column("Pending", ".status.pending", "Events that waited when they were counted last", "integer", wide=True),
        column("Message", '.status.conditions[?(@.type=="Ready")].message', "What to do", wide=True),
        column("Age", ".metadata.creationTimestamp", "Since it was made", "date"),
    ]
    return make_definition(EVENT_SOURCE, make_event_source_schema(), columns)


def make_model_event_crd() -> Object:
    """The CustomResourceDefinition as it is applied."""
    columns = [
        column("Model", ".spec.model.name", "The Model that it is for"),
        column("Phase", ".status.phase", "What became of it"),
        column("Source", ".spec.source", "Who sent it"),
        column("Id", ".spec.id", "Its id"),
        column("Message", ".status.message", "Why", wide=True),
        column("Storage", ".spec.change.storageUri", "Where its artifact lies", wide=True),
        column("Age", ".metadata.creationTimestamp", "Since it came", "date"),
    ]
    return make_definition(MODEL_EVENT, make_model_event_schema(), columns)


def make_event_source_schema() -> Schema:
    """The structural schema of a whole EventSource."""
    status = record(
        "What is there.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that this speaks of.", format="int64"),
            "conditions": listing("Ready: whether anybody can send by it.", make_condition()),
            "pending": plain("integer", "Events that waited for their effect when they were counted.", format="int32"),
            "countedAt": plain("string", "When they were.", format="date-time"),
        },
    )
    about = "Who may send events, about which Models, and from where their artifacts may come."
    return {**_whole(about, _source_spec(), status), RULES: name_rules(LONGEST_LABEL)}


def make_model_event_schema() -> Schema:
    """The structural schema of a whole ModelEvent: its spec is written once."""
    written_once = {RULES: [rule("self == oldSelf", "it cannot change: send another event")]}
    spec = {**_event_spec(), "x-kubernetes-map-type": "atomic", **written_once}
    return _whole("An accepted event and what became of it.", spec, _event_status())


def _whole(about: str, spec: Schema, status: Schema) -> Schema:
    return {
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": plain("string"),
            "kind": plain("string"),
            "metadata": plain("object", properties={"name": plain("string")}),
            "spec": spec,
            "status": status,
        },
    }


def _source_spec() -> Schema:
    longest, most = event_source.LONGEST_TEXT, event_source.MOST_ENTRIES
    glob = text(
        "One Model, or several with * and ?.",
        event_source.LONGEST_GLOB,
        rule(matches(event_source.GLOB.pattern), words_of(event_source.glob_fault, "-_")),
    )
    prefix = text(
        "What a storageUri may begin with.",
        longest,
        rule(matches(event_source.PREFIX.pattern), words_of(event_source.prefix_fault, "-")),
        rule(f"!{matches('[a-z0-9]+://(?:.*/)?[.][.]?(?:/.*)?')}", words_of(event_source.prefix_fault, "s3://..")),
    )
    return mapping(
        "What is allowed.",
        {
            "source": text(
                "The `source` attribute of its events, or how it begins, with * at the end.",
                longest,
                rule(matches(event_source.SOURCE.pattern), words_of(event_source.source_fault, " ")),
            ),
            "auth": _auth(),
            "models": array("Models that its events may change: NAMESPACE/NAME, or NAME in its own.", glob, most),
            "storagePrefixes": array("Where their artifacts may come from.", prefix, most),
            "allowCode": flag("Whether they may bring formats that run code of the artifact; default false."),
            "createModels": flag("Whether they may make a Model that is not there; default false."),
            "mapping": _mapping(),
        },
        required=["source", "auth", "models", "storagePrefixes"],
    )


def _mapping() -> Schema:
    """Names alone: what a path is, and that a text may be a list, no schema can say (`eventing.mapping.spec`)."""
    about = {
        "types": "Globs of the types that mean something; absent: all.",
        "when": "JSONPaths (RFC 9535) that each have to select something: texts, or {path, otherwise}.",
        "source": "Of the effect: a constant; absent: the event's.",
        **{name: f"Template of {name}, or several: the first that has a value." for name in VALUES},
    }
    preset = f"One of {', '.join(PRESETS)}; other fields replace its own."
    return record(
        "How foreign events become changes.",
        {
            "preset": plain("string", preset, enum=list(PRESETS)),
            **{name: {"description": words, PRESERVE: True} for name, words in about.items()},
        },
    )


def _auth() -> Schema:
    longest = event_source.LONGEST_TEXT
    line = rule(matches(f"(?: |{texts.PRINTABLE})+"), words_of(event_source.word_fault, "\n"))
    issuer = rule(matches(event_source.ISSUER.pattern), words_of(event_source.issuer_fault, "-"))
    secret = mapping(
        "The Secret, in its namespace.", {"name": texts.subdomain("Name of the Secret.")}, required=["name"]
    )
    return mapping(
        "How senders prove who they are.",
        {
            "hmac": mapping(
                "By signatures of the body (Standard Webhooks); the Secret's keys are `current` and `previous`.",
                {"secretRef": secret},
                required=["secretRef"],
            ),
            "oidc": mapping(
                "By tokens of an OpenID provider.",
                {
                    "issuer": text("Who gives them out.", longest, issuer),
                    "audience": text("For whom they are.", longest, line),
                    "subject": text("Whose they are.", longest, line),
                },
                required=["issuer", "audience", "subject"],
            ),
        },
        rule(
            "has(self.hmac) != has(self.oidc)",
            "must say either hmac or oidc: events without proof of their sender are never taken",
        ),
    )


def _event_spec() -> Schema:
    """Types and few bounds: the webhook has checked what it writes."""
    model = {"namespace": plain("string", "Its namespace."), "name": plain("string", "Its name.")}
    change = {
        "storageUri": plain("string", "Where the artifact lies."),
        "digest": plain("string", "SHA-256 of it."),
        "version": plain("string", "What people call it."),
        "modelFormat": plain("string", "Its format."),
    }
    return record(
        "What came; it never changes.",
        {
            "eventSource": plain("string", "The EventSource that let it in."),
            "source": plain("string", "Its `source`, or that of its effect."),
            "id": plain("string", "Its `id`, or that of its effect."),
            "type": plain("string", "Its `type`."),
            "receivedAt": plain("string", "When it came.", format="date-time"),
            "time": plain("string", "When it happened.", format="date-time"),
            "sequence": plain("string", "Its place among events of its source."),
            "sequencetype": plain("string", "Meaning of the sequence: `Integer`, or empty for text."),
            "subject": plain("string", "Its `subject`."),
            "traceparent": plain("string", "Its trace."),
            "correlationid": plain("string", "What it belongs to, as its sender has it."),
            "model": record("The Model that it changes.", model, required=["namespace", "name"]),
            "change": record("What it changes.", change, required=["storageUri"]),
            "metrics": opaque("Numbers of the training."),
            "data": {"description": "Its data as they were sent.", PRESERVE: True},
            "ignored": plain("string", "Why it means nothing here."),
        },
        required=["eventSource", "source", "id", "type", "receivedAt"],
    )


def _event_status() -> Schema:
    return record(
        "What became of it; absent: Accepted.",
        {
            "phase": plain("string", f"One of {', '.join(get_args(Phase))}."),
            "reason": plain("string", "Why, as one word."),
            "message": plain("string", "Why, for people."),
            "attempts": plain("integer", "Tries that failed.", format="int32"),
            "retryAt": plain("string", "When it is tried again.", format="date-time"),
            "at": plain("string", "When it came to that.", format="date-time"),
            "generation": plain("integer", "Generation of the Model that it made.", format="int64"),
            "revision": plain("string", "The revision that it made."),
            "arrival": plain("integer", "Its place among all that the cluster took in.", format="int64"),
        },
    )
