"""Secrets are given to a platform wherever a user gives one, in ways that go well and in ways that do not.

One way for both clusters: by the command, the gateway and the webhook. What is said on the way is kept as traces.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from clusters.base.objects import MODEL
from eventing.auth.signing import KEY_BYTES, sign
from eventing.mapping.training import TYPE
from tests.scenarios.world import infer_body
from tests.security.canaries import Canaries
from tests.security.traces import Command, Trace, ran, said
from tests.testbed.waiting import becomes

GOOD, BROKEN_HUB, BROKEN_STORE, AWAY, TRAINED = "good", "broken-hub", "broken-store", "away", "trained"
BROKEN = (BROKEN_HUB, BROKEN_STORE, AWAY)
MODELS = (GOOD, *BROKEN, TRAINED)
SOURCE = "/training/planted"
ANSWERED = r"^answer \d"
"""The answer to a caller may have what he has sent."""
LEDGER = r"^(objects modelevents\.|`knodel events )"
"""An event that was taken is kept with its data as it was sent, and shown so to whoever may read ModelEvents."""
WITHIN = 120.0  # s for a step; a replica that crashed is started anew after 10 s at most
NOWHERE = 1  # a port where nobody listens


@dataclass(frozen=True, slots=True)
class Platform:
    """How a platform is reached; `host` makes the headers by which its gateway knows a Model.

    `spec` are fields of every Model. `mounted` and `stored` are patterns of the places where credentials of stores, and
    keys of EventSources, belong.
    """

    command: Command
    gateway: str
    webhook: str
    host: Callable[[str], Mapping[str, str]]
    spec: Mapping[str, Any] = field(default_factory=dict)
    mounted: str = ""
    stored: str = ""


class Planting:
    """One platform with secrets of every sort."""

    def __init__(self, platform: Platform, canaries: Canaries) -> None:
        self.canaries = canaries
        self.heard: list[Trace] = []
        self._platform = platform
        self._numbers = count(1)

    def say(self, *words: str, stdin: str | None = None) -> str:
        """A command whose output is searched later; the output."""
        trace = said(self._platform.command, *words, stdin=stdin)
        self.heard.append(trace)
        return trace[1].decode()

    def asked(self, *words: str) -> Any:
        """The JSON of a command that ends well, whose output nobody searches."""
        done = ran(self._platform.command, *words, "-o", "json")
        assert done.returncode == 0, f"knodel {' '.join(words)}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def stores(self, store: str, token: str, hostile: str) -> None:
        """Stores that take the credentials, one that refuses them and says them back, and one that does not answer."""
        plant, mounted = self.canaries.plant, self._platform.mounted
        refused, unheard = plant("token that a hub refuses", home=mounted), plant("token for nobody", home=mounted)
        key, session = plant("key of a store", home=mounted), plant("session of a store", home=mounted)
        away = f"http://{urlsplit(hostile).hostname}:{NOWHERE}"
        self._keep("hub", HF_ENDPOINT=store, HF_TOKEN=token)
        self._keep("refused", HF_ENDPOINT=hostile, HF_TOKEN=refused)
        self._keep("unheard", HF_ENDPOINT=away, HF_TOKEN=unheard)
        own = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": key, "AWS_SESSION_TOKEN": session}
        self._keep("s3", **own, AWS_ENDPOINT_URL=hostile, AWS_REGION="eu-1")
        self._deploy(GOOD, "hf://org/private", "hub", "--wait", "--timeout", "150s", minReplicas=1)
        self._deploy(BROKEN_HUB, "hf://org/private", "refused", "--wait", "--timeout", "5s")
        self._deploy(BROKEN_STORE, "s3://bucket/m", "s3", "--wait", "--timeout", "5s")
        self._deploy(AWAY, "hf://org/private", "unheard", "--wait", "--timeout", "5s")
        password = plant("password in an address")
        self.say("deploy", "x", "--uri", f"https://me:{password}@127.0.0.1:1/model.onnx", "-o", "json")
        data = {"k": f"!{plant('no Base64')}"}
        self.say("deploy", "-f", "-", stdin=json.dumps(_document("Secret", "w", "v1", data=data)))

    def _keep(self, name: str, **values: str) -> None:
        """A Secret, its values by variables."""
        platform = self._platform
        command = Command({**platform.command.environment, **values}, platform.command.options)
        words = [word for key in values for word in ("--env", key)]
        self.heard.append(said(command, "secret", name, *words, "-o", "json"))

    def _deploy(self, name: str, uri: str, secret: str, *options: str, **spec: Any) -> None:
        fields = {"storageUri": uri, "storage": {"secretRef": {"name": secret}}, **self._platform.spec, **spec}
        document = _document(MODEL.kind, name, MODEL.api_version, spec=fields)
        self.say("deploy", "-f", "-", *options, stdin=json.dumps(document))

    def requests(self) -> None:
        """Callers with keys in query, headers and body, of requests that go well and that do not."""
        plant = self.canaries.plant
        query, header = plant("key in a query"), plant("key in a header")
        body = plant("secret in a body", home=ANSWERED)
        own = {"Authorization": f"Bearer {header}", "X-Api-Key": header, "Cookie": f"session={header}"}
        path = f"/v2/models/{{}}/infer?api_key={query}"
        good = infer_body(1) | {"id": body}
        assert self.ask(GOOD, path.format(GOOD), own, good) == HTTPStatus.OK
        assert self.ask(GOOD, path.format(GOOD), own, {"inputs": body}) == HTTPStatus.BAD_REQUEST
        assert self.ask("nobody", path.format("nobody"), own, good) == HTTPStatus.NOT_FOUND
        assert self.ask("nobody", path.format(BROKEN_HUB), own | {"Host": "x"}, good) >= HTTPStatus.BAD_REQUEST

    def is_answered(self, model: str) -> bool:
        """Whether the Model serves."""
        return self.ask(model, f"/v2/models/{model}/infer", {}, infer_body(1)) == HTTPStatus.OK

    def ask(self, model: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> int:
        """One request to the gateway, in a caller's own words; its status."""
        sent = {"Content-Type": "application/json", **self._platform.host(model), **headers}
        return self._send(self._platform.gateway + path, sent, json.dumps(body).encode())

    def events(self, uri: str) -> None:
        """A sender with a key, whose events bring `uri`, are wrong, and have more in them than is read; and strangers.

        `knodel events allow` is the one place where the key is shown.
        """
        granted = ("--models", "*", "--storage-prefix", f"{uri.rpartition('/')[0]}/", "--create-models")
        made = self.asked("events", "allow", SOURCE, *granted)
        key = str(next(one for one in made["items"] if one["kind"] == "Secret")["stringData"]["current"])
        plant = self.canaries.plant
        plant("key of an EventSource", key.removeprefix("whsec_"), home=self._platform.stored)
        words = ("events", "send", TRAINED, "--uri", uri, "--version", "1", "--id", "one", "--source", SOURCE)
        assert becomes(lambda: f"event one of {SOURCE}" in self.say(*words), WITHIN)
        assert becomes(partial(self.is_answered, TRAINED), WITHIN)
        self.say("events", "trace", "one", "-o", "json")
        self.say("events", "show", "one", "-o", "json")
        known = {"model": TRAINED, "storageUri": uri, "version": "1"}
        beside = plant("secret in an event's data", home="|".join(filter(None, (LEDGER, self._platform.stored))))
        assert self._post(key, {**known, "password": beside}) == HTTPStatus.ACCEPTED
        address = f"https://me:{plant('password in an event')}@127.0.0.1:1/m.onnx"
        assert self._post(key, {**known, "storageUri": address}) == HTTPStatus.FORBIDDEN
        stranger = plant("key of a stranger")
        other = f"whsec_{base64.b64encode(stranger.encode()[:KEY_BYTES]).decode()}"
        assert self._post(other, {"model": stranger}, stranger) == HTTPStatus.UNAUTHORIZED
        assert self._post("", {"model": stranger}, stranger) == HTTPStatus.UNAUTHORIZED
        assert self._post(key, {**known, "model": 7}) == HTTPStatus.BAD_REQUEST

    def _post(self, key: str, data: Mapping[str, Any], bearer: str = "") -> int:
        """An event, signed with `key` unless that is empty, with a token in header and query; the status."""
        number = f"planted-{next(self._numbers)}"
        token = bearer or self.canaries.plant(f"token of the event {number}")
        event = {"specversion": "1.0", "id": number, "source": SOURCE, "type": TYPE, "data": data}
        body = json.dumps({**event, "datacontenttype": "application/json"}).encode()
        headers = {"Content-Type": "application/cloudevents+json"}
        headers |= sign(key, number, datetime.now(UTC), body) if key else {"Authorization": f"Bearer {token}"}
        return self._send(f"{self._platform.webhook}?access_token={token}", headers, body)

    def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        request = urllib.request.Request(url, body, dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content, status = answer.read(), int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                content, status = error.read(), error.code
        except OSError:  # no answer in time, or none at all
            return 0
        self.heard.append((f"answer {status} of {urlsplit(url).path}", content))
        return status


def _document(kind: str, name: str, api_version: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
