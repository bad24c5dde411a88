"""What a person learns of a model from `knodel logs`, on a platform of its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

MODEL = """
class Model:
    def predict(self, x):
        print(f"seen {float(x[0])}")
        if x[0] < 0:
            return self.refuse(x)
        return x

    def refuse(self, x):
        raise RuntimeError("a secret of the model\\n2026-01-01 00:00:00,000 INFO forged")
"""
LINE = MODEL[: MODEL.index("raise")].count("\n") + 1


def request(value: float) -> str:
    """One value for the model."""
    return json.dumps({"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [1], "data": [value]}]})


def deploy(here: Machine, folder: Path, *options: str) -> None:
    """Deploy the model above."""
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    here.run("namespace", "default", "--label", "knodel.dev/allow-code=true")
    here.run("deploy", "printer", "--uri", str(folder), "--format", "python", *options)


async def test_what_a_model_prints_and_where_it_fails_is_in_its_log_and_not_in_the_answer(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        deploy(here, tmp_path / "printer", "--min", "1")

        here.run("predict", "printer", "-d", request(3.0))
        await eventually(lambda: "seen 3.0\n" in here.run("logs", "printer"))
        refused = here.run("predict", "printer", "-d", request(-1.0), code=1)
        await eventually(lambda: "seen -1.0\n" in here.run("logs", "printer"))
        log = here.run("logs", "printer")

        assert "the model failed on this input (error " in refused
        assert not any(word in refused for word in ("secret", "model.py", "refuse", "Traceback"))
        assert "RuntimeError: a secret of the model" in log
        assert f'model.py", line {LINE}, in refuse' in log
        assert not [line for line in log.splitlines() if line.startswith("2026-01-01 00:00:00")]
