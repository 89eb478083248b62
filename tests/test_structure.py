"""The walls of the house: which room imports which, and what is written nowhere.

Every rule is a function from a module to its violations; each is shown a module that breaks it.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LIBRARY = {
    *("fast", "model", "tensors", "files", "store", "errors", "symbols"),
    *("visible", "duration", "languages", "tables", "child_processes", "code_version"),
    "perplexity",
}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"translator"},
    "__main__": {"cli", "streams"},
    "streams": set(),
    "visible": set(),
    "child_processes": set(),
    "duration": set(),
    "tables": set(),
    "perplexity": set(),
    "code_version": set(),
    "errors": {"visible"},
    "language_names": set(),
    "languages": {"language_names", "errors"},
    "symbols": set(),
    "progress": {"visible", "duration"},
    "machine": {"errors"},
    "schema": {"errors"},
    "recipe": {"schema", "languages", "sources", "errors"},
    "recipe_file": {"schema", "recipe", "sources", "files", "errors"},
    "study": {"schema", "recipe", "recipe_file", "errors"},
    "files": {"errors"},
    "store": {"files", "errors", "code_version"},
    "provenance": {"recipe_file", "files", "errors", "code_version"},
    "tensors": {"errors"},
    "model": {"recipe", "tensors", "files", "store", "errors"},
    "fast": {"model", "errors"},
    "sources": {"schema", "languages", "files", "errors"},
    "corpus": {"child_processes", "sources", "files", "store", "errors", "symbols", "tables"},
    "training": {"recipe", *LIBRARY},
    "interchange": {"recipe", "sources", "corpus", *LIBRARY},
    "decoding": {"recipe", "corpus", "interchange", "machine", "progress", *LIBRARY},
    "evaluation": {"sources", "corpus", *LIBRARY},
    "reporting": {"recipe", *LIBRARY},
    "translator": {"recipe_file", "machine", "decoding", "progress", *LIBRARY},
}
MAY_IMPORT["stages"] = {*MAY_IMPORT} - {"__init__", "__main__"}
MAY_IMPORT["cli"] = {*MAY_IMPORT} - {"__main__"}

STAGES_MAY_IMPORT = {  # of nmtkit.stages
    "__init__": set(),
    "journal": set(),
    "parts": set(),
    "parent": set(),
    "note": set(),
    "chain": {"parent", "note"},
    "listing": {"chain"},
    "needed": {"chain", "listing"},
    "continuation": {"chain", "note"},
    "train": {"chain", "continuation", "note"},
    "prepare": {"chain", "journal"},
    "translate": {"chain", "journal", "parts"},
}


@dataclass(frozen=True)
class Module:
    """A file of Python, parsed."""

    path: str  # from the root, as in nmtkit/fast/packing.py
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder of nmtkit that it stands in, or its own name."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1].removesuffix(".py")

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)

    def imports(self) -> Iterator[str]:
        """The modules and names that it imports, each as a.b.c."""
        for node in self.nodes():
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def calls(self) -> Iterator[tuple[str, str, ast.Call]]:
        """Its calls, as (what stands before the dot, the function's name, the call)."""
        for node in self.nodes():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr, node
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield "", node.func.id, node


Rule = Callable[[Module], Iterator[str]]


# The rules


def rooms_import_one_way(module: Module) -> Iterator[str]:
    """cli -> stages -> libraries -> fast -> model -> recipe, store, files, errors."""
    if module.room not in MAY_IMPORT:
        yield f"room {module.room} has no place in MAY_IMPORT"
        return
    allowed = {*MAY_IMPORT[module.room], module.room, "__version__"}
    for name in module.imports():
        package, *inside = name.split(".")
        if package == "nmtkit" and inside[:1] and inside[0] not in allowed:
            yield f"imports {name}"


def stages_import_only_what_they_share(module: Module) -> Iterator[str]:
    """A stage reads what another published, and calls none of its functions."""
    if module.room != "stages":
        return
    allowed = STAGES_MAY_IMPORT.get(module.name, {"chain"})
    for name in module.imports():
        parts = name.split(".")
        if parts[:2] == ["nmtkit", "stages"] and parts[2] not in allowed:
            yield f"imports {name}"


def libraries_see_config_types_not_recipes(module: Module) -> Iterator[str]:
    """A library gets a section of the recipe at most."""
    if module.room not in ("model", "training", "reporting"):
        return
    for name in module.imports():
        if name.startswith("nmtkit.config.recipe") and not name.endswith("Config"):
            yield f"imports {name}"


def only_some_rooms_import_torch(module: Module) -> Iterator[str]:
    """Text is prepared without torch; `--help` and recipes do not wait for it."""
    without = (
        *("sources", "corpus", "recipe", "recipe_file", "files", "store", "errors"),
        *("symbols", "progress"),
    )
    if module.room in without:
        yield from (f"imports {name}" for name in module.imports() if name.split(".")[0] == "torch")


def only_some_rooms_talk_to_the_terminal(module: Module) -> Iterator[str]:
    """Stages and libraries talk through nmtkit.utils.progress, or not at all.

    What `nmtkit translate --bundle` makes of its standard input is no talk.
    """
    if module.room in ("cli", "progress", "reporting", "streams"):
        return
    for name in module.imports():
        if name.split(".")[0] in ("rich", "typer"):
            yield f"imports {name}"
    for before, name, _ in module.calls():
        if (before, name) == ("", "print"):
            yield "prints"
    for node in module.nodes():
        stream = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        is_result = stream == "sys.stdout" and module.path == "nmtkit/decoding/text_files.py"
        if stream in ("sys.stdout", "sys.stderr") and not is_result:
            yield f"uses {stream}"


def only_two_files_name_rank_variables(module: Module) -> Iterator[str]:
    """The number of processes is the business of who starts them and of who joins them."""
    if module.path in ("nmtkit/training/launch.py", "nmtkit/training/distributed.py"):
        return
    for node in module.nodes():
        if isinstance(node, ast.Constant) and node.value in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            yield f"names the variable {node.value}"


def nothing_dangerous_is_called(module: Module) -> Iterator[str]:
    """No pickle, no archive that writes where it wants, no shell, no lines split at U+2028."""
    for name in module.imports():
        if name.split(".")[0] in ("pickle", "dill", "cloudpickle", "shelve", "marshal"):
            yield f"imports {name}"
        if name == "torch.load":
            yield f"imports {name}"
    for before, name, call in module.calls():
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        runs_code = (before, name) == ("torch", "load") and given.get("weights_only") != "True"
        if runs_code or name in ("extractall", "splitlines"):
            yield f"calls {name}"
        for keyword in call.keywords:
            value = keyword.value
            is_false = isinstance(value, ast.Constant) and value.value is False
            if keyword.arg in ("allow_pickle", "shell") and not is_false:
                yield f"calls {name}({keyword.arg}={ast.unparse(value)})"


def one_module_locks_syncs_and_renames(module: Module) -> Iterator[str]:
    """What must not be seen half-done is written by nmtkit.store.files."""
    if module.path == "nmtkit/store/files.py":
        return
    for before, name, call in module.calls():
        of_file = before in ("os", "shutil") or (len(call.args) == 1 and not call.keywords)
        if name in ("flock", "lockf", "fsync") or (name in ("rename", "replace") and of_file):
            yield f"line {call.lineno}: calls {name}"
        if (before, name) == ("shutil", "move"):
            yield f"line {call.lineno}: calls shutil.move"


def text_is_opened_with_its_encoding(module: Module) -> Iterator[str]:
    """UTF-8 on every machine; HTTP's own headers are latin-1."""
    for before, name, call in module.calls():
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if not _is_text(before, name, call, keywords):
            continue
        encoding = keywords.get("encoding")
        if not (isinstance(encoding, ast.Constant) and encoding.value in ("utf-8", "latin-1")):
            yield f"line {call.lineno}: {ast.unparse(call)} has no encoding"


def _is_text(before: str, name: str, call: ast.Call, keywords: dict[str | None, ast.expr]) -> bool:
    if name in ("read_text", "write_text", "TextIOWrapper"):
        return True
    own_class = before.rsplit(".", 1)[-1][:1].isupper()  # Ids.open(...)
    if name != "open" or own_class or before in ("os", "tarfile", "archive", "opener"):
        return False
    mode_place = 0 if before and before not in ("io", "gzip") else 1  # path.open(mode)
    mode = call.args[mode_place] if len(call.args) > mode_place else keywords.get("mode")
    if mode is None:
        return before != "gzip"
    letters = str(mode.value) if isinstance(mode, ast.Constant) else ""
    return "t" in letters if before == "gzip" else "b" not in letters


def modules_have_docstrings(module: Module) -> Iterator[str]:
    """A file says what it is for."""
    if not ast.get_docstring(module.tree):
        yield "has no docstring"


# The rules at work

# Each rule, and modules that break it: where they stand and what they hold.
RULES: dict[Rule, list[tuple[str, str]]] = {
    rooms_import_one_way: [
        ("nmtkit/model/a.py", "from nmtkit.training.train import train"),
        ("nmtkit/corpus/a.py", "from nmtkit import progress"),
        ("nmtkit/stages/a.py", "from nmtkit.cli import main"),
        ("nmtkit/cellar/a.py", ""),
    ],
    stages_import_only_what_they_share: [
        ("nmtkit/stages/train.py", "from nmtkit.stages.prepare import run"),
        ("nmtkit/stages/pipeline.py", "from nmtkit.store.journal import Journal"),
    ],
    libraries_see_config_types_not_recipes: [
        ("nmtkit/training/a.py", "from nmtkit.config.recipe import Recipe"),
        ("nmtkit/model/a.py", "from nmtkit import recipe"),
    ],
    only_some_rooms_import_torch: [
        ("nmtkit/corpus/a.py", "import torch"),
        ("nmtkit/config/recipe.py", "def f():\n    from torch.nn import Linear"),
    ],
    only_some_rooms_talk_to_the_terminal: [
        ("nmtkit/stages/a.py", "from rich.console import Console"),
        ("nmtkit/training/a.py", "print(1)"),
        ("nmtkit/corpus/a.py", "import sys\nsys.stderr.write('')"),
    ],
    only_two_files_name_rank_variables: [
        ("nmtkit/training/loop.py", "import os\nos.environ['RANK']")
    ],
    nothing_dangerous_is_called: [
        ("nmtkit/training/a.py", "torch.load(path)"),
        ("nmtkit/training/a.py", "from torch import load"),
        ("nmtkit/training/a.py", "import pickle"),
        ("nmtkit/corpus/a.py", "np.load(path, allow_pickle=True)"),
        ("nmtkit/corpus/a.py", "archive.extractall(folder)"),
        ("nmtkit/corpus/a.py", "subprocess.run(command, shell=True)"),
        ("nmtkit/corpus/a.py", "text.splitlines()"),
    ],
    one_module_locks_syncs_and_renames: [
        ("nmtkit/sources/a.py", "fcntl.flock(file, fcntl.LOCK_EX)"),
        ("nmtkit/store/artifacts.py", "draft.rename(place)"),
        ("nmtkit/reporting/a.py", "os.replace(draft, place)"),
        ("nmtkit/stages/a.py", "shutil.move(draft, place)"),
    ],
    text_is_opened_with_its_encoding: [
        ("nmtkit/corpus/a.py", "path.open()"),
        ("nmtkit/corpus/a.py", "gzip.open(path, 'rt')"),
        ("nmtkit/corpus/a.py", "path.read_text()"),
        ("data/a.py", "path.write_text(text, encoding=None)"),
        ("nmtkit/corpus/a.py", "io.TextIOWrapper(stream)"),
    ],
    modules_have_docstrings: [("nmtkit/a.py", "x = 1")],
}
BREACHES = [(rule, path, source) for rule, breaches in RULES.items() for path, source in breaches]


@pytest.mark.parametrize("rule", RULES)
def test_nmtkit_keeps_the_rule(rule: Rule) -> None:
    folders = ("nmtkit", "data") if rule is text_is_opened_with_its_encoding else ("nmtkit",)
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 20
    violations = []
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = Module(path.relative_to(ROOT).as_posix(), tree)
        violations += [f"{module.path} {violation}" for violation in rule(module)]
    assert violations == []


@pytest.mark.parametrize(("rule", "path", "source"), BREACHES)
def test_a_breach_of_the_rule_is_seen(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, ast.parse(source))))
