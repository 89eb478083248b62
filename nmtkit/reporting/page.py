"""How templates are filled, and pages written."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.files import whole_file
from nmtkit.visible import visible


def replace_page(path: Path, page: str) -> None:
    """Write a page to `path`, whole or not at all, as `whole_file` does."""
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


def _shown(value: Any) -> Any:
    """Name what is unseen in a value that a template prints; only its macros return markup."""
    return value if hasattr(value, "__html__") else visible(str(value))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
