"""The CustomResourceDefinitions of EventSource and ModelEvent. Pure.

`manifests/base/crds/eventsources.yaml` and `modelevents.yaml` are their results; a test keeps them equal.
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
    """Return the CustomResourceDefinition."""
    columns = [
        column("Source", ".spec.source", "Value of `source` of its events"),
        column("Models", ".spec.models", "Models that its events may change"),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether events can be sent with it"),
        column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Reason"),
        column("Pending", ".status.pending", "Waiting events at the last count", "integer", wide=True),
        column("Message", '.status.conditions[?(@.type=="Ready")].message', "Message with the remedy", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since its creation", "date"),
    ]
    return make_definition(EVENT_SOURCE, make_event_source_schema(), columns)


def make_model_event_crd() -> Object:
    """Return the CustomResourceDefinition."""
    columns = [
        column("Model", ".spec.model.name", "Model that the event changes"),
        column("Phase", ".status.phase", "Phase of its processing"),
        column("Source", ".spec.source", "Value of `source`"),
        column("Id", ".spec.id", "Value of `id`"),
        column("Message", ".status.message", "Message of the phase", wide=True),
        column("Storage", ".spec.change.storageUri", "Address of its artifact", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since its arrival", "date"),
    ]
    return make_definition(MODEL_EVENT, make_model_event_schema(), columns)


def make_event_source_schema() -> Schema:
    """Return the structural schema of an EventSource."""
    status = record(
        "Observed state of the EventSource.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that the status describes.", format="int64"),
            "conditions": listing("Condition Ready: whether events can be sent with it.", make_condition()),
            "pending": plain("integer", "Waiting events at the last count.", format="int32"),
            "countedAt": plain("string", "Time of the last count.", format="date-time"),
        },
    )
    about = "Permission to send events: the sender, the Models it may change, and the storage of their artifacts."
    return {**_whole(about, _source_spec(), status), RULES: name_rules(LONGEST_LABEL)}


def make_model_event_schema() -> Schema:
    """Return the structural schema of a ModelEvent, whose spec is immutable."""
    written_once = {RULES: [rule("self == oldSelf", "it cannot change: send another event")]}
    spec = {**_event_spec(), "x-kubernetes-map-type": "atomic", **written_once}
    return _whole("An accepted event and its outcome.", spec, _event_status())


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
        "Name of a Model, with * and ? as wildcards.",
        event_source.LONGEST_GLOB,
        rule(matches(event_source.GLOB.pattern), words_of(event_source.glob_fault, "-_")),
    )
    prefix = text(
        "Prefix of permitted storage URIs.",
        longest,
        rule(matches(event_source.PREFIX.pattern), words_of(event_source.prefix_fault, "-")),
        rule(f"!{matches('[a-z0-9]+://(?:.*/)?[.][.]?(?:/.*)?')}", words_of(event_source.prefix_fault, "s3://..")),
    )
    return mapping(
        "Permissions of the sender.",
        {
            "source": text(
                "`source` attribute of its events. A * at the end matches any rest.",
                longest,
                rule(matches(event_source.SOURCE.pattern), words_of(event_source.source_fault, " ")),
            ),
            "auth": _auth(),
            "models": array(
                "Models that its events may change: NAMESPACE/NAME, or NAME for its own namespace.", glob, most
            ),
            "storagePrefixes": array("Permitted prefixes of storage URIs.", prefix, most),
            "allowCode": flag("Whether its events may use formats that run code of the artifact. Default: false."),
            "createModels": flag("Whether its events may create Models. Default: false."),
            "mapping": _mapping(),
        },
        required=["source", "auth", "models", "storagePrefixes"],
    )


def _mapping() -> Schema:
    """Return the schema of `mapping`: field names only. `eventing.mapping.spec` checks paths and templates."""
    about = {
        "types": "Globs of the event types to map. If absent, all.",
        "when": "JSONPaths (RFC 9535) that must all select something, as strings or {path, otherwise}.",
        "source": "Constant `source` of the resulting event. If absent, that of the event.",
        **{name: f"Template of {name}, or several: the first with a value is used." for name in VALUES},
    }
    preset = f"One of {', '.join(PRESETS)}; other fields override its fields."
    return record(
        "Mapping of foreign events to changes of Models.",
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
        "Secret in the namespace of the EventSource.",
        {"name": texts.subdomain("Name of the Secret.")},
        required=["name"],
    )
    return mapping(
        "Authentication of senders.",
        {
            "hmac": mapping(
                "Signatures of the body (Standard Webhooks). The Secret has the keys `current` and `previous`.",
                {"secretRef": secret},
                required=["secretRef"],
            ),
            "oidc": mapping(
                "Tokens of an OpenID Connect provider.",
                {
                    "issuer": text("Issuer of the tokens.", longest, issuer),
                    "audience": text("Audience of the tokens.", longest, line),
                    "subject": text("Subject of the tokens.", longest, line),
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
    """Return the schema of `spec`: few bounds, because the webhook has checked what it writes."""
    model = {"namespace": plain("string", "Namespace of the Model."), "name": plain("string", "Name of the Model.")}
    change = {
        "storageUri": plain("string", "Address of the artifact."),
        "digest": plain("string", "SHA-256 of the artifact."),
        "version": plain("string", "Version label."),
        "modelFormat": plain("string", "Model format."),
    }
    return record(
        "The event. It is immutable.",
        {
            "eventSource": plain("string", "EventSource that admitted the event."),
            "source": plain("string", "`source` of the event, or of its mapping's result."),
            "id": plain("string", "`id` of the event, or of its mapping's result."),
            "type": plain("string", "`type` of the event."),
            "receivedAt": plain("string", "Time of arrival.", format="date-time"),
            "time": plain("string", "`time` of the event.", format="date-time"),
            "sequence": plain("string", "`sequence` of the event."),
            "sequencetype": plain("string", "`sequencetype`: Integer, or empty for text."),
            "subject": plain("string", "`subject` of the event."),
            "traceparent": plain("string", "`traceparent` of the event."),
            "correlationid": plain("string", "`correlationid` of the event."),
            "model": record("Model that the event changes.", model, required=["namespace", "name"]),
            "change": record("Change of the Model.", change, required=["storageUri"]),
            "metrics": opaque("Metrics of the training."),
            "data": {"description": "`data` as it was sent.", PRESERVE: True},
            "ignored": plain("string", "Reason why the event is ignored."),
        },
        required=["eventSource", "source", "id", "type", "receivedAt"],
    )


def _event_status() -> Schema:
    return record(
        "Outcome of the event. If absent, the phase is Accepted.",
        {
            "phase": plain("string", f"One of {', '.join(get_args(Phase))}."),
            "reason": plain("string", "Reason as one CamelCase word."),
            "message": plain("string", "Message that explains the reason."),
            "attempts": plain("integer", "Number of failed attempts.", format="int32"),
            "retryAt": plain("string", "Time of the next attempt.", format="date-time"),
            "at": plain("string", "Time of the last change of the phase.", format="date-time"),
            "generation": plain("integer", "Generation of the Model after the change.", format="int64"),
            "revision": plain("string", "Revision that it created."),
            "arrival": plain("integer", "Order of arrival in the cluster.", format="int64"),
        },
    )
