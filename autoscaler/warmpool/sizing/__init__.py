"""The size of a warm pool: arrivals, keep-alives, shortage. Pure, except for `keep_warm` and the planner's history."""
