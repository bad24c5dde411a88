"""Secrets are planted wherever a user gives one, the platform lives through failures and kills, and nothing has told.

Planted: credentials of stores, the webhook's key, the token of the control API, the key of warm pools, the private keys
of TLS, query strings and headers of requests, variables of the shell. Searched: everything that `tests.security.traces`
knows, the events that went out, and the answers of the stores' and requests' failures.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.processes import processes_of
from tests.eventing.scripted_receiver import Receiver, receiver
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.security.canaries import Canaries
from tests.security.echo import echo
from tests.security.traces import (
    Trace,
    command_lines,
    environments,
    files,
    is_open,
    objects,
    open_to_others,
    said,
    shown,
)
from tests.support import models
from tests.support.hub import hub
from tests.testbed.waiting import becomes

GOOD, BROKEN_HUB, BROKEN_STORE, TRAINED = "good", "broken-hub", "broken-store", "trained"
STORE_OF_OBJECTS = r"^file cluster\.db"
MOUNTED = r"^file (cluster\.db|pods/[^/]+/volumes/)"
BACK_WITHIN = 60.0  # s; a replica that crashed is started anew after 10 s at most


class Planting:
    """One platform with secrets of every sort; what was said on the way is kept as traces."""

    def __init__(self, here: Machine, canaries: Canaries, sink: Receiver) -> None:
        self.here = here
        self.canaries = canaries
        self.sink = sink
        self.heard: list[Trace] = []

    def say(self, *words: str, stdin: str | None = None) -> str:
        """A command whose output is searched later; the output."""
        trace = said(self.here, *words, stdin=stdin)
        self.heard.append(trace)
        return trace[1].decode()

    def keep(self, name: str, **values: str) -> None:
        """A Secret, its values by variables."""
        self.here.environment |= values
        self.say("secret", name, *(word for key in values for word in ("--env", key)), "-o", "json")
        for key in values:
            del self.here.environment[key]

    def keys_of_the_platform(self) -> None:
        """What it made for itself, each in the file that is its place."""
        state, plant = self.here.state, self.canaries.plant
        plant("token", (state / "token").read_text().strip(), home=r"^file (token|kubeconfig)$")
        plant("pool key", (state / "pool-key").read_text().strip(), home="^file pool-key$")
        for path in (state / "tls").iterdir():
            text = path.read_text()
            if "PRIVATE KEY" in text:
                plant(f"tls/{path.name}", max(text.splitlines(), key=len), home=f"^file tls/{path.name}$")

    def ask(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> int:
        """One request to the gateway, in a caller's own words; its status."""
        sent = {"Content-Type": "application/json", **headers}
        url = f"http://127.0.0.1:{self.here.port}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), sent)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content, status = answer.read(), int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                content, status = error.read(), error.code
        self.heard.append((f"answer {status} of {path.partition('?')[0]}", content))
        return status

    def traces(self) -> Iterator[Trace]:
        """All that is there now."""
        yield from self.heard
        yield from files(self.here.state)
        yield from command_lines(self.here.state)
        yield from environments(self.here.state)
        yield from objects(self.here.state)
        yield from shown(self.here, (GOOD, BROKEN_HUB, BROKEN_STORE, TRAINED))
        for headers, body in self.sink.sent:
            yield "an event that went out", json.dumps(headers).encode() + body


@pytest.mark.timeout(240)
def test_no_planted_secret_is_told(tmp_path: Path) -> None:
    canaries = Canaries()
    token = canaries.plant("token of the hub", home=MOUNTED)
    model = {"config.json": b"{}", "model.onnx": models.double()}
    with receiver(202) as sink, echo() as hostile, hub("127.0.0.1", token, model) as store, machine(tmp_path) as here:
        here.environment |= {
            "KNODEL_EVENTS_SINK": sink.url,
            "SOME_API_KEY": canaries.plant("variable of the shell"),
            "AWS_SECRET_ACCESS_KEY": canaries.plant("the shell's own credentials"),
        }
        here.up()
        planting = Planting(here, canaries, sink)
        planting.keys_of_the_platform()
        stores(planting, store, token, hostile)
        here.run("pool", "set", "warm", "--size", "1", "--like", GOOD)
        requests(planting)
        events(planting)
        failures(planting)

        strays = [stray for place, content in planting.traces() for stray in canaries.strays_in(place, content)]
        assert strays == []
        check_all_were_there(planting)
        assert open_to_others(here.state) == []
        check_no_core_dumps(here)

        here.run("down")
        after = [stray for place, content in files(here.state) for stray in canaries.strays_in(place, content)]
        assert after == []
        assert open_to_others(here.state) == []


