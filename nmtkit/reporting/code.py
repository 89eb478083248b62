"""How it is said that a result was made by other code than the present one."""

from collections.abc import Mapping

# By stage, the rooms that were different; None: older versions of nmtkit did not record them.
OtherCode = Mapping[str, list[str] | None]


def all_of(*others: OtherCode) -> OtherCode:
    """Return what is said of several artifacts at once."""
    together: dict[str, list[str] | None] = {}
    for stage, rooms in (each for other in others for each in other.items()):
        together[stage] = [*dict.fromkeys([*(together.get(stage) or []), *(rooms or [])])] or None
    return together


def marked(text: str, other: OtherCode) -> str:
    """Return a cell of a table, which says whether other code made the result."""
    if not any(other.values()):
        return text
    return f"{text}, other code" if text else "other code"


def code_note(other: OtherCode) -> str:
    """Return the line that names the rooms, each with its stages; "" if there is nothing to say."""
    stages: dict[str, list[str]] = {}
    for stage, rooms in other.items():
        for room in rooms or []:
            stages.setdefault(room, []).append(stage)
    parts = [f"{room} ({', '.join(of_room)})" for room, of_room in stages.items()]
    unknown = [stage for stage, rooms in other.items() if rooms is None]
    said = []
    if parts:
        again = "`nmtkit run --remake` makes it again, beside the old one"
        said.append(f"made by other code than the present: {', '.join(parts)}; {again}")
    if unknown:
        said.append(f"made by a version of nmtkit that recorded no code: {', '.join(unknown)}")
    return "; ".join(said)
