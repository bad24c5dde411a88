"""Test the verbs that need no platform, `render` and `config`, and the content of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.serving.cli.conftest import Knodel

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
Write = Callable[[str], str]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize("format", ["table", "json", "yaml"])
def test_every_example_renders_to_a_list_of_knative_objects(knodel: Knodel, path: Path, format: str) -> None:
    done = knodel("render", "-f", str(path), "-o", format)

    assert done.code == 0, done.err
    rendered = done.value()
    assert rendered["kind"] == "List"
    assert {item["apiVersion"] for item in rendered["items"]} <= {"serving.knative.dev/v1"}


def test_render_reads_stdin_and_is_the_same_from_a_file(knodel: Knodel) -> None:
    text = EXAMPLES[0].read_text()

    assert knodel("render", "-f", "-", stdin=text).out == knodel("render", "-f", str(EXAMPLES[0])).out


def test_render_puts_models_into_the_namespace_that_is_named(knodel: Knodel) -> None:
    done = knodel("render", "-f", "-", "-n", "team", stdin=EXAMPLES[0].read_text())

    assert {item["metadata"]["namespace"] for item in done.value()["items"]} == {"team"}


MODEL = "apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {name: m}\nspec: {storageUri: file:///m, %s}\n"


@pytest.mark.bad_input("command-yaml")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "contains no object"),
        ("a: [", "at the end"),
        ("kind: Model", "apiVersion is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}", "Pod (v1) is not accepted here"),
        (MODEL % "minReplicas: -1", "spec.minReplicas"),
        (MODEL % "minReplicas: 1001", "spec.minReplicas"),
        (MODEL % "maxReplicas: 1001", "spec.maxReplicas"),
        (MODEL % "minReplicas: 3, maxReplicas: 2", "spec.minReplicas"),
        (MODEL % "replicas: 3", "spec.replicas"),
        (MODEL % "canaryTrafficPercent: 101", "spec.canaryTrafficPercent"),
        (MODEL % "traffic: [{latest: true, percent: 90}]", "spec.traffic"),
        (MODEL.replace("name: m", "name: Not_A_Name") % "version: '1'", "metadata.name"),
        (MODEL % "version: !!python/object:os.system x", "line 4"),
    ],
)
def test_a_bad_file_is_refused_by_its_field(knodel: Knodel, text: str, what: str) -> None:
    done = knodel("render", "-f", "-", stdin=text)

    assert done.code == 2
    assert what in done.err
    assert len(done.err.splitlines()) == 1


def test_all_faults_of_a_model_are_reported_at_once(knodel: Knodel) -> None:
    err = knodel("render", "-f", "-", stdin=MODEL % "minReplicas: -1, maxReplicas: 5000, colour: red").err

    assert all(field in err for field in ("spec.minReplicas", "spec.maxReplicas", "spec.colour"))


@pytest.mark.bad_input("command-files")
def test_a_file_that_is_no_text_is_refused(knodel: Knodel, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x80\x81\xff")

    done = knodel("render", "-f", str(path))

    assert done.code == 2
    assert "UTF-8" in done.err


def test_config_prints_defaults_then_file_then_variables(
    knodel: Knodel, document: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNODEL_CONTROL_PORT", "9002")
    path = document("gateway: {port: 9001}\ncontrol: {port: 9003}\n")

    done = knodel("config", "--config", path)

    settings = yaml.safe_load(done.out)
    assert (settings["gateway"]["port"], settings["control"]["port"]) == (9001, 9002)
    assert settings["control"]["tlsPort"] == 9003  # the next to the ports that are set
    assert json.loads(knodel("config", "--config", path, "-o", "json").out) == settings


def test_config_lists_every_setting_with_what_it_is_for(knodel: Knodel) -> None:
    done = knodel("config", "--describe")

    (line,) = (line for line in done.out.splitlines() if line.startswith("gateway.port "))
    assert line.split()[:3] == ["gateway.port", "KNODEL_GATEWAY_PORT", "8080"]
    described = json.loads(knodel("config", "--describe", "-o", "json").out)
    assert {"key", "variable", "default", "unit", "for"} == described[0].keys()


@pytest.mark.bad_input("command-settings")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gatway: {port: 1}", "gatway: unknown setting"),
        ("gateway: {port: high}", "gateway.port"),
        ("gateway: {port: 70000}", "gateway.port"),
        ("gateway: {port: 9000}\ncontrol: {port: 9000}", "9000"),
    ],
)
def test_bad_settings_are_refused_by_their_key(knodel: Knodel, document: Write, text: str, what: str) -> None:
    done = knodel("config", "--config", document(text))

    assert done.code == 2
    assert what in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.bad_input("command-settings")
def test_an_unknown_variable_is_named(knodel: Knodel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNODEL_GATEWAY_PROT", "1")

    assert "KNODEL_GATEWAY_PROT: unknown setting" in knodel("config").err


def test_a_settings_file_that_is_absent_is_named(knodel: Knodel) -> None:
    done = knodel("config", "--config", "/nonexistent/settings.yaml")

    assert done.code == 2
    assert "/nonexistent/settings.yaml" in done.err
