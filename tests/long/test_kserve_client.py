"""KServe's own clients, in an environment of their own, against `knodel serve`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from loadtests.bench.servers.subjects import KSERVE
from tests.long import apps
from tests.long.served import HOST, served
from tests.support import models

PROGRAM = Path(apps.__file__).with_name("kserve_client.py")
DOUBLED = [2.0, 5.0]


def test_kserves_clients_understand_each_answer(tmp_path: Path) -> None:
    python = KSERVE.python()
    with served(tmp_path / "log", str(models.write(tmp_path, "double"))) as server:
        command = [str(python), str(PROGRAM), server.url, f"{HOST}:{server.grpc_port}", "double"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    http, grpc = said["http"], said["grpc"]

    assert "missing input 'x'" in http.pop("refused")
    assert http == {
        "live": True, "ready": True, "model ready": True, "another model ready": False, "JSON": DOUBLED,
        "bytes": DOUBLED, "id": "seven", "model": "double",
        "v1": {"predictions": DOUBLED}, "v1 ready": True,
    }  # fmt: skip
    assert "unknown model 'other'" in grpc.pop("refused")
    assert grpc == {"live": True, "ready": True, "model ready": True, "typed": DOUBLED, "raw": DOUBLED}
