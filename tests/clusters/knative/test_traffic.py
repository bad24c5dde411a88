"""Shares of traffic sum to 100 and are merged by Revision, for any targets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Object
from clusters.embedded.knative.ingress import make_ingress
from clusters.embedded.knative.traffic import BadTrafficTarget, RevisionTarget, TrafficConfig, build_traffic_config
from tests.clusters.knative.stage import route, splits

READY = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}


def revision(name: str, status: Object | None = None) -> Object:
    """A Revision of the Configuration `c`."""
    labels = {"serving.knative.dev/configuration": "c"}
    metadata = {"name": name, "namespace": "default", "generation": 1, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{}]}, "status": READY if status is None else status}


CONFIGURATION = {"metadata": {"name": "c"}, "status": {**READY, "latestReadyRevisionName": "c-00003"}}
REVISIONS = {name: revision(name) for name in ("c-00001", "c-00002", "c-00003")}


def assigned(targets: list[Object], revisions: dict[str, Object] | None = None) -> TrafficConfig | BadTrafficTarget:
    """The traffic of a Route with these targets."""
    asked = route("m", targets)
    asked["metadata"]["uid"] = "u"
    known = REVISIONS if revisions is None else revisions
    return build_traffic_config(asked, {"c": CONFIGURATION}.get, known.get)


def test_two_targets_of_one_revision_are_one() -> None:
    targets = [{"revisionName": "c-00001", "percent": 30}, {"revisionName": "c-00001", "percent": 70}]
    found = assigned(targets)
    assert isinstance(found, TrafficConfig)
    assert found.targets == [RevisionTarget("c-00001", 100)]


def test_a_pinned_revision_and_the_same_as_latest_share_a_split_and_stay_two_in_status() -> None:
    targets = [{"revisionName": "c-00003", "percent": 30}, {"configurationName": "c", "percent": 70}]
    found = assigned(targets)
    assert isinstance(found, TrafficConfig)
    assert [target.percent for target in found.targets] == [30, 70]
    assert [target.percent for target in found.groups[""]] == [100]


def test_a_target_that_failed_is_told_before_one_that_is_late() -> None:
    late = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    failed = {"conditions": [{"type": "Ready", "status": "False"}]}
    revisions = {"c-00001": revision("c-00001", late), "c-00002": revision("c-00002", failed)}
    targets = [{"revisionName": "c-00001", "percent": 50}, {"revisionName": "c-00002", "percent": 50}]
    found = assigned(targets, revisions)
    assert found == BadTrafficTarget("False", "RevisionMissing", 'Revision "c-00002" failed to become ready.')
    found = assigned(targets[:1], revisions)
    assert found == BadTrafficTarget("Unknown", "RevisionMissing", 'Revision "c-00001" is not yet ready.')


@st.composite
def percents(draw: st.DrawFn) -> list[int]:
    """Generate integer shares that sum to 100."""
    cuts = sorted(draw(st.lists(st.integers(0, 100), max_size=4)))
    return [high - low for low, high in zip([0, *cuts], [*cuts, 100], strict=True)]


@given(shares=percents(), data=st.data())
def test_every_split_sums_to_100_and_every_share_arrives(shares: list[int], data: st.DataObject) -> None:
    targets: list[Object] = []
    for number, share in enumerate(shares):
        name = data.draw(st.sampled_from([*REVISIONS, ""]))
        target: Object = {"revisionName": name} if name else {"configurationName": "c"}
        tagged = {"tag": f"t{number}"} if data.draw(st.booleans()) else {}
        targets.append({**target, **tagged, "percent": share})
    found = assigned(targets)
    assert isinstance(found, TrafficConfig)
    asked = route("m", targets)
    asked["metadata"]["uid"] = "u"
    ingress = make_ingress(asked, found, lambda namespace, name: f"{name}.{namespace}.localhost")
    wanted: dict[str, int] = {}
    for target in targets:
        name = target.get("revisionName") or "c-00003"
        wanted[name] = wanted.get(name, 0) + target["percent"]
    routed = splits(ingress, "m.default.localhost")
    assert routed == {name: share for name, share in wanted.items() if share}
    for target in targets:
        if "tag" in target:
            alone = {target.get("revisionName") or "c-00003": 100}
            assert splits(ingress, f"{target['tag']}-m.default.localhost") == alone
            assert splits(ingress, "m.default.localhost", tag=target["tag"]) == alone
