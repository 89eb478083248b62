"""How it is said that a result was made by other code than the present one."""

from collections.abc import Mapping
from itertools import chain

OtherCode = Mapping[str, list[str]]  # by stage, the rooms that were different


def all_of(*others: OtherCode) -> OtherCode:
    """Return what is said of several artifacts at once."""
    together: dict[str, list[str]] = {}
    for stage, rooms in (each for other in others for each in other.items()):
        together[stage] = [*dict.fromkeys([*together.get(stage, []), *rooms])]
    return together


def marked(text: str, other: OtherCode) -> str:
    """Return a cell of a table, which says whether other code made the result."""
    if not other:
        return text
    return f"{text}, other code" if text else "other code"


def code_note(other: OtherCode) -> str:
    """Return the line that names the rooms, each with its stages; "" if there is nothing to say."""
    if not other:
        return ""
    stages = {
        room: [each for each in other if room in other[each]] for room in chain(*other.values())
    }
    parts = ", ".join(f"{room} ({', '.join(of_room)})" for room, of_room in stages.items())
    return (
        f"made by other code than the present: {parts}; `nmtkit run --remake` makes it again, "
        "beside the old one"
    )
