"""Trees as sequences of tokens, which a parser writes (section 6.3), and back.

    (TOP (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .)))
    (S (NP DT NN )NP (VP VBD )VP . )S

The words and the outer bracket are left out, as in the paper's published code: the source has the
words, and each tag stands for one of them. Vinyals et al. (2015), whom the paper follows, write XX
for each tag; `[corpus] linearization` chooses between the two.

Deviation: the brackets are those of Vinyals et al., "(NP" and ")NP". The published code writes "NP"
and "/NP", which does not tell an opening bracket from a tag. Both have one token for a bracket.
"""

import re
from collections.abc import Sequence
from typing import Literal

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

Linearization = Literal["tags", "xx"]
Repair = Literal["brackets", "words", "flat", "punctuation"]

XX = "XX"  # the tag of a word if none is known
FLAT = "S"  # the one label of a tree that nothing is known of
# The tags of punctuation, which the words alone determine; an apostrophe may also be a POS.
PUNCTUATION = {
    ",": ",",
    **dict.fromkeys(("``", "`"), "``"),
    "''": "''",
    **dict.fromkeys((".", "?", "!"), "."),
    **dict.fromkeys((":", ";", "--", "-", "..."), ":"),
}
_PUNCTUATION_TAGS = frozenset(PUNCTUATION.values())

_NODE = re.compile(
    r"\((?P<tag>[^\s()]+) (?P<word>[^\s()]+)\)|\((?P<label>[^\s()]+) ?|(?P<end>\)) ?"
)


def linearize(tree: str, how: Linearization) -> str:
    """Return the tokens of a tree that `sources.treebank` normalized."""
    tokens: list[str] = []
    opened: list[str] = []
    end = 0
    for node in _NODE.finditer(tree):
        if node.start() != end + (tree[end : end + 1] == " ") or (end and not opened):
            break
        end = node.end()
        if node["tag"]:
            tokens.append(node["tag"] if how == "tags" else XX)
        elif node["label"]:
            opened.append(node["label"])
            tokens.append(f"({node['label']}")
        else:
            tokens.append(f"){opened.pop()}")
    if opened or end != len(tree) or len(tokens) < 3:
        raise UserError(
            f"{shorten(tree)!r} is not a tree; give one such as (TOP (S (NP (NN a)) (VP (VB b))))"
        )
    return " ".join(tokens[1:-1])


def read_back(tokens: str, words: Sequence[str]) -> tuple[str, list[Repair]]:
    """Return the tree of `words` that the output of a parser means, and how it was repaired.

    brackets: a closing bracket closes all brackets inside its own, and is left out if none is open;
        brackets that are open at the end are closed; a bracket without a word is left out.
    words: tags that are more than the words are left out; words without a tag follow the last tag.
    flat: if no bracket is left, one is put around all words.
    punctuation: a comma, a full stop etc. has the tag that it has in the treebank, and no other
        word has such a tag: scoring leaves out words by these tags.

    A tree that was linearized is read back as it was.
    """
    repairs: list[Repair] = []
    given = tokens.split()
    nodes = _without_empty(_balance(given))
    if nodes != given:
        repairs.append("brackets")
    if sum(map(_is_tag, nodes)) != len(words):
        repairs.append("words")
        nodes = _without_empty(_with_tags(nodes, len(words)))
    if repairs and not any(node.startswith("(") for node in nodes):
        repairs.append("flat")
        nodes = [f"({FLAT}", *nodes, f"){FLAT}"]
    tags = list(filter(_is_tag, nodes))
    right = [_tag(word, tag) for word, tag in zip(words, tags, strict=True)]
    if any(tag not in (XX, new) for tag, new in zip(tags, right, strict=True)):
        repairs.append("punctuation")
    return _written(nodes, right, words), repairs


def _is_tag(token: str) -> bool:
    return token[0] not in "()"


def _balance(tokens: Sequence[str]) -> list[str]:
    """Return the tokens with each bracket closed by its own."""
    balanced: list[str] = []
    opened: list[str] = []
    for token in tokens:
        name = token.lstrip("()")
        if not name or "(" in name or ")" in name or len(token) - len(name) > 1:
            continue  # not a token of any tree
        if token[0] == "(":
            opened.append(name)
        elif token[0] == ")":
            if name not in opened:
                continue
            while opened[-1] != name:
                balanced.append(f"){opened.pop()}")
            opened.pop()
        balanced.append(token)
    return [*balanced, *(f"){name}" for name in reversed(opened))]


def _with_tags(nodes: Sequence[str], n: int) -> list[str]:
    """Return the nodes with the first `n` tags; those that are missing follow the last one."""
    places = [place for place, node in enumerate(nodes) if _is_tag(node)]
    last = places[-1] + 1 if places else 0
    surplus = set(places[n:])
    kept = [node for place, node in enumerate(nodes[:last]) if place not in surplus]
    return [*kept, *[XX] * (n - len(places)), *nodes[last:]]


def _without_empty(tokens: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for token in tokens:
        if token[0] == ")" and kept[-1][0] == "(":
            kept.pop()
        else:
            kept.append(token)
    return kept


def _tag(word: str, tag: str) -> str:
    if word in PUNCTUATION:
        return PUNCTUATION[word]
    if word == "'" and tag == "''":
        return tag
    return XX if tag in _PUNCTUATION_TAGS else tag


def _written(nodes: Sequence[str], tags: Sequence[str], words: Sequence[str]) -> str:
    # Brackets of the text as the treebank writes them.
    escaped = (word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words)
    leaves = (f"({tag} {word})" for tag, word in zip(tags, escaped, strict=True))
    parts = ["(TOP"]
    for node in nodes:
        if node[0] == ")":
            parts[-1] += ")"
        else:
            parts.append(node if node[0] == "(" else next(leaves))
    return " ".join(parts) + ")"
