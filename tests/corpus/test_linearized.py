"""Trees as tokens: the round trip loses nothing, and any output becomes a tree."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.linearized import PUNCTUATION, linearize, read_back
from nmtkit.evaluation.bracket_f1 import compare_trees
from nmtkit.sources.treebank import normalize
from nmtkit.utils.errors import UserError

WORDS = ["The", "cat", "sat", "."]
NP = "(NP (DT The) (NN cat))"
TREE = f"(S {NP} (VP (VBD sat)) (. .))"
TOKENS = "(S (NP DT NN )NP (VP VBD )VP . )S"

labels = st.sampled_from(("S", "NP", "VP", "PP", "ADVP|PRT"))
tags = st.sampled_from(("NN", "VBD", "-LRB-", "PRP$", "NP"))  # one is a label too
words = st.from_regex(r"[^\s()\\]{1,5}", fullmatch=True).filter(lambda w: w not in PUNCTUATION)
leaves = st.tuples(tags, words)
subtrees = st.recursive(
    leaves.map(lambda leaf: f"({leaf[0]} {leaf[1]})"),
    lambda inner: st.tuples(labels, st.lists(inner, min_size=1, max_size=4)).map(
        lambda node: f"({node[0]} {' '.join(node[1])})"
    ),
    max_leaves=15,
)
trees = st.lists(subtrees, min_size=1, max_size=3).map(lambda inner: f"(TOP {' '.join(inner)})")


def words_of(tree: str) -> list[str]:
    return re.findall(r" ([^\s()]+)\)", tree)


@given(trees)
def test_tree_round_trip(tree: str) -> None:
    assert read_back(linearize(tree, "tags"), words_of(tree)) == (tree, [])
    untagged = re.sub(r"\([^\s()]+ ([^\s()]+)\)", r"(XX \1)", tree)
    assert read_back(linearize(tree, "xx"), words_of(tree)) == (untagged, [])


tokens = st.lists(
    st.one_of(
        st.sampled_from(("(S", ")S", "(NP", ")NP", "NN", ",", "''", ".", "(", ")", "((S", "N)N")),
        st.from_regex(r"\S{1,6}", fullmatch=True),
    ),
    max_size=25,
)
any_words = st.lists(
    st.one_of(st.sampled_from((*PUNCTUATION, "'", "(", "f(x)")), words), min_size=1, max_size=8
)


@given(tokens, any_words)
def test_any_output_becomes_a_tree(output: list[str], line: list[str]) -> None:
    tree, _ = read_back(" ".join(output), line)
    assert words_of(tree) == [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in line]
    assert normalize(tree, "here")[0].split() == words_of(tree)
    assert read_back(linearize(tree, "tags"), words_of(tree)) == (tree, [])


@given(tokens, any_words)
def test_trees_of_same_words_are_scored(output: list[str], line: list[str]) -> None:
    """EVALB ignores punctuation by its word; only for an apostrophe by its tag."""
    line = [word for word in line if word != "'"] or ["a"]
    tree, _ = read_back(" ".join(output), line)
    flat_tree, _ = read_back("", line)
    found = compare_trees(flat_tree, tree)
    assert (found.errors, found.skipped) == (0, all(word in PUNCTUATION for word in line))


@pytest.mark.parametrize(
    ("output", "tree", "repairs"),
    [
        (TOKENS, TREE, ""),
        # brackets
        (
            "(S (NP DT NN (VP VBD )VP . )S",
            "(S (NP (DT The) (NN cat) (VP (VBD sat)) (. .)))",
            "brackets",
        ),
        ("(S (NP DT NN )NP (VP VBD .", f"(S {NP} (VP (VBD sat) (. .)))", "brackets"),
        (f"{TOKENS} )S )S", TREE, "brackets"),
        (f"{TOKENS} (ADVP )ADVP", TREE, "brackets"),
        # words
        ("(S (NP DT NN )NP . )S", f"(S {NP} (XX sat) (. .))", "words punctuation"),
        (f"{TOKENS} (PP . )PP", TREE, "words"),
        ("(S (NP DT NN )NP (VP VBD )VP )S", f"(S {NP} (VP (VBD sat) (. .)))", "words"),
        # punctuation
        ("(S (NP DT NN )NP (VP , )VP . )S", f"(S {NP} (VP (XX sat)) (. .))", "punctuation"),
        # flat
        ("", "(S (XX The) (XX cat) (XX sat) (. .))", "words flat"),
        ("DT NN", "(S (DT The) (NN cat) (XX sat) (. .))", "words flat"),
        (")S ( (", "(S (XX The) (XX cat) (XX sat) (. .))", "brackets words flat"),
    ],
)
def test_repairs(output: str, tree: str, repairs: str) -> None:
    assert read_back(output, WORDS) == (f"(TOP {tree})", repairs.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a b",
        "(TOP (S (NN a))",
        "(TOP (NN a)) )",
        "(TOP)",
        "((S (NN a)))",
        "(TOP (NN a)) (X (Y b))",
    ],
)
def test_invalid_tree_is_refused(line: str) -> None:
    with pytest.raises(UserError, match="is not a tree"):
        linearize(line, "tags")
