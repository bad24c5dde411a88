"""The example trains a real model, saves it in a format that the server loads, and sends an event."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import skops.io

from tests.eventing.scripted_receiver import receiver
from tests.eventing.webhook import SECRET

EXAMPLE = Path(__file__).parents[2] / "examples" / "training.py"


def test_the_example_trains_a_model_and_tells_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["training.py", str(tmp_path), "--version", "7"])
    monkeypatch.setenv("KNODEL_EVENTS_SECRET", SECRET)
    with receiver(202) as door:
        monkeypatch.setenv("KNODEL_EVENTS_URL", door.url)
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    [(_, body)] = door.sent
    data = json.loads(body)["data"]
    assert (data["model"], data["version"]) == ("iris", "7")
    assert data["metrics"]["accuracy"] > 0.9
    [artifact] = Path(urlsplit(data["storageUri"]).path).iterdir()
    model = skops.io.load(artifact)
    assert model.predict([[5.1, 3.5, 1.4, 0.2]]).tolist() == [0]


@pytest.mark.parametrize(
    ("status", "secret", "words"),
    [
        (0, SECRET, "no platform listens at"),
        (401, SECRET, "answered 401"),
        (403, SECRET, "answered 403"),
        (202, "", "KNODEL_EVENTS_SECRET is not set to a key"),
    ],
)
def test_an_event_that_is_not_taken_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, secret: str, words: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["training.py", str(tmp_path)])
    monkeypatch.delenv("KNODEL_EVENTS_WAIT", raising=False)
    monkeypatch.setenv("KNODEL_EVENTS_SECRET", secret)
    with receiver(status or 202) as door:
        monkeypatch.setenv("KNODEL_EVENTS_URL", door.url if status else "http://127.0.0.1:9/events")
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLE), run_name="__main__")

    said = str(ended.value.code)  # Python writes a text to stderr and exits with 1
    assert words in said
    assert len(said.splitlines()) == 1
