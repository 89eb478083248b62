"""Parsing through the command line: from trees to bracket F1, and its errors."""

import json
import random
import shutil
from pathlib import Path

import pytest
from nltk.tree import Tree

from system.command import RECIPE, artifact, done, nmtkit, read_lines, sentence
from system.conftest import recipe

NOUNS = ("ants", "bees", "cats", "dogs")
VERBS = ("eat", "fear", "go", "help")
N_TREES = {"02": 150, "20": 150, "22": 12, "23": 20}
PARSER = recipe(
    tgt_lang='"tree"\nlinearization = "tags"',
    train='[{ treebank = "wsj", sections = ["02-21"] }]',
    dev='{ treebank = "wsj", sections = ["22"] }',
    sets='[{ name = "test", treebank = "wsj", sections = ["23"] }]',
    tokenizer='"none"',
    max_extra_tokens=30,
    max_steps=240,
).replace("[scoring]", '[scoring]\nmetric = "bracket_f1"')


def random_tree(generator: random.Random) -> str:
    """A tree whose verb decides whether it has an object; with traces and function tags."""
    noun = generator.choice(NOUNS)
    verb = generator.choice(VERBS)
    adverb = "(ADVP-MNR (RB often))" if generator.random() < 0.5 else "(NP (-NONE- *))"
    object_ = "" if verb == "go" else f" (NP (NNS {generator.choice(NOUNS)}))"
    return f"( (S (NP-SBJ-1 (NNS {noun})) (VP (VBP {verb}){object_} {adverb}) (. .)) )"


def write_treebank(folder: Path) -> None:
    generator = random.Random(2)
    for section, n in N_TREES.items():
        path = folder / "wsj" / section / f"wsj_{section}07.mrg"
        path.parent.mkdir(parents=True)
        text = "\n".join(random_tree(generator).replace(" (VP", "\n    (VP") for _ in range(n))
        path.write_text(text, encoding="utf-8", newline="\n")
    (folder / RECIPE).write_text(PARSER, encoding="utf-8", newline="\n")


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    write_treebank(folder)
    done(nmtkit(folder, "run", RECIPE, "--workers", "1"))
    return folder


def bundle(parser: Path) -> str:
    return str(artifact(parser, "average"))


@pytest.mark.slow
def test_parser_learns_and_is_scored(parser: Path) -> None:
    scores = json.loads((artifact(parser, "score") / "scores.json").read_bytes())["test"]
    assert set(scores) == {"bracket_f1", "test_set"}
    found = scores["bracket_f1"]
    assert found["score"] > 95
    assert found["sentences"] == scores["test_set"]["lines"] == N_TREES["23"]
    assert found["repaired"] <= 2
    last = json.loads(read_lines(artifact(parser, "train") / "metrics.jsonl")[-1])
    assert last["dev_bracket_f1"] > 90
    assert last["dev_sacrebleu"] is None
    for command in (("run", RECIPE), ("runs",)):
        assert "bracket F1" in done(nmtkit(parser, *command)).out

    hyps, refs = (
        artifact(parser, "translate") / "test" / f"{name}.txt"
        for name in ("hypotheses", "reference")
    )
    options = ("--metric", "bracket-f1", "--json")
    file_scores = json.loads(done(nmtkit(parser, "score", str(hyps), str(refs), *options)).out)
    expected = {key: value for key, value in found.items() if key != "repaired"}
    assert file_scores[str(hyps)]["bracket_f1"] == expected
    worse = refs.read_text(encoding="utf-8").replace("(VP", "(NP")
    (parser / "worse.txt").write_text(worse, encoding="utf-8", newline="\n")
    compared = json.loads(done(nmtkit(parser, "compare", RECIPE, "worse.txt", "--json")).out)
    tests = compared["systems"][1]["tests"].values()
    assert all(test["bracket_f1"]["p_value"] < 0.01 for test in tests)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_bundle_prints_whole_trees(parser: Path, engine: str) -> None:
    long_line = " ".join(["dogs fear cats ."] * 120)
    text = ["dogs fear cats often .", "", "( dogs ) go .", "unseen wörds ?", long_line]
    stdin = "".join(f"{line}\n" for line in text).encode()
    options = ("--bundle", bundle(parser), "--engine", engine)
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
def test_parser_is_forced_not_exported(parser: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("dogs go .\n", encoding="utf-8")
    (tmp_path / "tree").write_text("(TOP (S (NP (NNS dogs)) (VP (VBP go)) (. .)))\n", "utf-8")
    (tmp_path / "text").write_text("no tree\n", "utf-8")
    force = ("force", "--bundle", bundle(parser), f"{tmp_path}/src")
    assert float(done(nmtkit(parser, *force, f"{tmp_path}/tree")).out.split("\t")[1]) < 1.5
    assert "'no tree' is not a tree" in sentence(nmtkit(parser, *force, f"{tmp_path}/text"))
    for name in ("ctranslate2", "huggingface"):
        message = sentence(nmtkit(tmp_path, "export", bundle(parser), "exported", "--format", name))
        assert "parser" in message
        assert not (tmp_path / "exported").exists()


@pytest.mark.slow
def test_parser_is_fine_tuned(parser: Path, tmp_path: Path) -> None:
    shutil.copytree(parser / "wsj", tmp_path / "wsj")
    tuned = (
        PARSER.replace('"bpe"\nn_merges = 20', f'"bundle"\npath = "{bundle(parser)}"')
        .replace("max_steps = 240", f'max_steps = 20\nstart_from = "{bundle(parser)}"')
        .replace('["02-21"]', '["20"]')
    )
    (tmp_path / RECIPE).write_text(tuned, encoding="utf-8", newline="\n")
    done(nmtkit(tmp_path, "run", RECIPE, "--workers", "1"))
    scores = json.loads((artifact(tmp_path, "score") / "scores.json").read_bytes())["test"]
    assert scores["bracket_f1"]["score"] > 95


def test_paper_recipe_reads_treebank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = ("prepare", "wsj-parsing", "--workers", "1")
    monkeypatch.delenv("PENN_TREEBANK", raising=False)
    assert "PENN_TREEBANK" in sentence(nmtkit(tmp_path, *prepare))
    write_treebank(tmp_path / "parsed" / "mrg")
    monkeypatch.setenv("PENN_TREEBANK", str(tmp_path))
    prepared = tmp_path / done(nmtkit(tmp_path, *prepare)).out.strip()
    counts = json.loads((prepared / "counts.json").read_bytes())
    assert counts["train"][0]["kept"] == N_TREES["02"] + N_TREES["20"]
