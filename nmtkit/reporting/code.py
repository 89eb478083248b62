"""How it is said that a result was made by other code than the present one."""

from collections.abc import Mapping

OtherCode = Mapping[str, list[str]]  # by stage, the rooms that were different


def marked(text: str, *others: OtherCode) -> str:
    """Return a cell of a table, which says whether other code made the result."""
    return ", ".join(filter(None, [text, "other code" if any(others) else ""]))


def code_notes(*others: OtherCode) -> list[str]:
    """Return the line that names the rooms, each with its stages, if there are any."""
    stages: dict[str, dict[str, None]] = {}  # by room
    for stage, rooms in (each for other in others for each in other.items()):
        for room in rooms:
            stages.setdefault(room, {})[stage] = None
    parts = ", ".join(f"{room} ({', '.join(of_room)})" for room, of_room in stages.items())
    again = "`nmtkit run --remake` makes it again, beside the old one"
    return [f"made by other code than the present: {parts}; {again}"] if parts else []
