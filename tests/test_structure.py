"""The structure of the package: which module may import which, and calls that none may contain.

A rule is a function that yields the violations in a module. RULES lists modules that break a rule,
which shows that it finds something.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The base: packages, and modules next to them, from the bottom to the top. A module imports from
# its own package and from those before it.
BASE = (
    "utils",
    "store",
    "sources",
    "config",
    "rendering",
    "model",
    "fast",
    "corpus",
    "evaluation",
    "training",
    "interchange",
    "decoding",
    "translator",
)
CHAIN = "stages"
# A feature is everything behind one or a few commands. It imports the base and the chain, and the
# features that are listed here.
FEATURES: dict[str, tuple[str, ...]] = {
    "runs": (),
    "study": ("runs",),  # the states of its runs
    "report": ("study",),  # their tables
    "export": (),
    "serve": (),
    "new": (),
    "analysis": ("new",),  # the first pairs of a text
    "benchmark": ("runs", "study", "report"),  # runs, rows, measured speeds, cost as in Table 2
}
COMMANDS = "cli"
# The modules that start everything: `import nmtkit` and `python -m nmtkit`.
TOP = ("__init__", "__main__")

# Modules of nmtkit.stages that are stages; the others are their helpers. One runs all of them.
STAGES = ("prepare", "train", "average", "translate", "score")
RUN_STAGES = "nmtkit/stages/run_all.py"
# Modules of nmtkit.cli that are not commands.
NOT_COMMANDS = ("__init__", "app", "hints", "inputs", "options")

WITHOUT_TORCH = ("utils", "store", "sources", "config", "corpus")
# Modules of these packages that import torch only in functions.
IMPORT_TORCH_LATE = (
    "nmtkit/config/settings.py",
    "nmtkit/store/tensors.py",
    "nmtkit/utils/hardware.py",
)
WRITE_TO_TERMINAL = ("cli", "rendering")
READ_RANK_VARIABLES = ("nmtkit/training/launch.py", "nmtkit/training/distributed.py")
WRITE_ATOMICALLY = ("nmtkit/store/files.py", "nmtkit/store/locks.py")


@dataclass(frozen=True)
class Module:
    """A parsed Python file."""

    path: str  # relative to the root, such as nmtkit/fast/packing.py
    tree: ast.Module

    @property
    def package(self) -> str:
        """The folder of nmtkit that contains it, or its own name if it is in none."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1].removesuffix(".py")

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)

    def imports(self) -> Iterator[str]:
        """Yield the modules and names that it imports, with their packages, such as a.b.c."""
        for node in self.nodes():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"

    def calls(self) -> Iterator[tuple[str, str, ast.Call]]:
        """Yield the calls as the text before the dot, the name of the function, and the call."""
        for node in self.nodes():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr, node
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield "", node.func.id, node


Rule = Callable[[Module], Iterator[str]]


# The rules


def may_import(package: str) -> set[str]:
    """Return the packages that the modules of a package may import, besides their own."""
    if package in BASE:
        return set(BASE[: BASE.index(package)])
    if package == CHAIN:
        return set(BASE)
    if package in FEATURES:
        return {*BASE, CHAIN, *FEATURES[package]}
    return {*BASE, CHAIN, *FEATURES}


def imports_point_down(module: Module) -> Iterator[str]:
    """A module imports its own package and those that the order of packages allows."""
    if module.package in TOP:
        return
    if module.package not in (*BASE, CHAIN, *FEATURES, COMMANDS):
        yield f"package {module.package} has no place in the order"
        return
    allowed = {module.package, "__version__", *may_import(module.package)}
    for name in module.imports():
        parts = name.split(".")
        if parts[0] == "nmtkit" and len(parts) > 1 and parts[1] not in allowed:
            yield f"imports {name}"


def commands_do_not_import_commands(module: Module) -> Iterator[str]:
    """Code that two commands share belongs in a library."""
    if module.package != "cli" or module.name in ("__init__", "app"):
        return
    for name in module.imports():
        parts = name.split(".")
        if parts[:2] != ["nmtkit", "cli"] or len(parts) == 2:
            continue
        if parts[2] not in (*NOT_COMMANDS, module.name):
            yield f"imports {name}"


def stages_do_not_import_stages(module: Module) -> Iterator[str]:
    """A stage reads the artifacts of another one, and calls none of its functions."""
    if module.package != "stages" or module.path == RUN_STAGES:
        return
    for name in module.imports():
        parts = name.split(".")
        if parts[:2] == ["nmtkit", "stages"] and len(parts) > 2 and parts[2] in STAGES:
            yield f"imports {name}"


def libraries_do_not_receive_recipes(module: Module) -> Iterator[str]:
    """A library receives at most a section of the recipe."""
    if module.package not in ("model", "fast", "training", "rendering"):
        return
    for name in module.imports():
        if name.startswith("nmtkit.config.recipe") and not name.endswith("Config"):
            yield f"imports {name}"


