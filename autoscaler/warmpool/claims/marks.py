"""Labels and annotations of the warm pool. They are its only state, so that every process reads the same.

A member is a Pod with `LABEL_POOL`. Its state follows from its labels and annotations:

    LABEL_POOL, ANNOTATION_CLAIM empty         free
    LABEL_POOL, ANNOTATION_CLAIM               reserved, for good
    … and the labels of a revision             serving: requests may come; no ReplicaSet owns it yet
    no LABEL_POOL, ANNOTATION_CLAIM            adopted: a replica like any other
"""

from __future__ import annotations

from typing import Final

LABEL_POOL: Final = "autoscaling.knodel.dev/pool"
"""On members: the WarmPool's name, until a ReplicaSet may adopt the Pod."""

LABEL_POOL_CLASS: Final = "autoscaling.knodel.dev/pool-class"
"""On members: what a claim cannot change, as a hash (`classes.pool_class`); as that of the Deployment it may join."""

LABEL_SEED: Final = "autoscaling.knodel.dev/pool-seed"
"""On the revision template of a WarmPool's seed Configuration, hence on its Deployment: the WarmPool's name."""

ANNOTATION_CLAIM: Final = "autoscaling.knodel.dev/claim"
"""On members: empty until the reservation, then for good `{"revision","deployment" (uid),"by","at"}`."""

ANNOTATION_LOAD: Final = "autoscaling.knodel.dev/load"
"""On revision templates of our model server, hence on Deployments: the parameters of the load call by which a member
serves as this revision's replica would: `name`, and those of `assignment.PARAMETERS` that are set. Nothing is claimed
for a template without it."""

ANNOTATION_STARTS: Final = "autoscaling.knodel.dev/starts"
"""On PodAutoscalers: the last starts of replicas, oldest first (`reconciler/starts.py`)."""

ENV_TOKEN: Final = "KNODEL_LOAD_TOKEN_SHA256"  # noqa: S105 - a variable's name
"""In a member's environment: hex SHA-256 of the token that its load call needs. Reading Pods reveals no token."""

SEED_PREFIX: Final = "knodel-pool-"
"""The seed Configuration of WarmPool NAME is `knodel-pool-NAME`."""

DIGESTS_VOLUME = "digests"
"""Volume of a replica whose Model promises no digest: a file for each revision, with the digest that it loaded first.
A member of a pool has none: the load call brings the digest."""

DIGESTS_VARIABLE = "KNODEL_DIGESTS"
"""Variable by which a replica learns where that volume is."""
