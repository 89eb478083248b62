"""Parsing through the command line: from trees to bracket F1, and what is refused on the way."""

import json
import random
import shutil
from pathlib import Path

import pytest
from nltk.tree import Tree
from typer.testing import CliRunner

from nmtkit import cli
from system.command import RECIPE, artifact, done, nmtkit, sentence
from system.conftest import TOML

NOUNS, VERBS = ("ants", "bees", "cats", "dogs"), ("eat", "fear", "go", "help")
SENTENCES = {"02": 150, "20": 150, "22": 12, "23": 20}
PARSER = (
    TOML.replace('tgt_lang = "de"', 'tgt_lang = "tree"\nlinearization = "tags"')
    .replace('train = [{ src = "train.en", tgt = "train.de" }]',
             'train = [{ treebank = "wsj", sections = ["02-21"] }]')
    .replace('dev = { src = "dev.en", tgt = "dev.de" }',
             'dev = { treebank = "wsj", sections = ["22"] }')
    .replace('tokenizer = "moses"', 'tokenizer = "none"')
    .replace("max_extra_tokens = 10", "max_extra_tokens = 30")
    .replace("max_steps = 120", "max_steps = 240")
    .replace('{ name = "test", src = "test.en", tgt = "test.de" }',
             '{ name = "test", treebank = "wsj", sections = ["23"] }')
    + 'metric = "bracket_f1"\n'
)  # fmt: skip


def tree_of(generator: random.Random) -> str:
    """A tree whose verb decides whether it has an object; with traces and function tags."""
    noun, verb = generator.choice(NOUNS), generator.choice(VERBS)
    adverb = "(ADVP-MNR (RB often))" if generator.random() < 0.5 else "(NP (-NONE- *))"
    object_ = "" if verb == "go" else f" (NP (NNS {generator.choice(NOUNS)}))"
    return f"( (S (NP-SBJ-1 (NNS {noun})) (VP (VBP {verb}){object_} {adverb}) (. .)) )"


def write_treebank(folder: Path) -> None:
    generator = random.Random(2)
    for section, n in SENTENCES.items():
        path = folder / "wsj" / section / f"wsj_{section}07.mrg"
        path.parent.mkdir(parents=True)
        text = "\n".join(tree_of(generator).replace(" (VP", "\n    (VP") for _ in range(n))
        path.write_text(text, encoding="utf-8", newline="\n")
    (folder / RECIPE).write_text(PARSER, encoding="utf-8", newline="\n")


@pytest.fixture(scope="session")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    write_treebank(folder)
    done(nmtkit(folder, "run", RECIPE, "--workers", "1"))
    return folder


def bundle(parser: Path) -> Path:
    return artifact(parser, "average")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
def test_a_parser_learns_and_is_scored_by_bracket_f1(parser: Path) -> None:
    scores = json.loads((artifact(parser, "score") / "scores.json").read_bytes())["test"]
    assert set(scores) == {"bracket_f1", "test_set"}
    found = scores["bracket_f1"]
    assert found["score"] > 95
    assert found["sentences"] == scores["test_set"]["lines"] == SENTENCES["23"]
    assert found["repaired"] <= 2
    assert found["up_to_40_words"]["f1"] == found["score"]
    again = done(nmtkit(parser, "run", RECIPE))
    assert "bracket F1" in again.out
    for shown in ("repaired", "tagging accuracy", "COLLINS.prm"):
        assert shown in again.out
    assert "bracket F1" in done(nmtkit(parser, "runs")).out
    last = json.loads(lines(artifact(parser, "train") / "metrics.jsonl")[-1])
    assert last["dev_bracket_f1"] > 90
    assert last["dev_sacrebleu"] is None


@pytest.mark.slow
def test_files_of_trees_are_scored_and_compared(parser: Path) -> None:
    hyps, refs = (
        artifact(parser, "translate") / "test" / f"{name}.txt"
        for name in ("hypotheses", "reference")
    )
    scores = json.loads((artifact(parser, "score") / "scores.json").read_bytes())["test"]
    options = ("--metric", "bracket-f1", "--json")
    found = json.loads(done(nmtkit(parser, "score", str(hyps), str(refs), *options)).out)
    expected = {k: v for k, v in scores["bracket_f1"].items() if k != "repaired"}
    assert found[str(hyps)]["bracket_f1"] == expected
    other = parser / "other.txt"
    text = "".join(f"{line.replace('(VP', '(NP')}\n" for line in lines(refs))
    other.write_text(text, encoding="utf-8", newline="\n")
    found = json.loads(done(nmtkit(parser, "compare", RECIPE, str(other), "--json")).out)
    assert found["sentence_metric"] == "bracket F1"
    tests = found["systems"][1]["tests"]
    assert all(test["bracket_f1"]["p_value"] < 0.01 for test in tests.values())
    assert "worse (both p < 0.05)" in done(nmtkit(parser, "compare", RECIPE, str(other))).out


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_bundle_prints_whole_trees_with_their_words(parser: Path, engine: str) -> None:
    long_line = " ".join(["dogs fear cats ."] * 120)
    text = ["dogs fear cats often .", "", "( dogs ) go .", "unseen wörds ?", long_line]
    stdin = "".join(f"{line}\n" for line in text).encode()
    options = ("--bundle", str(bundle(parser)), "--engine", engine)
    out = done(nmtkit(parser, "translate", *options, stdin=stdin)).out.split("\n")
    assert out.pop() == ""
    assert out[0] == (
        "(TOP (S (NP (NNS dogs)) (VP (VBP fear) (NP (NNS cats)) (ADVP (RB often))) (. .)))"
    )
    assert out[1] == ""
    for line, tree in zip(text, out, strict=True):
        if line:
            words = line.replace("(", "-LRB-").replace(")", "-RRB-").split()
            assert Tree.fromstring(tree).leaves() == words
            assert tree.startswith("(TOP (")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctranslate2", "huggingface"])
