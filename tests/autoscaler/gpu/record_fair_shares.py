"""Record fair shares of KAI's `fairshare-simulator` for random cases, for `test_fair_shares`.

    go install github.com/NVIDIA/KAI-scheduler/cmd/fairshare-simulator@v0.12.0     # minutes
    fairshare-simulator -port 8080 &
    python -m tests.autoscaler.gpu.record_fair_shares http://127.0.0.1:8080

A case has one resource, queues of one priority with quota (`deserved`), weight and request, and the shares in the same
order.
"""

from __future__ import annotations

import json
import random
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

RECORD: Final = Path(__file__).with_name("fair_shares.json")
CASES: Final = 400
SEED: Final = 24
WEIGHTS: Final = (1, 1, 1, 2, 3, 5)


def make_case(some: random.Random) -> dict[str, Any]:
    """Return a random case whose quotas together are at most the total."""
    total = some.randint(1, 64)
    queues, left = [], total
    for _ in range(some.randint(2, 8)):
        deserved = some.choice([0, some.randint(0, left)])
        left -= deserved
        request = some.choice([some.randint(0, total), some.randint(0, 8), 2 * total])
        queues.append({"deserved": deserved, "weight": some.choice(WEIGHTS), "request": request})
    return {"total": total, "queues": queues}


def simulate(url: str, case: dict[str, Any]) -> list[float]:
    """Return the fair shares that the simulator at this address finds."""
    queues = [
        {
            "uid": f"q{number}", "name": f"q{number}", "creationTimestamp": "2026-01-01T00:00:00Z", "priority": 0,
            "resourceShare": {
                "gpu": {
                    "deserved": queue["deserved"], "request": queue["request"], "overQuotaWeight": queue["weight"],
                }
            },
        }
        for number, queue in enumerate(case["queues"])
    ]  # fmt: skip
    body = json.dumps({"totalResource": {"GPU": case["total"], "CPU": 0, "Memory": 0}, "queues": queues}).encode()
    request = urllib.request.Request(f"{url}/simulate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        found = json.load(response)
    return [found[f"q{number}"]["gpu"] for number in range(len(queues))]


def main() -> None:
    """Write the record, one case a line."""
    [url] = sys.argv[1:]
    some = random.Random(SEED)
    cases = [make_case(some) for _ in range(CASES)]
    lines = [json.dumps({**case, "shares": simulate(url, case)}, separators=(",", ":")) for case in cases]
    RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
