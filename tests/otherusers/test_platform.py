"""A platform that one user runs, attacked by another user of the same machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest

from clusters.base.identity import identify
from clusters.gateway.token import ACTIVATOR as ACTIVATOR_PROCESS
from clusters.gateway.token import HEADER, GatewayTokens
from tests.otherusers.platform import PROC, Platform, platform_of
from tests.otherusers.users import HOST, NEIGHBOUR, OPTIONS, OWNER, Attacker, command_as
from tests.scenarios.world import infer_body
from tests.testbed.waiting import becomes

MODEL = "double"
PATIENCE = 30.0  # s
SOON = 0.01  # s between two looks: another user takes a free port at once
ROLES = ("server", "gateway", "activator")
ACTIVATOR = "clusters.embedded.activator"
RECORDS = ("gateway/envoy.pid.json", "activator/activator.pid.json", "pods/*/run.json", "zygotes/*/zygote.json")


@pytest.fixture(scope="module")
def platform(attacker: Attacker) -> Iterator[Platform]:
    """A platform of the user OWNER that serves one model."""
    with platform_of(OWNER) as made:
        done = made.up()
        assert done.returncode == 0, done.stderr
        made.deploy(MODEL)
        yield made


@pytest.fixture
def others_folder(platform: Platform) -> Iterator[Path]:
    """The home folder of the user NEIGHBOUR."""
    with platform_of(NEIGHBOUR) as other:
        yield other.folder


def test_nobody_else_can_listen_on_any_port_of_the_platform(platform: Platform, attacker: Attacker) -> None:
    ports = platform.listening()

    assert {platform.gateway, platform.control, platform.tls} < ports
    assert len(ports) == 6  # and the activator's, and two of the model server
    assert [port for port in ports if attacker.can_take(port)] == []


def test_nobody_else_gets_requests_to_localhost(platform: Platform, attacker: Attacker) -> None:
    """The name has two addresses, and clients try the other one first."""
    for port in (platform.gateway, platform.control, platform.tls):
        for options in OPTIONS:
            assert not attacker.can_listen(port, "::1", options), port


def test_nobody_else_can_read_a_file_or_reach_a_socket_of_the_state_folder(
    platform: Platform, attacker: Attacker
) -> None:
    paths = [platform.state, *platform.state.rglob("*")]
    kinds = {"read": Path.is_file, "list": Path.is_dir, "connect": Path.is_socket}
    tries = [(action, path) for path in paths for action, fits in kinds.items() if fits(path)]

    assert {action for action, _ in tries} == set(kinds)
    assert [one for one in tries if not attacker.is_refused(one[0], path=str(one[1]))] == []
    assert attacker.is_refused("write", path=str(platform.state / "token"))
    assert attacker.is_refused("link", path=str(platform.state / "link"), to="/")


def test_nobody_else_can_look_into_a_process(platform: Platform, attacker: Attacker) -> None:
    secrets = [(platform.state / name).read_text().strip() for name in ("token", "pool-key", "gateway-key")]

    for pid, command in platform.processes().items():
        for name in ("environ", "mem", "maps"):
            assert attacker.is_refused("read", path=f"/proc/{pid}/{name}"), command
        assert attacker.is_refused("list", path=f"/proc/{pid}/fd"), command
        assert attacker.is_refused("list", path=f"/proc/{pid}/cwd"), command
        assert attacker.is_refused("signal", pid=pid), command
        assert not any(secret in command for secret in secrets)


def test_requests_that_others_send_past_the_gateway_count_for_no_judge(platform: Platform, attacker: Attacker) -> None:
    assert counts_the_splits_requests_alone(attacker, platform)


def test_the_platform_leaves_nothing_that_others_can_read_outside_of_its_folder(platform: Platform) -> None:
    shared = [Path(folder) for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    theirs = [path for folder in shared if folder.is_dir() for path in folder.iterdir() if uid_of(path) == OWNER]
    own = {str(inode) for pid in platform.processes() for inode in sockets_of(pid)}
    abstract = [
        line for line in (PROC / "net/unix").read_text().splitlines() if " @" in line and line.split()[6] in own
    ]

    assert theirs == [platform.folder]
    assert abstract == []  # every user may connect to such a socket


@pytest.mark.parametrize("role", ROLES)
def test_nobody_else_gets_the_port_of_a_process_that_is_killed(
    platform: Platform, attacker: Attacker, role: str
) -> None:
    assert not wins_the_port(attacker, platform, role)


@dataclass(frozen=True)
class Takeover:
    """What came of the commands of the OWNER while the ATTACKER had the control ports of a killed platform.

    `callers`: connections that the attacker got.
    """

    refused: list[subprocess.CompletedProcess[str]]
    callers: int
    tokens: tuple[str, str]
    victims: tuple[list[tuple[int, int]], list[tuple[int, int]]]


@pytest.fixture(scope="module")
def takeover(platform: Platform, attacker: Attacker) -> Takeover:
    """A platform that was killed, and the next one, which adopted what was left running."""
    wait_until_answered(platform)
    token, victims = (platform.state / "token").read_text(), [victim(platform, role) for role in ROLES]
    os.kill(platform.facts()["pid"], signal.SIGKILL)
    for port in (platform.control, platform.tls):
        wait_until_free(attacker, port)
    refused = [platform.run("list"), platform.run("delete", MODEL), platform.up()]
    callers = attacker.do("callers")
    attacker.do("unbind")
    again = platform.up()
    assert again.returncode == 0, again.stderr
    tokens = token, (platform.state / "token").read_text()
    return Takeover(refused, callers, tokens, (victims, [victim(platform, role) for role in ROLES]))


def test_a_stale_record_sends_nothing_to_who_listens_on_the_control_port(
    platform: Platform, takeover: Takeover
) -> None:
    for done in takeover.refused:
        assert done.returncode != 0
        assert "Traceback" not in done.stderr and "unexpected" not in done.stderr, done.stderr
    assert takeover.callers == 0
    assert "`control.port`" in takeover.refused[-1].stderr
    assert takeover.tokens[0] != takeover.tokens[1]
    wait_until_answered(platform)


def test_nor_the_port_of_one_that_a_new_platform_adopted(
    platform: Platform, attacker: Attacker, takeover: Takeover
) -> None:
    before, after = takeover.victims
    assert before == after
    assert counts_the_splits_requests_alone(attacker, platform)

    assert [role for role in ROLES if wins_the_port(attacker, platform, role)] == []


def test_a_link_to_a_state_folder_opens_nothing(platform: Platform, others_folder: Path) -> None:
    before = platform.processes()
    link = others_folder / "link"
    link.symlink_to(platform.state)
    other = Platform(NEIGHBOUR, others_folder, link)

    for done in (other.up(), other.run("list"), other.run("down", "--force"), other.run("doctor")):
        assert done.returncode != 0 and str(link) in done.stderr + done.stdout, done.stderr
        assert "unexpected" not in done.stderr

    assert platform.processes() == before


def test_a_copy_of_a_state_folder_that_another_user_starts_harms_nothing(
    platform: Platform, others_folder: Path
) -> None:
    wait_until_answered(platform)
    before = platform.processes()
    subprocess.run(["cp", "-r", str(platform.state), str(others_folder / "state")], check=False, capture_output=True)
    for path in [others_folder / "state", *(others_folder / "state").rglob("*")]:
        os.chown(path, NEIGHBOUR, NEIGHBOUR)
    other = Platform(NEIGHBOUR, others_folder)

    started = other.up()
    ended = other.run("down", "--force")

    assert started.returncode == 0, started.stderr
    assert ended.returncode == 0, ended.stderr
    assert platform.processes() == before
    assert platform.predict(MODEL) == [2.0]


def test_a_state_folder_of_another_user_is_refused(platform: Platform, others_folder: Path) -> None:
    planted = others_folder / "planted"
    planted.mkdir()
    os.chown(planted, NEIGHBOUR, NEIGHBOUR)
    planted.chmod(0o777)

    done = Platform(OWNER, platform.folder, planted).up()

    assert done.returncode == 1 and f"belongs to user {NEIGHBOUR}" in done.stderr
    assert [*planted.iterdir()] == []


def test_records_of_a_former_boot_name_no_process(platform: Platform) -> None:
    wait_until_answered(platform)
    with subprocess.Popen(command_as(OWNER, "sleep", "300"), start_new_session=True) as bystander:
        for pid in [platform.facts()["pid"], *platform.processes()]:
            if pid != bystander.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        identity = identify(bystander.pid)
        assert identity is not None
        records = [path for name in RECORDS for path in platform.state.glob(name)]
        for path in records:
            record = json.loads(path.read_text())
            path.write_text(json.dumps(record | identity.to_json() | {"boot": "a former boot"}))

        again = platform.up()

        assert len(records) == len(RECORDS), records
        assert again.returncode == 0, again.stderr
        wait_until_answered(platform)
        assert bystander.poll() is None
        bystander.kill()


def counts_the_splits_requests_alone(attacker: Attacker, platform: Platform) -> bool:
    """Whether requests of another user count for no judge, and those of the gateway do, through the activator too."""
    wait_until_answered(platform)
    run = json.loads(next(platform.state.glob("pods/*/run.json")).read_text())
    tokens = GatewayTokens((platform.state / "gateway-key").read_bytes())
    revision = {"Knative-Serving-Namespace": "default", "Knative-Serving-Revision": f"{MODEL}-00001"}
    request = {"path": f"/v2/models/{MODEL}/infer", "body": json.dumps(infer_body(1.0))}
    split = {"Host": f"{MODEL}.default.localhost", "Knative-Serving-Default-Route": "true", **revision}

    def counted(port: int, **headers: str) -> int:
        before = split_requests(run["ports"]["9095"])
        assert attacker.do("post", port=port, headers={**split, **headers}, **request) == 200
        return split_requests(run["ports"]["9095"]) - before

    ports = run["ports"]["8080"], activator_port(platform)
    forged: list[dict[str, str]] = [{}, {HEADER: ""}, {HEADER: "0" * 32}, {HEADER: tokens.of("another Pod")}]
    of_others = [counted(port, **headers) for port in ports for headers in forged]
    of_gateway = [counted(platform.gateway), counted(ports[1], **{HEADER: tokens.of(ACTIVATOR_PROCESS)})]
    return (of_others, of_gateway) == ([0] * 8, [1, 1])


def split_requests(management_port: int) -> int:
    """Return how many requests of the split a replica has answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{management_port}/stats/answers", timeout=PATIENCE) as page:
        return int(json.load(page)["split"]["requests"])


