"""The locust file: one user sends every request of a plan when it is due and records each response.

Locust's usual users wait for a response before they send the next request. They would send fewer requests to a slow
server, and would not measure its worst moments. Here the latency of a response counts from the due time of its request.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import gevent
from gevent.pool import Pool
from locust import FastHttpUser, task
from locust.exception import StopUser

from loadtests.load.plan import BEGUN, FOLDER, HEADER, NO_RESPONSE, RESPONSES, WRONG_BODY, Plan

OK = 200
NONE = -1
SHORT = 160  # maximum characters of an error
HERE = Path(os.environ[FOLDER])
PLAN_TO_RUN = Plan.read(HERE)


class OpenLoopUser(FastHttpUser):
    """The only user. Its requests run in a greenlet each and share connections."""

    host = PLAN_TO_RUN.url
    concurrency = PLAN_TO_RUN.connections
    network_timeout = PLAN_TO_RUN.patience
    connection_timeout = PLAN_TO_RUN.patience

    @task
    def play(self) -> None:
        """Send all requests of the plan, write the responses and stop."""
        self.rows: list[str] = []
        pool, began = Pool(PLAN_TO_RUN.connections), time.monotonic()
        replace_file(HERE / BEGUN, repr(began))
        for due in PLAN_TO_RUN.arrivals:
            if (wait := began + due - time.monotonic()) > 0:
                gevent.sleep(wait)
            pool.spawn(self.ask, began, due)
        pool.join()
        replace_file(HERE / RESPONSES, "\n".join([f"{began!r}", HEADER, *self.rows, ""]))
        self.environment.runner.quit()
        raise StopUser

    def ask(self, began: float, due: float) -> None:
        """Send one request and record the response."""
        with self.client.post(
            "", data=PLAN_TO_RUN.body, headers=dict(PLAN_TO_RUN.headers), catch_response=True
        ) as response:
            text = response.text or ""
            took = time.monotonic() - began - due
            status, error = int(response.status_code or NO_RESPONSE), ""
            which = next((number for number, right in enumerate(PLAN_TO_RUN.accepted) if right in text), NONE)
            if status == OK and which == NONE:
                status = WRONG_BODY
            if status != OK:
                error = " ".join(str(text or response.error).replace(",", ";").split())[:SHORT]
                response.failure(f"{status} {error}")
            self.rows.append(f"{due!r},{took!r},{status},{which},{error}")


def replace_file(path: Path, text: str) -> None:
    """Write the file atomically, since another process waits for it."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.replace(path)