def text_needs_no_torch(module: Module) -> Iterator[str]:
    """Text is prepared, and recipes are read, without waiting for torch."""
    if module.package not in WITHOUT_TORCH:
        return
    tree = module.tree
    if module.path in IMPORT_TORCH_LATE:
        statements = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        tree = ast.Module(list(statements), [])
    for name in Module(module.path, tree).imports():
        if name.split(".")[0] == "torch":
            yield f"imports {name}"


def libraries_do_not_print(module: Module) -> Iterator[str]:
    """Only cli, rendering and the progress module write to the terminal."""
    if module.package in WRITE_TO_TERMINAL or module.package in TOP:
        return
    if module.path in ("nmtkit/utils/progress.py", "nmtkit/utils/streams.py"):
        return
    for name in module.imports():
        # rich.filesize only formats numbers.
        if name.split(".")[0] in ("rich", "typer") and not name.startswith("rich.filesize"):
            yield f"imports {name}"
    for before, name, _ in module.calls():
        if (before, name) == ("", "print"):
            yield "prints"
    for node in module.nodes():
        stream = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        # `nmtkit translate --bundle` writes translations to standard output, like a filter.
        is_output = stream == "sys.stdout" and module.path == "nmtkit/decoding/text_files.py"
        if stream in ("sys.stdout", "sys.stderr") and not is_output:
            yield f"uses {stream}"


def rank_variables_have_two_readers(module: Module) -> Iterator[str]:
    """Only the launcher of processes and the module that joins them know their number."""
    if module.path in READ_RANK_VARIABLES:
        return
    for node in module.nodes():
        if isinstance(node, ast.Constant) and node.value in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            yield f"names the variable {node.value}"


def dangerous_calls_are_banned(module: Module) -> Iterator[str]:
    """No pickle, no unpacking of archives to disk, no shell, no lines split at U+2028."""
    for name in module.imports():
        if name.split(".")[0] in ("pickle", "dill", "cloudpickle", "shelve", "marshal"):
            yield f"imports {name}"
        if name == "torch.load":
            yield f"imports {name}"
    for before, name, call in module.calls():
        arguments = {keyword.arg: keyword.value for keyword in call.keywords}
        if (before, name) == ("torch", "load") and not _is_constant(
            arguments.get("weights_only"), True
        ):
            yield "calls torch.load without weights_only=True"
        if name in ("extractall", "splitlines"):
            yield f"calls {name}"
        for argument in ("allow_pickle", "shell"):
            if argument in arguments and not _is_constant(arguments[argument], False):
                yield f"calls {name} with {argument}"


def _is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def only_store_writes_atomically(module: Module) -> Iterator[str]:
    """Only nmtkit.store.files syncs and renames files, and only nmtkit.store.locks locks them."""
    if module.path in WRITE_ATOMICALLY:
        return
    for before, name, call in module.calls():
        # `str.replace` has two arguments, `Path.replace` has one.
        is_path_method = len(call.args) == 1 and not call.keywords
        if name in ("flock", "lockf", "fsync"):
            yield f"line {call.lineno}: calls {name}"
        if name in ("rename", "replace") and (before in ("os", "shutil") or is_path_method):
            yield f"line {call.lineno}: calls {name}"
        if (before, name) == ("shutil", "move"):
            yield f"line {call.lineno}: calls shutil.move"


def text_files_have_an_encoding(module: Module) -> Iterator[str]:
    """Text is UTF-8 on every machine; HTTP's own headers are latin-1."""
    for before, name, call in module.calls():
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if not _opens_text(before, name, call, keywords):
            continue
        encoding = keywords.get("encoding")
        if not (isinstance(encoding, ast.Constant) and encoding.value in ("utf-8", "latin-1")):
            yield f"line {call.lineno}: {ast.unparse(call)} has no encoding"


def _opens_text(
    before: str, name: str, call: ast.Call, keywords: dict[str | None, ast.expr]
) -> bool:
    """Return whether a call opens a file in text mode."""
    if name in ("read_text", "write_text", "TextIOWrapper"):
        return True
    is_own_class = before.rsplit(".", 1)[-1][:1].isupper()  # Ids.open(...)
    if name != "open" or is_own_class or before in ("os", "tarfile", "archive", "opener"):
        return False
    # The mode is the first argument of `path.open`, and the second of the functions.
    is_function = before in ("", "io", "gzip")
    position = 1 if is_function else 0
    mode = call.args[position] if len(call.args) > position else keywords.get("mode")
    if mode is None:
        return before != "gzip"
    letters = str(mode.value) if isinstance(mode, ast.Constant) else ""
    return "t" in letters if before == "gzip" else "b" not in letters


def modules_have_docstrings(module: Module) -> Iterator[str]:
    """A module begins with a docstring about its purpose."""
    if not ast.get_docstring(module.tree):
        yield "has no docstring"


# The rules at work