def stores(planting: Planting, store: str, token: str, hostile: str) -> None:
    """Stores that take the credentials, and one that refuses them and says them back."""
    plant = planting.canaries.plant
    planting.keep("hub", HF_ENDPOINT=store, HF_TOKEN=token)
    refused = plant("token that a hub refuses", home=MOUNTED)
    planting.keep("refused", HF_ENDPOINT=hostile, HF_TOKEN=refused)
    key, session = plant("key of a store", home=MOUNTED), plant("session of a store", home=MOUNTED)
    own = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": key, "AWS_SESSION_TOKEN": session}
    planting.keep("s3", **own, AWS_ENDPOINT_URL=hostile, AWS_REGION="eu-1")
    planting.say("deploy", GOOD, "--uri", "hf://org/private", "--secret", "hub", "--min", "1")
    for name, uri, secret in ((BROKEN_HUB, "hf://org/private", "refused"), (BROKEN_STORE, "s3://bucket/m", "s3")):
        planting.say("deploy", name, "--uri", uri, "--secret", secret, "--wait", "--timeout", "5s")
    password = plant("password in an address")
    planting.say("deploy", "x", "--uri", f"https://me:{password}@127.0.0.1:1/model.onnx", "-o", "json")
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "w"}, "data": {"k": f"!{plant('no Base64')}"}}
    planting.say("deploy", "-f", "-", stdin=json.dumps(wrong))


def requests(planting: Planting) -> None:
    """Callers with keys in the query and in headers, of requests that go well and that do not."""
    canaries = planting.canaries
    query, header = canaries.plant("key in a query"), canaries.plant("key in a header")
    own = {"Authorization": f"Bearer {header}", "X-Api-Key": header, "Cookie": f"session={header}"}
    good = f"/v2/models/{GOOD}/infer"
    assert planting.ask(f"{good}?api_key={query}", own, infer_body(1)) == 200
    assert planting.ask(f"{good}?api_key={query}", own, {"inputs": "none"}) == 400
    assert planting.ask(f"/v2/models/nobody/infer?api_key={query}", own, infer_body(1)) == 404
    unready = planting.ask(f"/v2/models/{BROKEN_HUB}/infer?api_key={query}", own | {"Host": "x"}, infer_body(1))
    assert unready >= 400


def events(planting: Planting) -> None:
    """A sender with a key, one that signs with another one, and one with a key in headers and query."""
    here, canaries = planting.here, planting.canaries
    prefix = f"{here.folder.as_uri()}/"
    granted = ("--models", "*", "--storage-prefix", prefix, "--create-models", "-o", "json")
    made = json.loads(here.run("events", "allow", "/training", *granted))  # the one place where the key is shown
    key = next(one for one in made["items"] if one["kind"] == "Secret")["stringData"]["current"]
    canaries.plant("key of an EventSource", key.removeprefix("whsec_"), home=STORE_OF_OBJECTS)
    uri = Path(here.artifact("double")).as_uri()
    planting.say("events", "send", TRAINED, "--uri", uri, "--version", "1", "--id", "one", "--source", "/training")
    here.run("wait", TRAINED)
    planting.say("events", "trace", "one", "-o", "json")
    planting.say("events", "show", "one", "-o", "json")
    wrong = canaries.plant("key of a stranger")
    url = f"http://127.0.0.1:{here.control}/events?access_token={wrong}"
    headers = {"Content-Type": "application/cloudevents+json", "Authorization": f"Bearer {wrong}"}
    event = {"specversion": "1.0", "id": "1", "source": "/training", "type": "t", "data": {"model": wrong}}
    request = urllib.request.Request(url, json.dumps(event).encode(), headers)
    planting.heard.append(("refusal of the webhook", refusal_of(request)))


def failures(planting: Planting) -> None:
    """A replica that aborts, a platform that is killed, wrong tokens at its control API."""
    here = planting.here
    wrong = planting.canaries.plant("wrong token")
    url = f"http://127.0.0.1:{here.control}/apis"
    refused = refusal_of(urllib.request.Request(url, headers={"Authorization": f"Bearer {wrong}"}))
    planting.heard.append(("refusal of the control API", refused))
    for pid, role in processes_of(here.state):
        if role == "replica":
            os.kill(pid, signal.SIGABRT)
    here.kill()
    planting.say("list")
    here.up()
    for name in (GOOD, TRAINED):  # their replicas are started anew; until then a crash is what is told
        assert becomes(partial(is_answered, planting, name), BACK_WITHIN)


def is_answered(planting: Planting, model: str) -> bool:
    """Whether the model serves."""
    return planting.ask(f"/v2/models/{model}/infer", {}, infer_body(1)) == 200


def refusal_of(request: urllib.request.Request) -> bytes:
    """What is said to whom nobody knows."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as answer:
        assert answer.code in (401, 403)
        return answer.read()


def check_all_were_there(planting: Planting) -> None:
    """The search would find them: each that has a place stands in it."""
    state = planting.here.state
    holders = {place: planting.canaries.seen_in(content) for place, content in files(state)}
    found = {what for seen in holders.values() for what in seen}
    assert found == {what for what, home in planting.canaries.homes.items() if home}
    assert [place for place, seen in holders.items() if seen and is_open(state / place.removeprefix("file "))] == []


def check_no_core_dumps(here: Machine) -> None:
    """A core dump would hold all of it."""
    for pid, role in processes_of(here.state):
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        [core] = [line.split()[4] for line in limits if line.startswith("Max core file size")]
        assert core == "0", f"the {role} may dump core"
