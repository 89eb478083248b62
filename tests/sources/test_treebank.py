"""Trees in Penn Treebank brackets: normalization, sections and errors."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import datasets
import pytest
from texts import EN, NO_DOWNLOADS, rows_of

from nmtkit.sources.dataset import HubSource
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.treebank import Treebank, normalize, read_trees
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE

BRACKETS = "(TOP (S (NP (NN Sales)) (VP (VBD rose)) (. .)))"


@pytest.mark.parametrize(
    ("text", "words", "tree"),
    [
        ("( (S (NP-SBJ-1 (NN Sales)) (VP (VBD rose)) (. .)))", "Sales rose .", BRACKETS),
        ("(ROOT (S (NP=2 (NN Sales)) (VP|X (VBD rose))))", "Sales rose", None),
        ("(S (NP (NN Sales)))", "Sales", "(TOP (S (NP (NN Sales))))"),
        ("(TOP (NP (-LRB- -LRB-) (NN a)))", "-LRB- a", "(TOP (NP (-LRB- -LRB-) (NN a)))"),
        ("((S (NP (-NONE- *)) (VP (VB Go) (S (-NONE- 0)))))", "Go", "(TOP (S (VP (VB Go))))"),
        ("( (NP (NN a)) (. .))", "a .", "(TOP (NP (NN a)) (. .))"),
        ("(NN a)", "a", "(TOP (NN a))"),
        ("((S (NP-SBJ\n  (NN a) )\n)  )", "a", "(TOP (S (NP (NN a))))"),
        ("((X-Y (ADVP|PRT (NN-X a))))", "a", "(TOP (X (ADVP|PRT (NN-X a))))"),
    ],
)
def test_tree_is_normalized(text: str, words: str, tree: str | None) -> None:
    found = normalize(text, "here")
    assert found[0] == words
    assert tree in (None, found[1])
    assert normalize(found[1], "here") == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{BRACKETS}\n{BRACKETS})\n",
            r"a\.mrg, line 2: Un-matched close paren at char \d+; write trees",
        ),
        (f"{BRACKETS}\n(TOP (S (NN a))\n", r"a\.mrg ends within a tree"),
        (f"{BRACKETS}\n( )\n", r"line 2: \( \) is an empty tree"),
        ("(S (NP (-NONE- *)))", r"line 1: .* is an empty tree"),
        ("(S (NP SBJ (NN a)))", r"line 1: .* \(NP \.\.\.\) is neither .* no spaces"),
        ("(S (NN two words))", r"line 1: .* \(NN \.\.\.\) is neither"),
        (r"(S\( (NN b)))", "line 1: .*; correct it"),
        ("(S (NN a(b)))", r"line 1: .*brackets of the text are -LRB-"),
        ("(S ((NN a)))", "line 1: .* is neither"),
        ("The cat sat .", r"line 1: The cat sat \. is not a tree"),
        ("(S" + "\n" * 2**20, r"line [\d,]+: Un-matched open paren"),
        ("(S " * 3_000 + ")" * 3_000, "line 1: .* is not a tree"),
    ],
)
def test_invalid_tree_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.mrg"
    path.write_text(text, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=message):
        list(read_trees(TextFile(path)))


def test_wordless_brackets_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Phrases with only a trace are not counted: they are removed in all treebanks."""
    trees = [
        "((S (NP (NN well) (HYPH ) (VBN known)) (NP (-NONE- *)) (VP (VBD rose))))",
        BRACKETS,
        "(TOP (S (NP\n) (NP-SBJ-1 (NN ) (NN a))))",
    ]
    path = tmp_path / "a.mrg"
    path.write_text("\n".join(trees), encoding="utf-8", newline="\n")
    pairs = rows_of(Treebank(treebank=str(path)), EN, TREE)
    assert [words for words, _ in pairs] == ["well known rose", "Sales rose .", "a"]
    assert pairs[0][1] == "(TOP (S (NP (NN well) (VBN known)) (VP (VBD rose))))"
    assert "3 brackets without a word" in capsys.readouterr().err
    path.write_text(BRACKETS, encoding="utf-8", newline="\n")
    rows_of(Treebank(treebank=str(path)), EN, TREE)
    assert capsys.readouterr().err == ""


def write_treebank(folder: Path) -> Path:
    for number in ("0001", "0063", "0101", "0270", "2199"):
        path = folder / "wsj" / number[:2] / f"wsj_{number}.mrg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"((NP (NN w{number})))\n", encoding="utf-8", newline="\n")
    (folder / "wsj" / "readme").write_text("no tree", encoding="utf-8")
    return folder / "wsj"


def zipped(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "wsj.zip", "w") as archive:
        for path in sorted(write_treebank(folder).rglob("*"), reverse=True):
            archive.write(path, path.relative_to(folder).as_posix())
    return folder / "wsj.zip"


@pytest.mark.parametrize("packed", [write_treebank, zipped])
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ((), "w0001 w0063 w0101 w0270 w2199"),
        (("02-21",), "w0270 w2199"),
        (("00",), "w0001 w0063"),
        (("0050-0099", "01"), "w0063 w0101"),
    ],
)
def test_sections_by_file_numbers(
    tmp_path: Path, packed: Callable[[Path], Path], sections: tuple[str, ...], words: str
) -> None:
    place = packed(tmp_path)
    corpus = find_corpus(Treebank(treebank=str(place), sections=sections), EN, TREE)
    pairs = list(corpus.pairs(NO_DOWNLOADS))
    assert " ".join(word for word, _ in pairs) == words
    assert all(tree == f"(TOP (NP (NN {word})))" for word, tree in pairs)
    assert corpus.prepared_bytes(NO_DOWNLOADS) > 0


@pytest.mark.parametrize(
    ("name", "sections", "message"),
    [
        ("wsj", ("00", "05-06"), r"has no section 05-06: none of its 5 tree files"),
        ("wsj.zip", ("22",), r"wsj\.zip has no section 22"),
        ("wsj/00/wsj_0001.mrg", ("00",), "has no sections"),
        ("nowhere", (), "does not exist"),
        ("empty", (), "has no tree files"),
        ("$NO_SUCH_VARIABLE/wsj", (), r"NO_SUCH_VARIABLE .* is not set"),
        ("$EMPTY_VARIABLE", (), r"EMPTY_VARIABLE .* is not set"),
    ],
)
def test_incomplete_treebank_is_refused(
    tmp_path: Path,
    name: str,
    sections: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY_VARIABLE", "")
    zipped(tmp_path)
    (tmp_path / "empty").mkdir()
    place = name if name.startswith("$") else str(tmp_path / name)
    corpus = find_corpus(Treebank(treebank=place, sections=sections), EN, TREE)
    with pytest.raises(UserError, match=message):
        list(corpus.pairs(NO_DOWNLOADS))


def test_trees_of_the_hub_are_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = ["( (S (NP-SBJ (NN Sales) (HYPH )) (VP (VBD rose)) (. .)) )", "no tree"]
    rows = datasets.Dataset.from_dict({"en": ["unused", ""], "tree": trees})
    builder = Mock(**{"info.splits": ["train"], "as_dataset.return_value": rows})
    monkeypatch.setattr("nmtkit.sources.dataset._builder", lambda *_: builder)
    hub = HubSource(huggingface="a/trees", subset="wsj", split="train", revision="0" * 40)
    pairs = find_corpus(hub, EN, TREE).pairs(NO_DOWNLOADS)
    assert next(pairs) == ("Sales rose .", BRACKETS)
    with pytest.raises(UserError, match=r"a/trees .*train, row 2"):
        next(pairs)
