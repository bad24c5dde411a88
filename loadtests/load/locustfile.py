"""What locust runs: one user who sends every request of a plan when it is due, and writes down what each came to.

Locust's own users wait for their answers: a server that is slow would be asked less often, and its worst moments would
not be measured. Here the time of an answer counts from when its request was due.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import gevent
from gevent.pool import Pool
from locust import FastHttpUser, task
from locust.exception import StopUser

from loadtests.load.plan import ANSWERS, BEGUN, FOLDER, HEADER, NOBODY, WRONG, Plan

OK = 200
NONE = -1
SHORT = 160  # characters of an error that are kept
HERE = Path(os.environ[FOLDER])
ASKED = Plan.read(HERE)


class Caller(FastHttpUser):
    """The only one; its requests have a greenlet each and share connections."""

    host = ASKED.url
    concurrency = ASKED.connections
    network_timeout = ASKED.patience
    connection_timeout = ASKED.patience

    @task
    def play(self) -> None:
        """The whole plan; then everything ends."""
        self.rows: list[str] = []
        pool, began = Pool(ASKED.connections), time.monotonic()
        replace_file(HERE / BEGUN, repr(began))
        for due in ASKED.arrivals:
            if (wait := began + due - time.monotonic()) > 0:
                gevent.sleep(wait)
            pool.spawn(self.ask, began, due)
        pool.join()
        replace_file(HERE / ANSWERS, "\n".join([f"{began!r}", HEADER, *self.rows, ""]))
        self.environment.runner.quit()
        raise StopUser

    def ask(self, began: float, due: float) -> None:
        """One request."""
        with self.client.post("", data=ASKED.body, headers=dict(ASKED.headers), catch_response=True) as answer:
            text = answer.text or ""
            took = time.monotonic() - began - due
            status, error = int(answer.status_code or NOBODY), ""
            which = next((number for number, right in enumerate(ASKED.accepted) if right in text), NONE)
            if status == OK and which == NONE:
                status = WRONG
            if status != OK:
                error = " ".join(str(text or answer.error).replace(",", ";").split())[:SHORT]
                answer.failure(f"{status} {error}")
            self.rows.append(f"{due!r},{took!r},{status},{which},{error}")


def replace_file(path: Path, text: str) -> None:
    """Whole or not at all: somebody waits for it."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.replace(path)
