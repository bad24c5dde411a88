"""Objects in Kubernetes' protobuf encoding: kubectl and client-go use it for core kinds, and do not fall back to JSON.

Source: apimachinery `pkg/runtime/serializer/protobuf`. The messages are those of `kubernetes.proto`, in a pool of their
own as in `server/grpc/messages.py`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from serving.control_api.status import MalformedRequest, UnsupportedMediaType

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
PREFIX: Final = b"k8s\x00"
DESCRIPTIONS: Final = Path(__file__).with_name("kubernetes.binpb")
"""`kubernetes.proto`, compiled by `make proto`."""
KINDS: Final = frozenset({
    ("v1", "Namespace"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "DeleteOptions"),
    ("meta.k8s.io/v1", "DeleteOptions"), ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"), ("authentication.k8s.io/v1", "SelfSubjectReview"),
})  # fmt: skip
"""(apiVersion, kind) of all messages that are accepted."""


def to_json(body: bytes) -> bytes:
    """Return an encoded object as JSON text. Raises MalformedRequest, UnsupportedMediaType (kind not in KINDS)."""
    from google.protobuf.json_format import MessageToJson  # most platforms never receive any of it
    from google.protobuf.message import DecodeError

    if not body.startswith(PREFIX):
        raise MalformedRequest(f"the body is not {MEDIA_TYPE}: it does not begin with {PREFIX!r}")
    try:
        envelope = _message("Unknown").FromString(body[len(PREFIX) :])
        api_version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
        if (api_version, kind) not in KINDS or envelope.contentEncoding or envelope.contentType:
            raise UnsupportedMediaType(f"{kind[:40]!r} of {api_version[:60]!r} is not accepted in protobuf: send JSON")
        text = MessageToJson(_message(kind).FromString(envelope.raw), preserving_proto_field_name=True, indent=None)
    except DecodeError as error:
        raise MalformedRequest(f"the body is not {MEDIA_TYPE}: {error}") from error
    head = f'{{"apiVersion": "{api_version}", "kind": "{kind}"'
    return f"{head}{', ' if len(text) > 2 else ''}{text[1:]}".encode()


@cache
def _message(name: str) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"knodel.kubernetes.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTIONS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
