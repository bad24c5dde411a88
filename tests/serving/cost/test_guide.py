"""docs/costs.md: its settings are read, its figures are those of the program, its fields those that there are."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from autoscaler.scaling.replay import COLUMNS
from serving.cost.forecast import make_forecast
from serving.cost.texts import forecast_lines
from serving.types.settings.settings import settings_from_text
from tests.serving.models import model

GUIDE = (Path(__file__).parents[3] / "docs" / "costs.md").read_text()


def test_its_prices_are_read_and_its_forecast_is_made_of_them() -> None:
    section = re.search(r"^    prices:\n(?:    .*\n)+", GUIDE, re.MULTILINE)
    assert section is not None
    prices = settings_from_text(textwrap.dedent(section[0]), "the guide").prices
    assert (prices.currency, dict(prices.gpu)) == ("EUR", {"nvidia.com/gpu": 2.1})
    assert dict(prices.gpu_types) == {"NVIDIA-H100-80GB-HBM3": 4.3}
    for line in forecast_lines("iris", make_forecast(model("iris", maxReplicas=2).spec, prices)):
        assert line in GUIDE
    for line in list(forecast_lines("chat", make_forecast(model("chat", resources={"gpu": 1}).spec, prices)))[:2]:
        assert line in GUIDE


def test_it_names_every_field_that_a_replay_may_change() -> None:
    told = GUIDE.partition("Fields: ")[2]
    assert set(COLUMNS) <= set(re.findall(r"`(\w+)`", told))
