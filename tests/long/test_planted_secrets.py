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
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from clusters.base.objects import KINDS
from loadtests.bench.processes import processes_of
from serving.client.client import Client
from serving.client.state import LocalPlatform as State
from tests.eventing.scripted_receiver import receiver
from tests.platform.machine import Machine, machine
from tests.security.canaries import Canaries
from tests.security.echo import echo
from tests.security.planting import GOOD, MODELS, TRAINED, WITHIN, Planting, Platform
from tests.security.traces import (
    Command,
    Trace,
    command_lines,
    environments,
    files,
    is_open,
    objects,
    open_to_others,
    shown,
)
from tests.support import models
from tests.support.hub import hub
from tests.testbed.waiting import becomes

STORE_OF_OBJECTS = r"^file cluster\.db"
MOUNTED = r"^file (cluster\.db|pods/[^/]+/volumes/)"


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
        planting = Planting(platform_of(here), canaries)
        keys_of_the_platform(here, canaries)
        planting.stores(store, token, hostile)
        here.run("pool", "set", "warm", "--size", "1", "--like", GOOD)
        planting.requests()
        planting.events(Path(here.artifact("double")).as_uri())
        failures(here, planting)

        sent = [("an event that went out", json.dumps(headers).encode() + body) for headers, body in sink.sent]
        traces = (*planting.heard, *sent, *left(here))
        strays = [stray for place, content in traces for stray in canaries.strays_in(place, content)]
        assert strays == [], "\n".join(strays)
        check_all_were_there(here, planting)
        assert open_to_others(here.state) == []
        check_no_core_dumps(here)

        here.run("down")
        after = [stray for place, content in files(here.state) for stray in canaries.strays_in(place, content)]
        assert after == []
        assert open_to_others(here.state) == []


def platform_of(here: Machine) -> Platform:
    """Its gateway knows a Model by the path."""
    return Platform(
        Command(here.environment),
        gateway=f"http://127.0.0.1:{here.port}",
        webhook=f"http://127.0.0.1:{here.control}/events",
        host=lambda _: {},
        mounted=MOUNTED,
        stored=STORE_OF_OBJECTS,
    )


def keys_of_the_platform(here: Machine, canaries: Canaries) -> None:
    """What it made for itself, each in the file that is its place."""
    state, plant = here.state, canaries.plant
    plant("token of the first start", (state / "token").read_text().strip())
    plant("pool key", (state / "pool-key").read_text().strip(), home="^file pool-key$")
    for path in (state / "tls").iterdir():
        text = path.read_text()
        if "PRIVATE KEY" in text:
            plant(f"tls/{path.name}", max(text.splitlines(), key=len), home=f"^file tls/{path.name}$")


def left(here: Machine) -> Iterator[Trace]:
    """All that is there now."""
    yield from files(here.state)
    yield from command_lines(here.state)
    yield from environments(here.state)
    yield from objects(Client(State.find(here.state)), KINDS)
    yield from shown(Command(here.environment), MODELS)


def failures(here: Machine, planting: Planting) -> None:
    """A replica that aborts, a platform that is killed, wrong tokens at its control API."""
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
    planting.canaries.plant("token", (here.state / "token").read_text().strip(), home=r"^file (token|kubeconfig)$")
    for name in (GOOD, TRAINED):  # their replicas are started anew; until then a crash is what is told
        assert becomes(partial(planting.is_answered, name), WITHIN)


def refusal_of(request: urllib.request.Request) -> bytes:
    """What is said to whom nobody knows."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as answer:
        assert answer.code in (401, 403)
        return answer.read()


def check_all_were_there(here: Machine, planting: Planting) -> None:
    """The search would find them: each that has a place stands in it."""
    canaries = planting.canaries
    holders = {place: canaries.seen_in(content) for place, content in files(here.state)}
    found = {what for seen in holders.values() for what in seen}
    found |= {what for _, content in planting.heard for what in canaries.seen_in(content)}
    assert found == {what for what, home in canaries.homes.items() if home}
    assert [
        place for place, seen in holders.items() if seen and is_open(here.state / place.removeprefix("file "))
    ] == []


def check_no_core_dumps(here: Machine) -> None:
    """A core dump would hold all of it."""
    for pid, role in processes_of(here.state):
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        [core] = [line.split()[4] for line in limits if line.startswith("Max core file size")]
        assert core == "0", f"the {role} may dump core"
