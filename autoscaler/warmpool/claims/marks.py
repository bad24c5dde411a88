"""Labels and annotations of the warm pool. They are its only state, so that every process reads the same.

A member is a Pod with `LABEL_POOL`. Its state follows from its labels and annotations:

    LABEL_POOL, ANNOTATION_CLAIM empty         free
    LABEL_POOL, ANNOTATION_CLAIM               reserved permanently
    … and the labels of a revision             serving: requests may come; no ReplicaSet owns it yet
    no LABEL_POOL, ANNOTATION_CLAIM            adopted: an ordinary replica
"""

from __future__ import annotations

from typing import Final

LABEL_POOL: Final = "autoscaling.knodel.dev/pool"
"""On members: the WarmPool's name, until a ReplicaSet may adopt the Pod."""

LABEL_POOL_CLASS: Final = "autoscaling.knodel.dev/pool-class"
"""On members: the hash of all properties that a claim cannot change (`classes.pool_class`), equal to that of the
Deployment.
"""

LABEL_SEED: Final = "autoscaling.knodel.dev/pool-seed"
"""On the revision template of a WarmPool's seed Configuration, hence on its Deployment: the WarmPool's name."""

ANNOTATION_CLAIM: Final = "autoscaling.knodel.dev/claim"
"""On members: empty until the reservation, then permanently `{"revision","deployment" (uid),"by","at"}`."""

ANNOTATION_LOAD: Final = "autoscaling.knodel.dev/load"
"""On revision templates of our model server, hence on Deployments: the parameters of the load call that makes a member
serve as a replica of this revision: `name`, and those of `assignment.PARAMETERS` that are set. No member is claimed for
a template without it.
"""

ANNOTATION_STARTS: Final = "autoscaling.knodel.dev/starts"
"""On PodAutoscalers: the last starts of replicas, oldest first (`reconciler/starts.py`)."""

ENV_TOKEN: Final = "KNODEL_LOAD_TOKEN_SHA256"  # noqa: S105 - a variable's name
"""In a member's environment: hex SHA-256 of the token that its load call needs. Reading Pods reveals no token."""

SEED_PREFIX: Final = "knodel-pool-"
"""The seed Configuration of WarmPool NAME is `knodel-pool-NAME`."""

DIGESTS_VOLUME = "digests"
"""Volume of a replica whose Model specifies no digest. It has a file for each revision, with the digest that it loaded
first. Pool members have no such volume: the load call contains the digest.
"""

DIGESTS_VARIABLE = "KNODEL_DIGESTS"
"""Variable with the path of that volume, for replicas."""
