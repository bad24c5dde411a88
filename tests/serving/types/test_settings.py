"""Settings: defaults, then the file, then variables; every fault has its key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autoscaler.settings_file import FileSettings, read_settings
from clusters.net.strict_yaml import LoadError
from serving.types.settings.runtimes import Runtime
from serving.types.settings.settings import (
    Settings,
    SettingsError,
    describe_settings,
    load_settings,
    settings_from_text,
    settings_to_dict,
)


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings(environ={}) == Settings()


def test_variables_win_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    file = tmp_path / "knodel.yaml"
    file.write_text("gateway: {port: 1001, headerTimeout: 3s}\ncontrol: {port: 1002}\n")
    settings = load_settings(file, {"KNODEL_CONTROL_PORT": "1003", "KNODEL_GATEWAY_PORT": "1004"}, gateway_port=1005)
    assert settings.gateway.port == 1005
    assert settings.control.port == 1003
    assert settings.gateway.header_timeout == 3.0


@pytest.mark.parametrize(
    ("variables", "option", "ports"),
    [
        ({}, 8180, (8180, 8181, 8182)),
        ({"KNODEL_GATEWAY_PORT": "8081"}, None, (8081, 8082, 8083)),
        ({"KNODEL_CONTROL_PORT": "8182"}, 8180, (8180, 8182, 8181)),
        ({"KNODEL_CONTROL_TLS_PORT": "8181"}, 8180, (8180, 8182, 8181)),
        ({"KNODEL_CONTROL_PORT": "9000"}, None, (8080, 9000, 8443)),
        ({}, 65535, (65535, 65534, 65533)),
    ],
)
def test_a_port_of_the_gateway_is_enough_for_a_second_platform(
    variables: dict[str, str], option: int | None, ports: tuple[int, ...]
) -> None:
    settings = load_settings(environ=variables, gateway_port=option)

    assert (settings.gateway.port, settings.control.port, settings.control.tls_port) == ports


def test_what_is_printed_reads_back_the_same(tmp_path: Path) -> None:
    import yaml

    settings = load_settings(environ={"KNODEL_GATEWAY_HEADER_TIMEOUT": "90s", "KNODEL_SERVER_IMAGE": "a.b/c:1"})
    file = tmp_path / "printed.yaml"
    file.write_text(yaml.safe_dump(settings_to_dict(settings)))
    assert load_settings(file, {}) == settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gatewy: {}", "gatewy: unknown setting"),
        ("gateway: {prot: 1}", "gateway.prot: unknown setting"),
        ("gateway: {port: true}", "gateway.port: True is not a whole number"),
        ("gateway: {port: 70000}", "gateway.port: 70000 is out of bounds"),
        ("gateway: {port: 9000}\ncontrol: {port: 9000}", "control.port: 9000 is already gateway.port"),
        ("gateway: {headerTimeout: 10}", "gateway.headerTimeout: 10 is not a duration"),
        ("gateway: {headerTimeout: x}", "gateway.headerTimeout: 'x' must be a duration"),
        ("gateway: {address: ''}", "gateway.address: '' is not a text"),
        ("gateway: 1", "gateway: must be a mapping"),
        ("[]", "a mapping"),
        ("rollout: {prometheusUrl: prometheus}", "rollout.prometheusUrl: 'prometheus' is not a URL"),
        ("rollout: {prometheusUrl: 'http://u:p@h'}", "rollout.prometheusUrl: 'http://u:p@h' is not a URL"),
        ("rollout: {prometheusUrl: 'file:///etc'}", "rollout.prometheusUrl: 'file:///etc' is not a URL"),
        ("dashboard: {prometheusUrl: prometheus:9090}", "dashboard.prometheusUrl: 'prometheus:9090' is not a URL"),
        ("runtimes: [sklearn]", "runtimes: must be a mapping"),
        ("runtimes: {Big: {image: a}}", "runtimes.Big: the name must be"),
        ("runtimes: {big: a}", "runtimes.big: must be a mapping with one key"),
        ("runtimes: {big: {image: a, args: []}}", "runtimes.big: must be a mapping with one key"),
        ("runtimes: {big: {image: 7}}", "runtimes.big.image: 7 is not a text"),
        ("a: 1\n---\nb: 1", "contains 2 documents"),
    ],
)
def test_a_wrong_file_is_refused_by_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "knodel.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})
    assert words in str(caught.value)


@pytest.mark.parametrize("url", ["", "http://[::1]:9090", "https://mimir.example/prometheus", "http://p.m.svc:9090/"])
def test_a_prometheus_may_stand_anywhere_or_nowhere(url: str) -> None:
    assert load_settings(environ={"KNODEL_ROLLOUT_PROMETHEUS_URL": url}).rollout.prometheus_url == url


def test_an_unknown_variable_is_refused_and_others_are_left_alone() -> None:
    with pytest.raises(SettingsError, match="KNODEL_GATEWAY_PROT: unknown setting"):
        load_settings(environ={"KNODEL_GATEWAY_PROT": "1"})
    others = {"KNODEL_STATE": "/x", "HOME": "/y", "KNODEL_EVENTS_URL": "http://e", "KNODEL_EVENTS_SECRET": "whsec_"}
    assert load_settings(environ=others) == Settings()


def test_a_variable_that_is_no_number_is_refused() -> None:
    with pytest.raises(SettingsError, match="KNODEL_GATEWAY_PORT is not a whole number"):
        load_settings(environ={"KNODEL_GATEWAY_PORT": "http"})


def test_an_absent_file_is_one_line() -> None:
    with pytest.raises(LoadError, match="cannot read the settings"):
        load_settings(Path("/nowhere/knodel.yaml"), {})


def test_an_empty_file_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "knodel.yaml"
    file.write_text("# nothing yet\n")
    assert load_settings(file, {}) == Settings()


def test_every_setting_has_a_unit_and_a_reason() -> None:
    described = describe_settings()
    assert len(described) >= 10
    assert all(one["unit"] and one["for"] for one in described)
    (port,) = (one for one in described if one["key"] == "gateway.port")
    assert (port["variable"], port["default"]) == ("KNODEL_GATEWAY_PORT", 8080)


def test_the_text_of_a_configmap_is_read_as_a_file_is_and_variables_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KNODEL_GATEWAY_PORT", "9")
    monkeypatch.setenv("KNODEL_EVENTING_SERVICE_HOST", "198.18.128.9")  # as the kubelet sets for every Service
    text = "control: {port: 9000}\nserver: {allowHosts: ''}\n"

    settings = settings_from_text(text, "ConfigMap knodel-config")

    assert settings.control.port == 9000
    assert (settings.server.allow_hosts, settings.gateway.port) == ("", 8080)
    with pytest.raises(SettingsError, match="gatewy: unknown setting in ConfigMap knodel-config"):
        settings_from_text("gatewy: {}", "ConfigMap knodel-config")


def test_runtimes_have_names_of_the_administrators_and_read_back_the_same() -> None:
    settings = settings_from_text("runtimes: {tensorflow: {image: r/tf:1}, big: {image: r/big:1}}", "the file")

    assert settings.runtimes == (Runtime("big", "r/big:1"), Runtime("tensorflow", "r/tf:1"))
    assert settings_from_text(yaml.safe_dump(settings_to_dict(settings)), "the file") == settings
    assert Settings().runtimes == ()


def test_the_autoscaler_reads_the_settings_that_the_platform_knows() -> None:
    text = yaml.safe_dump(settings_to_dict(Settings()))

    read = read_settings(text, "knodel-config")

    assert read == FileSettings()


def test_the_limit_of_kept_files_is_no_unknown_setting() -> None:
    assert load_settings(environ={"KNODEL_KEPT_LIMIT": "5"}) == load_settings(environ={})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("server: {otlpEndpoint: collector}", "server.otlpEndpoint"),
        ("server: {otlpSignals: 'traces,logs'}", "server.otlpSignals: 'logs' is unknown; known: traces, metrics"),
        ("server: {tracePercent: 101}", "server.tracePercent: 101 is out of bounds"),
    ],
)
def test_a_collector_is_checked(text: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        settings_from_text(text, "file")
