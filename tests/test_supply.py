"""The pins, their hashes, and what `make install` does with both."""

import re
import tomllib
from pathlib import Path

import nmtkit

ROOT = Path(__file__).resolve().parents[1]


def names_of(path: str) -> dict[str, str]:
    """The versions that a file pins, by the normal form of the names."""
    lines = (ROOT / path).read_text(encoding="utf-8").split("\n")
    pins = (re.match(r"([A-Za-z0-9_.-]+)==([^ \\]+)", line) for line in lines)
    return {re.sub("[-_.]+", "-", pin[1]).lower(): pin[2] for pin in pins if pin}


def test_the_lock_has_the_pins_but_torch() -> None:
    pins = names_of("constraints.txt")
    assert pins.pop("torch")
    assert len(pins) > 70
    assert names_of("requirements.lock") == pins


def test_each_version_has_the_hashes_of_its_files() -> None:
    blocks = re.split("\n(?=[a-zA-Z])", (ROOT / "requirements.lock").read_text(encoding="utf-8"))
    assert len(blocks) == 1 + len(names_of("requirements.lock"))
    for block in blocks[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), block


def test_what_the_project_needs_is_pinned() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ranges = {re.sub("[-_.]+", "-", name) for name in re.findall(r'"([a-z0-9-]+)>=', pyproject)}
    assert {"torch", "hatchling", "sacremoses", "ruff"} <= ranges
    assert ranges <= {*names_of("constraints.txt")}


def test_installing_takes_nothing_without_a_hash_but_torch() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = re.findall(r"^\t\$\(PIP\) (.*)$", makefile, flags=re.MULTILINE)
    assert installs == [
        "--no-deps --require-hashes -r requirements.lock",
        "-c constraints.txt torch",
        "--no-deps --no-build-isolation -e .",
    ]


def test_an_image_has_all_that_the_wheel_is_made_of() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, wheel = pyproject["project"], pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*project["license-files"], project["readme"], *wheel["packages"]}
    needed |= {*wheel["force-include"], "pyproject.toml", "requirements.lock"}
    copied = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert {name.removeprefix("!") for name in copied if name.startswith("!")} == needed
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "--no-deps --require-hashes -r requirements.lock" in dockerfile
    assert (ROOT / "nmtkit" / "py.typed").exists()


def test_this_version_is_in_the_changelog_and_the_citation() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {nmtkit.__version__} (" in changelog
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {nmtkit.__version__}\n" in citation


def test_no_message_installs_our_name_from_an_index() -> None:
    """No package nmtkit is published, so that somebody else could publish one."""
    paths = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in ("nmtkit", "data", "pipelines", ".github", ".ci"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    suffixes = (".py", ".md", ".toml", ".j2", ".sh", ".yml", ".cff", "")
    texts = [path for path in paths if path.suffix in suffixes]
    assert len(texts) > 100
    for path in texts:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"\b(install|uvx|pipx run|uv add) [^`\n]*\bnmtkit\b", text), path


def test_actions_are_pinned_by_commit() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for workflow in workflows:
        text = workflow.read_text(encoding="utf-8")
        actions = re.findall(r"uses: (\S+)", text)
        assert actions
        for action in actions:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
