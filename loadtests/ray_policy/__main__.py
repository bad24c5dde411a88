"""Print the table of all policies: `python -m loadtests.ray_policy`. It takes 5 to 15 minutes and 1 GiB."""

from __future__ import annotations

from loadtests.ray_policy.outcome import CALLERS, POLICIES, SECONDS, SERVICE, SLOTS, table
from loadtests.ray_policy.session import measure

LONGEST = 1_200.0
"""Seconds for all policies together."""


def main() -> None:
    """Run all policies one after another in one Ray."""
    run = measure([policy.name for policy in POLICIES], LONGEST)
    print(f"{CALLERS} callers for {SECONDS:g} s, {SERVICE:g} s a request, {SLOTS} slots a replica\n")
    print(table(run.outcomes))
    print("\n" + "\n".join(run.log))


if __name__ == "__main__":
    main()