# For each rule, modules that break it: their paths and their contents.
RULES: dict[Rule, list[tuple[str, str]]] = {
    imports_point_down: [
        ("nmtkit/model/a.py", "from nmtkit.training.loop import train"),
        ("nmtkit/corpus/a.py", "from nmtkit import translator"),
        ("nmtkit/stages/a.py", "from nmtkit.cli.app import main"),
        ("nmtkit/stages/a.py", "from nmtkit.runs.listing import states"),
        ("nmtkit/study/a.py", "from nmtkit.report.results import TABLES"),
        ("nmtkit/export/a.py", "from nmtkit.analysis import corpus"),
        ("nmtkit/new/a.py", "from nmtkit.analysis import corpus"),
        ("nmtkit/training/a.py", "def f():\n    import nmtkit.interchange.names"),
        ("nmtkit/utils/a.py", "from nmtkit.unknown import f"),
        ("nmtkit/unknown/a.py", ""),
        ("nmtkit/unknown.py", ""),
    ],
    commands_do_not_import_commands: [
        ("nmtkit/cli/run.py", "from nmtkit.cli.train import train"),
        ("nmtkit/cli/run.py", "from nmtkit.cli import train"),
        ("nmtkit/cli/options.py", "from nmtkit.cli.train import train"),
    ],
    stages_do_not_import_stages: [
        ("nmtkit/stages/train.py", "from nmtkit.stages.prepare import run"),
        ("nmtkit/stages/pipeline.py", "from nmtkit.stages import train"),
    ],
    libraries_do_not_receive_recipes: [
        ("nmtkit/training/a.py", "from nmtkit.config.recipe import Recipe"),
        ("nmtkit/model/a.py", "import nmtkit.config.recipe"),
    ],
    text_needs_no_torch: [
        ("nmtkit/corpus/a.py", "import torch"),
        ("nmtkit/config/recipe.py", "def f():\n    from torch.nn import Linear"),
        ("nmtkit/store/tensors.py", "from torch import Tensor"),
    ],
    libraries_do_not_print: [
        ("nmtkit/stages/a.py", "from rich.console import Console"),
        ("nmtkit/training/a.py", "print(1)"),
        ("nmtkit/corpus/a.py", "import sys\nsys.stderr.write('')"),
        ("nmtkit/utils/errors.py", "import sys\nsys.stdout.write('')"),
    ],
    rank_variables_have_two_readers: [("nmtkit/training/loop.py", "import os\nos.environ['RANK']")],
    dangerous_calls_are_banned: [
        ("nmtkit/training/a.py", "torch.load(path)"),
        ("nmtkit/training/a.py", "from torch import load"),
        ("nmtkit/training/a.py", "import pickle"),
        ("nmtkit/corpus/a.py", "np.load(path, allow_pickle=True)"),
        ("nmtkit/corpus/a.py", "archive.extractall(folder)"),
        ("nmtkit/corpus/a.py", "subprocess.run(command, shell=True)"),
        ("nmtkit/corpus/a.py", "text.splitlines()"),
    ],
    only_store_writes_atomically: [
        ("nmtkit/sources/a.py", "fcntl.flock(file, fcntl.LOCK_EX)"),
        ("nmtkit/store/artifacts.py", "draft.rename(place)"),
        ("nmtkit/rendering/a.py", "os.replace(draft, place)"),
        ("nmtkit/stages/a.py", "shutil.move(draft, place)"),
    ],
    text_files_have_an_encoding: [
        ("nmtkit/corpus/a.py", "path.open()"),
        ("nmtkit/corpus/a.py", "open(path)"),
        ("nmtkit/corpus/a.py", "gzip.open(path, 'rt')"),
        ("nmtkit/corpus/a.py", "path.read_text()"),
        ("data/a.py", "path.write_text(text, encoding=None)"),
        ("nmtkit/corpus/a.py", "io.TextIOWrapper(stream)"),
    ],
    modules_have_docstrings: [("nmtkit/a.py", "x = 1")],
}
VIOLATIONS = [(rule, path, source) for rule, cases in RULES.items() for path, source in cases]


@cache
def parsed_modules(folder: str) -> list[Module]:
    modules = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules.append(Module(path.relative_to(ROOT).as_posix(), tree))
    return modules


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps_rule(rule: Rule) -> None:
    modules = parsed_modules("nmtkit")
    assert len(modules) > 20
    if rule is text_files_have_an_encoding:
        modules = modules + parsed_modules("data")
    violations = []
    for module in modules:
        for violation in rule(module):
            violations.append(f"{module.path} {violation}")
    assert violations == []


def test_features_import_one_way() -> None:
    seen: set[str] = set()
    # A feature whose imports were all seen imports none that leads back to it.
    for _ in FEATURES:
        seen |= {name for name, imported in FEATURES.items() if seen.issuperset(imported)}
    assert seen == FEATURES.keys()


@pytest.mark.parametrize(("rule", "path", "source"), VIOLATIONS)
def test_rule_finds_violation(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, ast.parse(source))))
