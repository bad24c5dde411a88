"""The autoscaler's section of the settings file."""

from __future__ import annotations

import pytest

from autoscaler.settings_file import BadSettings, FileSettings, read_settings


@pytest.mark.parametrize("text", ["", "{}", "gateway: {port: 80}", "autoscaler:", "autoscaler: {}"])
def test_a_file_that_says_nothing_of_the_autoscaler_leaves_its_defaults(text: str) -> None:
    assert read_settings(text, "f") == FileSettings()
    assert FileSettings().settings.zero.grace == 10.0


def test_what_an_operator_may_want_otherwise() -> None:
    text = """
    gateway: {address: 1.2.3.4}
    autoscaler:
      scaleToZeroGrace: 1m
      activatorPollInterval: 500ms
      activatorNamespace: knative
      clusterDomain: corp.example
    """
    read = read_settings(text, "f")
    assert (read.settings.zero.grace, read.activator_namespace, read.cluster_domain) == (
        60.0,
        "knative",
        "corp.example",
    )
    assert read.settings.activators.poll == read.settings.activators.idle_poll == 0.5, "calm is not faster than that"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("autoscaler: {scaleToZeroGrace: soon}", "autoscaler.scaleToZeroGrace: must be a duration"),
        ("autoscaler: {scaleToZeroGrace: [1]}", "autoscaler.scaleToZeroGrace: must be a duration"),
        ("autoscaler: {activatorNamespace: A B}", "autoscaler.activatorNamespace: must be a name"),
        ("autoscaler: {clusterDomain: 'x/y'}", "autoscaler.clusterDomain: must be a name"),
        ("autoscaler: {scaleToOne: true}", "autoscaler.scaleToOne: unknown setting in f; known: scaleToZeroGrace"),
        ("autoscaler: 5", "autoscaler: expected settings, such as"),
        ("- 1", "f: expected sections"),
        ("a: [", "f is not YAML"),
        ("a: 1\na: 2", "f is not YAML: line 2, column 1: the key 'a' is given twice"),
        ("a: 1\n---\nb: 2", "f is not YAML: it has 2 documents"),
    ],
)
def test_what_cannot_be_followed_is_named(text: str, said: str) -> None:
    with pytest.raises(BadSettings) as error:
        read_settings(text, "f")
    assert str(error.value).startswith(said)


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"^autoscaler\.activatorPollInterval: .* must be from 0.005"):
        read_settings("autoscaler: {activatorPollInterval: 1ms}", "f")
