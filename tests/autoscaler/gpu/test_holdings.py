"""The units of a node that the sharing may give, beside those that others hold."""

from __future__ import annotations

from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.holdings import Holder, make_snapshot
from clusters.base.objects import Key
from tests.autoscaler.gpu.objects import claim, device_class, node, pod, resource_slice

JOB = Holder("PyTorchJob", Key("team", "train"))


def test_units_that_others_hold_are_not_given() -> None:
    pods = [pod("own", "a", 2), pod("other", "a", 5, owner=("Job", "else"))]
    [place] = make_snapshot([node("a")], pods, DraObjects()).places({JOB})
    assert place.units == 3


def test_a_claim_that_outlives_its_pod_takes_nothing_from_running_workers() -> None:
    slices = [resource_slice("a", *"wxyz")]
    claims = [claim("own", "a", *"wxyz", pods=("own",)), claim("stale", "a", *"xyz", pods=("gone",))]
    dra = DraObjects(slices, [device_class("device.driver == 'gpu.nvidia.com'")], claims)
    [place] = make_snapshot([node("a", 0)], [pod("own", "a", 4)], dra).places({JOB})
    assert place.units == 4
    [empty] = make_snapshot([node("a", 0)], [], dra).places({JOB})
    assert empty.units == 4
