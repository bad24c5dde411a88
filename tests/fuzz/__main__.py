"""Random input against promises, for a time.

    python -m tests.fuzz --seconds 600 [decoder] [admission] [route] …

A broken promise ends it with the smallest input that Hypothesis finds, and with a line to reproduce it by.
"""

from __future__ import annotations

import argparse

from tests.fuzz.target import explore_for
from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz the targets that are named, or all, one after the other."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=main.__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=600, help="of each target [%(default)s]")
    given = parser.parse_args()
    for name in given.targets or TARGETS:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}: {', '.join(TARGETS)}")
        for part in TARGETS[name]:
            seconds = given.seconds / len(TARGETS[name])
            print(f"{name}: {part.name} for {seconds:g} s", flush=True)
            print(f"{name}: {part.name}: {explore_for(part, seconds)} inputs, no promise broken", flush=True)


if __name__ == "__main__":
    main()
