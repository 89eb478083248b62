"""The pinned versions, their hashes, and their use in `make install`."""

import re
import tomllib
from pathlib import Path

import pytest

import nmtkit

ROOT = Path(__file__).resolve().parents[1]


def pinned_versions(path: str) -> dict[str, str]:
    """The versions that a file pins, by normalized name."""
    lines = (ROOT / path).read_text(encoding="utf-8").split("\n")
    pins = (re.match(r"([A-Za-z0-9_.-]+)==([^ \\]+)", line) for line in lines)
    return {re.sub("[-_.]+", "-", pin[1]).lower(): pin[2] for pin in pins if pin}


def test_locks_have_all_pins_except_torch() -> None:
    pins = pinned_versions("constraints.txt")
    assert pins.pop("torch")
    assert pinned_versions("requirements-uv.lock") == {"uv": pins.pop("uv")}
    assert len(pins) > 70
    assert pinned_versions("requirements.lock") == pins


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-uv.lock"])
def test_pinned_versions_have_hashes(lock: str) -> None:
    blocks = re.split("\n(?=[a-zA-Z])", (ROOT / lock).read_text(encoding="utf-8"))
    assert len(blocks) == 1 + len(pinned_versions(lock))
    for block in blocks[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), block


def test_dependencies_are_pinned() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ranges = {re.sub("[-_.]+", "-", name) for name in re.findall(r'"([a-z0-9-]+)>=', pyproject)}
    assert {"torch", "hatchling", "sacremoses", "ruff"} <= ranges
    assert ranges <= {*pinned_versions("constraints.txt")}


def test_install_requires_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = re.findall(r"\$\((?:PIP|UV)\) ([^|\n\\]*[^|\n\\ ])", makefile)
    assert installs == [
        "--no-deps --require-hashes -r requirements-uv.lock",
        "--no-deps --require-hashes -r requirements.lock",
        "--no-deps --require-hashes -r requirements.lock",
        "-c constraints.txt torch",
        "--no-deps --no-build-isolation -e .",
    ]


def test_image_has_files_of_wheel() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*project["license-files"], project["readme"], *wheel["packages"]}
    needed |= {*wheel["force-include"], "pyproject.toml", "requirements.lock"}
    copied = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert {name.removeprefix("!") for name in copied if name.startswith("!")} == needed
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "--no-deps --require-hashes -r requirements.lock" in dockerfile
    assert (ROOT / "nmtkit" / "py.typed").exists()


def test_version_is_in_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {nmtkit.__version__} (" in changelog
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {nmtkit.__version__}\n" in citation


def test_no_text_installs_from_index() -> None:
    """The name nmtkit is not registered in an index, so anybody could publish a package."""
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
