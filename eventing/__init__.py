"""CloudEvents in and out: the webhook, its ledger, and the events by which rollouts answer.

It knows `clusters` alone. Training scripts need one function of it, which needs the standard library alone.
"""

from eventing.emit import NotEmitted as NotEmitted
from eventing.emit import emit_training_completed as emit_training_completed