def wins_the_port(attacker: Attacker, platform: Platform, role: str) -> bool:
    """Whether another user gets the port of a process when that process is killed."""
    wait_until_answered(platform)
    pid, port = victim(platform, role)
    attacker.do("race", port=port)
    os.kill(pid, signal.SIGKILL)
    assert becomes(lambda: is_restarted(platform, role, pid, port), PATIENCE, SOON), f"the {role} is not restarted"
    won: bool = attacker.do("won")
    return won


def is_restarted(platform: Platform, role: str, killed: int, port: int) -> bool:
    """Whether another process than the killed one has the role, and somebody of the user listens on the port."""
    return victim(platform, role)[0] not in (0, killed) and port in platform.listening()


def victim(platform: Platform, role: str) -> tuple[int, int]:
    """The process of a role (0 while none runs), and a port on which it listens."""
    if role != "server":
        word, port = ("envoy.json", platform.gateway) if role == "gateway" else (ACTIVATOR, activator_port(platform))
        return next((pid for pid, command in platform.processes().items() if word in command), 0), port
    for path in platform.state.glob("pods/*/run.json"):
        with contextlib.suppress(FileNotFoundError):  # it was removed since
            run = json.loads(path.read_text())
            return run["pid"], run["ports"]["8080"]
    return 0, 0  # it is being restarted


