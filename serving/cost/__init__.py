"""Bills and forecasts from usage accounts and prices."""
