"""Tables that ship as TOML, beside the modules that read them."""

import tomllib
from pathlib import Path
from typing import Any


def read_tables(module: str, file: str) -> dict[str, Any]:
    """Return what a file beside that of a `module` holds."""
    return tomllib.loads(Path(module).with_name(file).read_text(encoding="utf-8"))
