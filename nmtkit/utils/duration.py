"""A duration, in the unit that suits it."""


def duration(seconds: float) -> str:
    """Return `seconds` as a person says them, such as "90 s", "25 min", "14 h" or "6 days"."""
    for unit, name in ((1, "s"), (60, "min"), (3_600, "h")):
        limit = 72 if name == "h" else 180
        if seconds < limit * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:,.0f} days"
