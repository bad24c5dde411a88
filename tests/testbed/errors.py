"""What the testbed reports: a branch of the one exception tree (`clusters.base.errors`)."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class TestbedError(KnodelError):
    """A step of the testbed failed; the message names the step, what was seen and where to look."""

    __test__ = False  # the name is not that of a test class


class MachineLacks(TestbedError):
    """This machine cannot run the testbed; the message is one sentence that names what is missing."""
