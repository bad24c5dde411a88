"""`knodel top`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, get_args

import click

from autoscaler.metrics.signals import Signals
from autoscaler.usage.signals import mean_of, read_signals
from clusters.base.objects import POD_AUTOSCALER, WARM_POOL, Object, labels_of, namespace_of
from serving.cli.base.output import Output
from serving.cli.context import Session, all_namespaces_option, parse_timeout, verb
from serving.cli.gpus.machine import percent
from serving.cli.settings import prices_in_force
from serving.client.errors import UsageError
from serving.cost.bill import Amounts, Bill, Period, make_bills, replicas_of
from serving.cost.texts import SMALL, UNSET, money, small_money
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.prices import HOUR, Prices

PURPOSES = ("serving", "idle", "starting", "canary", "pool")
SORTS = {"requests": "rate", "latency": "p99", "errors": "errors", "queue": "queued", "name": ""}
"""Values of `--sort`, with the field of `Load` whose largest value comes first; equal ones are sorted by name."""
DEFAULT_INTERVAL, LEAST_INTERVAL, MOST_INTERVAL = 2.0, 0.2, 3600.0  # s
HEADS_OF_SIGNALS = {"gpu": "gpu", "memory": "gpu mem", "kv_cache": "kv"}
ModelKey = tuple[str, str]


class _State(NamedTuple):
    ready: int = 0
    wanted: int = 0
    signals: Signals = Signals()


def signals_of(autoscalers: Iterable[Object], now: datetime) -> dict[ModelKey, Signals]:
    """Return the means over the revisions of each model whose replicas report signals."""
    found: dict[ModelKey, list[Signals]] = {}
    for one in autoscalers:
        if (signals := read_signals(one, now)) is not None:
            found.setdefault((namespace_of(one), labels_of(one).get(LABEL_MODEL, "")), []).append(signals)
    return {model: mean_of(each) or Signals() for model, each in found.items()}


@verb(
    "top",
    examples=[
        ("Show the cost of this month in all namespaces", "knodel top --period month -A"),
        ("Watch requests, latency and queues of all models", "knodel top --watch -A"),
    ],
)
@click.option("--period", type=click.Choice(get_args(Period)), help="Current hour, day or month, in UTC [day].")
@click.option("-w", "--watch", is_flag=True, help="Show the present load instead of costs, until q or Ctrl-C.")
@click.option("--interval", metavar="DURATION", help="Time between two updates of --watch [2s].")
@click.option("--sort", type=click.Choice(list(SORTS)), help="Order of the models of --watch [requests].")
@all_namespaces_option
def command(
    session: Session, period: Period | None, watch: bool, interval: str | None, sort: str | None, all_namespaces: bool
) -> None:
    """Show the cost of each model's replicas by activity, most expensive model first; or, with --watch, their load.

    serving: with requests. idle: ready, without requests. starting: starting or terminating. canary: of a version in a
    canary or rollout. pool: the model's share of warm pools. tokens, cost/1k: tokens of language models, and the total
    cost for 1000 of them. gpu, gpu mem, kv: the last reading of the replicas' GPUs, of the GPUs' memory, and of the KV
    cache.

    With --watch: req/s, p50, p99, errors: responses since the last update, percentiles of their latency, and the share
    that failed. busy, queue: requests in progress, and those that wait. decision: the last change of the replicas.
    """
    namespace = None if all_namespaces else session.namespace
    if watch:
        _watch(session, namespace, period, interval, sort)
        return
    if interval is not None or sort is not None:
        raise UsageError(f"{'--interval' if interval is not None else '--sort'} requires --watch: give both")
    client, period = session.client(), period or "day"
    autoscalers = client.list(POD_AUTOSCALER, namespace, LABEL_MODEL)["items"]
    pools = client.list(WARM_POOL, namespace)["items"]
    prices, now = prices_in_force(session, client), datetime.now(UTC)
    bills = make_bills(autoscalers, pools, prices, period, now)
    bills.sort(key=lambda bill: (-_shown(bill, prices).total, bill.namespace, bill.model))
    states = {model: _State(*counts) for model, counts in replicas_of(autoscalers).items()}
    for model, signals in signals_of(autoscalers, now).items():
        states[model] = states.get(model, _State())._replace(signals=signals)
    if session.output.structured:
        session.output.value(_value(bills, states, prices, period))
        return
    _print(session.output, bills, states, prices, all_namespaces)


def _watch(
    session: Session, namespace: str | None, period: Period | None, interval: str | None, sort: str | None
) -> None:
    from serving.cli.verbs.models.top_watch import watch_load  # reads pages of replicas; costs do not need it

    if period is not None:
        raise UsageError("--period is for costs, --watch shows the present load: omit one of them")
    seconds = DEFAULT_INTERVAL if interval is None else parse_timeout(interval, "--interval")
    if not LEAST_INTERVAL <= seconds <= MOST_INTERVAL:
        raise UsageError(f"--interval {interval!r}: expected {LEAST_INTERVAL:g} to {MOST_INTERVAL:g} seconds")
    watch_load(session, namespace, seconds, SORTS[sort or "requests"])


def _print(output: Output, bills: list[Bill], states: Mapping[ModelKey, _State], prices: Prices, wide: bool) -> None:
    rows = []
    present = [states.get((bill.namespace, bill.model), _State()).signals for bill in bills]
    used = [name for name in Signals._fields if any(getattr(one, name) is not None for one in present)]
    counted = [head for head in ("tokens", "cost/1k") if any(_of_tokens(bill, prices)[head] for bill in bills)]
    for bill in bills:
        ready, wanted, signals = states.get((bill.namespace, bill.model), _State())
        shown = _shown(bill, prices)
        amounts = [_cell(getattr(shown, name)) for name in PURPOSES]
        where = [bill.namespace] if wide else []
        tokens = [_of_tokens(bill, prices)[head] or "-" for head in counted]
        use = [percent(getattr(signals, name)) for name in used]
        rows.append([*where, bill.model, f"{ready}/{wanted}", *amounts, _cell(shown.total), *tokens, *use])
    unit = f"total ({prices.currency})" if prices.are_set else "total (pod-hours)"
    heads = [
        *(["namespace"] if wide else []),
        "model",
        "replicas",
        *PURPOSES,
        unit,
        *counted,
        *map(HEADS_OF_SIGNALS.__getitem__, used),
    ]
    output.table(heads, rows, optional=("starting", "canary", "pool"))
    if not prices.are_set:
        output.text(UNSET)


def _cell(amount: float) -> str:
    """Format an amount with two decimals, so that the amounts of a column can be compared."""
    return f"<{SMALL:g}" if 0 < amount < SMALL else money(amount)


def _of_tokens(bill: Bill, prices: Prices) -> dict[str, str]:
    """Return the cells of a language model; empty ones for other models, and for costs while no prices are set."""
    cost = bill.cost_per_1000_tokens if prices.are_set else None
    tokens = round(bill.tokens.total)
    return {"tokens": str(tokens) if tokens else "", "cost/1k": "" if cost is None else small_money(cost)}


def _shown(bill: Bill, prices: Prices) -> Amounts:
    """Return the cost of the bill, or its pod-hours if no prices are set."""
    if prices.are_set:
        return bill.cost
    return Amounts(*(getattr(bill.held, name) / HOUR for name in PURPOSES))


def _value(bills: list[Bill], states: Mapping[ModelKey, _State], prices: Prices, period: Period) -> dict[str, object]:
    models = []
    for bill in bills:
        ready, wanted, signals = states.get((bill.namespace, bill.model), _State())
        known = {name: value for name, value in signals.to_json().items() if value is not None}
        models.append(
            {
                "namespace": bill.namespace,
                "model": bill.model,
                "replicas": {"ready": ready, "desired": wanted},
                "podSeconds": bill.held.to_json(),
                **({"cost": bill.cost.to_json()} if prices.are_set else {}),
                **_tokens_value(bill, prices),
                **({"signals": known} if known else {}),
            }
        )
    return {"period": period, **({"currency": prices.currency} if prices.are_set else {}), "models": models}


def _tokens_value(bill: Bill, prices: Prices) -> dict[str, object]:
    """Return the members of a language model."""
    if not bill.tokens.total:
        return {}
    cost = {"costPer1000Tokens": bill.cost_per_1000_tokens} if prices.are_set else {}
    return {"tokens": bill.tokens.to_json(), **cost}
