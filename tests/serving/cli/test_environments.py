"""Test environments: the file, the verbs of `knodel env`, and which platform or cluster the other verbs act on."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from serving.client.environments import Environment, Environments, read_environments, write_environments
from serving.client.errors import ClientError
from tests.serving.cli.conftest import Config, Knodel, check
from tests.serving.cli.kube import CONTEXT, FakeApi

NONE = "no platform runs on"


@pytest.fixture(autouse=True)
def file(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the environments of this test; it does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KNODEL_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    return tmp_path / "config" / "knodel" / "environments.yaml"


@pytest.fixture
def lab(knodel: Knodel, tmp_path: Path) -> Path:
    """Return the state folder of the environment `lab`."""
    folder = tmp_path / "lab"
    assert knodel("env", "add", "lab", "--state", str(folder)).code == 0
    return folder


def test_an_environment_is_added_shown_used_and_removed(knodel: Knodel, lab: Path, file: Path) -> None:
    assert yaml.safe_load(file.read_text()) == {"environments": {"lab": {"state": str(lab)}}}
    assert f"{NONE} {lab}" in knodel("--env", "lab", "list").err
    assert f"{NONE} {lab}" not in knodel("list").err

    assert "is the default now" in knodel("env", "use", "lab").out
    assert knodel("env", "list", "-o", "json").value() == [{"name": "lab", "state": str(lab), "default": True}]
    assert "*" in knodel("env", "list").out.splitlines()[1]
    assert f"{NONE} {lab}" in knodel("list").err

    assert "no default environment now" in knodel("env", "remove", "lab").out
    assert yaml.safe_load(file.read_text()) == {"environments": {}}
    assert f"{NONE} {lab}" not in knodel("list").err


def test_an_environment_of_a_cluster_has_its_namespace(knodel: Knodel, api: FakeApi, config: Config) -> None:
    config(namespace="of-the-context")
    assert knodel("env", "add", "prod", "--kube-context", CONTEXT, "--namespace", "ml").code == 0
    assert knodel("env", "add", "plain", "--kube-context", CONTEXT).code == 0

    for arguments in (["--env", "prod", "list"], ["list", "--env", "plain"], ["--env", "prod", "list", "-n", "own"]):
        assert knodel(*arguments).code == 0

    namespaces = [seen.path.split("/namespaces/")[1].split("/")[0] for seen in api.seen]
    assert namespaces == ["ml", "of-the-context", "own"]


@pytest.mark.parametrize(
    ("variables", "options", "used"),
    [
        ({}, [], "default"),
        ({"KNODEL_ENV": "other"}, [], "other"),
        ({"KNODEL_ENV": "other", "KNODEL_STATE": "/nowhere/state"}, [], "other"),
        ({"KNODEL_ENV": "other"}, ["--env", "default"], "default"),
        ({"KNODEL_STATE": "/nowhere/state"}, [], "/nowhere/state"),
        ({"KNODEL_ENV": "other"}, ["--state", "/nowhere/else"], "/nowhere/else"),
    ],
)
def test_options_come_before_variables_and_those_before_the_default(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], options: list[str], used: str,
) -> None:  # fmt: skip
    for name in ("default", "other"):
        knodel("env", "add", name, "--state", str(tmp_path / name))
    knodel("env", "use", "default")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert f"{NONE} {tmp_path / used}:" in knodel("list", *options).err


def test_advice_has_the_environment_of_the_caller(knodel: Knodel, lab: Path) -> None:
    assert "`knodel up --detach --env lab`" in knodel("list", "--env", "lab").err


def test_a_default_cluster_does_not_turn_up_away_from_the_machine(
    knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path
) -> None:
    knodel("env", "add", "prod", "--kube-context", CONTEXT)
    knodel("env", "use", "prod")

    assert "nothing to stop" in knodel("down").out
    assert "environment prod is a cluster" in knodel("down", "--env", "prod").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["env", "add", "x"], ["either a cluster or a platform", "--kube-context NAME or --state DIR"]),
        (["env", "add", "x", "--state", "/s", "--kube-context", "c"], ["either a cluster or a platform"]),
        (["env", "add", "lab", "--state", "/s"], ["environment lab exists already", "`knodel env remove lab`"]),
        (["env", "add", "Lab", "--state", "/s"], ["'Lab' is not a name"]),
        (["env", "add", "x", "--state", "/s", "-n", "My_Team"], ["--namespace", "'My_Team'"]),
        (["env", "add", "x", "--kube-context", "gone"], ["has no context 'gone'", CONTEXT]),
        (["env", "remove", "x"], ["no environment 'x'", "known ones are lab", "`knodel env add x"]),
        (["env", "use", "x"], ["no environment 'x'"]),
        (["env", "use"], ["--none"]),
        (["list", "--env", "x"], ["no environment 'x'"]),
        (["list", "--env", ""], ["--env is empty"]),
        (["list", "--env", "lab", "--state", "/s"], ["--state and --env", "only one"]),
        (["list", "--env", "lab", "--kube-context", CONTEXT], ["--kube-context and --env", "only one"]),
        (["--env", "lab", "serve", "x.onnx"], ["omit --env"]),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    knodel: Knodel, config: Config, lab: Path, file: Path, arguments: list[str], words: list[str]
) -> None:
    before = file.read_bytes()

    check(knodel(*arguments), 2, words)

    assert file.read_bytes() == before


def test_a_difference_needs_both_platforms(knodel: Knodel, lab: Path) -> None:
    assert "start one with `knodel up --detach --env lab`" in knodel("diff", "--env", "lab", "--env", "lab").err
    assert "no environment 'x': known ones are lab" in knodel("diff", "--env", "x", "--env", "lab").err
    knodel("env", "remove", "lab")
    assert "no environment 'x': none has been added yet; `knodel env add x" in knodel("list", "--env", "x").err


def test_a_context_that_is_gone_names_the_environment(
    knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knodel("env", "add", "prod", "--kube-context", CONTEXT)
    (tmp_path / "other").write_text("contexts: []\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))

    check(
        knodel("list", "--env", "prod"),
        2,
        ["environment prod", f"has no context '{CONTEXT}'", "knodel env remove prod"],
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("environments: [", "did not find"),
        ("[]", "must be a mapping"),
        ("environment: {}", "environment is not a field: use default and environments"),
        ("environments: [a]", "environments must be a mapping by name"),
        ("environments: {a: {}}", "environments.a must have either kubeContext or state"),
        ("environments: {a: {state: /s, kubeContext: c}}", "must have either"),
        ("environments: {a: {state: 7}}", "must be a mapping of texts"),
        ("environments: {a: {kubecontext: c}}", "environments.a.kubecontext is not a field"),
        ("environments: {A_: {state: /s}}", "'A_' is not a name"),
        ("environments: {a: {state: /s, namespace: N}}", "'N' is not a name"),
        ("environments: {a: {state: /s}, a: {state: /t}}", "given twice"),
        ("default: b\nenvironments: {a: {state: /s}}", 'default is "b", which is not an environment: known ones are a'),
        ("environments: {}\n---\n{}", "2 documents"),
    ],
)
def test_a_file_with_a_fault_is_named_with_the_place(file: Path, content: str, words: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)

    with pytest.raises(ClientError) as caught:
        read_environments(file)

    assert str(file) in str(caught.value) and words in str(caught.value)


def test_the_file_is_replaced_in_one_step_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "environments.yaml"
    given = Environments({"a": Environment("a", "ctx", "", "ns"), "b": Environment("b", "", "/s")}, "b")

    write_environments(path, given)
    write_environments(path, given.removed("a"))

    assert read_environments(path) == given.removed("a")
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ClientError, match="cannot be written"):
        write_environments(tmp_path / "file" / "environments.yaml", Environments())


def test_the_status_names_the_environment(knodel: Knodel, api: FakeApi, config: Config) -> None:
    knodel("env", "add", "prod", "--kube-context", CONTEXT)

    assert knodel("status", "--env", "prod", "-o", "json").value()["environment"] == "prod"
    assert "Environment" not in knodel("status", "--kube-context", CONTEXT).out