def test_a_parser_is_not_exported(parser: Path, tmp_path: Path, how: str) -> None:
    target = tmp_path / "exported"
    ended = nmtkit(parser, "export", str(bundle(parser)), str(target), "--format", how)
    assert "is a parser: only nmtkit makes trees" in sentence(ended)
    assert not target.exists()


@pytest.mark.slow
def test_given_trees_are_rated(parser: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("dogs go .\n", encoding="utf-8")
    command = ("force", str(tmp_path / "src"), str(tmp_path / "tgt"), "--bundle")
    (tmp_path / "tgt").write_text("(TOP (S (NP (NNS dogs)) (VP (VBP go)) (. .)))\n", "utf-8")
    assert float(done(nmtkit(parser, *command, str(bundle(parser)))).out.split("\t")[1]) < 1.5
    (tmp_path / "tgt").write_text("no tree\n", "utf-8")
    assert "'no tree' is not a tree" in sentence(nmtkit(parser, *command, str(bundle(parser))))


@pytest.mark.slow
def test_a_parser_is_fine_tuned_on_other_trees(parser: Path) -> None:
    folder = parser / "tuned"
    shutil.copytree(parser / "wsj", folder / "wsj")
    text = PARSER.replace(
        'method = "bpe"\nn_merges = 20', f'method = "bundle"\npath = "{bundle(parser)}"'
    )
    text = text.replace("max_steps = 240", f'max_steps = 20\nstart_from = "{bundle(parser)}"')
    (folder / RECIPE).write_text(
        text.replace('["02-21"]', '["20"]'), encoding="utf-8", newline="\n"
    )
    done(nmtkit(folder, "run", RECIPE, "--workers", "1"))
    scores = json.loads((artifact(folder, "score") / "scores.json").read_bytes())["test"]
    assert scores["bracket_f1"]["score"] > 95


def test_the_recipe_of_the_paper_reads_a_copy_of_the_penn_treebank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--runs-dir", str(tmp_path / "runs"))
    monkeypatch.delenv("PENN_TREEBANK", raising=False)
    said = refused("prepare", "wsj-parsing", *options)
    assert "the environment has no PENN_TREEBANK; set it to the folder" in said
    write_treebank(tmp_path / "parsed" / "mrg")
    monkeypatch.setenv("PENN_TREEBANK", str(tmp_path))
    result = CliRunner().invoke(cli.app, ["prepare", "wsj-parsing", *options, "--workers", "1"])
    assert result.exit_code == 0, result.output
    counts = json.loads((Path(result.stdout.split()[-1]) / "counts.json").read_bytes())
    assert counts["train"][0]["kept"] == SENTENCES["02"] + SENTENCES["20"]


# What is refused


def refused(*args: str) -> str:
    result = CliRunner().invoke(cli.app, [*args])
    assert result.exception is not None
    return str(result.exception)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('["02-21"]', '["05"]', "wsj has no section 05: none of its 4 files"),
        ('linearization = "tags"', "", 'a parser has tgt_lang = "tree" and a linearization'),
        ('tgt_lang = "tree"', 'tgt_lang = "de"', 'a parser has tgt_lang = "tree"'),
        ('tokenizer = "none"', 'tokenizer = "moses"', "the words of trees stay as they are"),
        ('metric = "bracket_f1"', "", 'metric = "bleu" does not fit the target'),
        (
            '{ treebank = "wsj", sections = ["02-21"] }',
            '{ src = "a", tgt = "b" }',
            "a-b is plain text; a parser needs trees",
        ),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    write_treebank(tmp_path)
    assert before in PARSER
    recipe = tmp_path / RECIPE
    recipe.write_text(PARSER.replace(before, after), encoding="utf-8", newline="\n")
    said = refused("prepare", str(recipe), "--runs-dir", str(tmp_path / "runs"))
    assert message in said