def activator_port(platform: Platform) -> int:
    """The port of the activator."""
    return int(json.loads((platform.state / "activator/activator.address.json").read_text())["port"])


def wait_until_answered(platform: Platform) -> None:
    """Return once the model answers at the gateway."""
    assert becomes(lambda: answer_status(platform) == HTTPStatus.OK, PATIENCE, SOON), answer_status(platform)


def answer_status(platform: Platform) -> int:
    """Return the status of an inference, 0 without an answer."""
    connection = http.client.HTTPConnection(HOST, platform.gateway, timeout=PATIENCE)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        headers = {"Host": f"{MODEL}.default.localhost", "Content-Type": "application/json"}
        connection.request("POST", f"/v2/models/{MODEL}/infer", json.dumps(infer_body(1.0)), headers)
        return connection.getresponse().status
    return 0


def wait_until_free(attacker: Attacker, port: int) -> None:
    """Let the attacker listen on a port as soon as nobody does."""
    assert becomes(lambda: attacker.takes(port), PATIENCE, SOON), f"port {port} is never free"


def uid_of(path: Path) -> int:
    """The owner of a file; -1 when it is gone."""
    try:
        return path.lstat().st_uid
    except OSError:
        return -1


def sockets_of(pid: int) -> list[str]:
    """The inodes of the sockets of a process."""
    links = [str(path.readlink()) for path in (PROC / str(pid) / "fd").iterdir()]
    return [link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")]
