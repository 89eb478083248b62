"""Trees as sequences of tokens, the output of a parser (section 6.3), and back.

    (TOP (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .)))
    (S (NP DT NN )NP (VP VBD )VP . )S

The words and the outer bracket are left out, as in the paper's published code: the source has the
words, and a tag stands for one of them. Vinyals et al. (2015), whom the paper follows, write XX for
all tags; `[corpus] linearization` chooses between the two.

Deviation: the brackets are those of Vinyals et al., "(NP" and ")NP". The published code writes "NP"
and "/NP": there, an opening bracket looks like a tag. Both have one token for a bracket.
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
# The tags of punctuation. Only the words determine them; an apostrophe may also be a POS.
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


def linearize(tree: str, linearization: Linearization) -> str:
    """Return the tokens of a tree that `sources.treebank` normalized.

    Args:
        tree: The tree in brackets, on one line.
        linearization: Whether its words become their tags or XX.

    Raises:
        UserError: The line is not a tree.
    """
    tokens: list[str] = []
    opened: list[str] = []
    end = 0  # of the nodes so far
    for node in _NODE.finditer(tree):
        n_spaces = int(tree[end : end + 1] == " ")
        is_after_tree = end > 0 and not opened
        if node.start() != end + n_spaces or is_after_tree:
            break
        end = node.end()
        if node["tag"]:
            tokens.append(node["tag"] if linearization == "tags" else XX)
        elif node["label"]:
            opened.append(node["label"])
            tokens.append(f"({node['label']}")
        else:
            tokens.append(f"){opened.pop()}")
    if opened or end != len(tree) or len(tokens) < 3:
        raise UserError(
            f"{shorten(tree)!r} is not a tree; write it as in (TOP (S (NP (NN a)) (VP (VB b))))"
        )
    return " ".join(tokens[1:-1])  # without TOP


def read_back(tokens: str, words: Sequence[str]) -> tuple[str, list[Repair]]:
    """Turn the output of a parser into a tree of its words, with repairs where it is not one.

    The repairs are:

    - brackets: A closing bracket closes all brackets inside its own, and is removed if none is
      open. Brackets that are open at the end are closed; one without a word is removed.
    - words: Surplus tags are removed; words without a tag follow the last tag.
    - flat: If no bracket is left, one is put around all words.
    - punctuation: A comma, a full stop etc. gets the tag that it has in the treebank, and no other
      word keeps such a tag, since scoring leaves out words by these tags.

    Args:
        tokens: The output, as `linearize` writes trees. A linearized tree needs no repair.

    Returns:
        The tree in brackets, and the repairs.
    """
    repairs: list[Repair] = []
    output = tokens.split()
    nodes = _without_empty(_balance(output))
    if nodes != output:
        repairs.append("brackets")
    if sum(map(_is_tag, nodes)) != len(words):
        repairs.append("words")
        nodes = _without_empty(_with_tags(nodes, len(words)))
    if repairs and not any(node.startswith("(") for node in nodes):
        repairs.append("flat")
        nodes = [f"({FLAT}", *nodes, f"){FLAT}"]
    # From here on, tags and words correspond one to one.
    tags = list(filter(_is_tag, nodes))
    new_tags = [_tag(word, tag) for word, tag in zip(words, tags, strict=True)]
    if any(tag not in (XX, new_tag) for tag, new_tag in zip(tags, new_tags, strict=True)):
        repairs.append("punctuation")
    return _written(nodes, new_tags, words), repairs


def _is_tag(token: str) -> bool:
    """Return whether a token of a linearized tree is a tag, not a bracket."""
    return token[0] not in "()"


def _balance(tokens: Sequence[str]) -> list[str]:
    """Return the tokens with brackets that match."""
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
            # Brackets that are still open inside of this one are closed first.
            while opened[-1] != name:
                balanced.append(f"){opened.pop()}")
            opened.pop()
        balanced.append(token)
    balanced.extend(f"){name}" for name in reversed(opened))
    return balanced


def _with_tags(nodes: Sequence[str], n: int) -> list[str]:
    """Return the nodes with the first `n` tags; missing ones are XX after the last one."""
    indices = [index for index, node in enumerate(nodes) if _is_tag(node)]
    last = indices[-1] + 1 if indices else 0
    surplus = set(indices[n:])
    kept = [node for index, node in enumerate(nodes[:last]) if index not in surplus]
    kept += [XX] * (n - len(indices))
    return kept + list(nodes[last:])


def _without_empty(tokens: Sequence[str]) -> list[str]:
    """Remove brackets without a word from balanced tokens."""
    kept: list[str] = []
    for token in tokens:
        if token[0] == ")" and kept[-1][0] == "(":
            kept.pop()
        else:
            kept.append(token)
    return kept


def _tag(word: str, tag: str) -> str:
    """Return the tag of a word: that of the treebank for punctuation, and none of these else."""
    if word in PUNCTUATION:
        return PUNCTUATION[word]
    if word == "'" and tag == "''":
        return tag
    return XX if tag in _PUNCTUATION_TAGS else tag


def _written(nodes: Sequence[str], tags: Sequence[str], words: Sequence[str]) -> str:
    """Write a tree in brackets.

    Args:
        nodes: Balanced brackets, and any tags instead of words.
    """
    leaves = zip(tags, words, strict=True)
    parts = ["(TOP"]
    for node in nodes:
        if node[0] == ")":
            parts[-1] += ")"
        elif node[0] == "(":
            parts.append(node)
        else:
            tag, word = next(leaves)
            # The treebank writes brackets of the text as -LRB- and -RRB-.
            escaped = word.replace("(", "-LRB-").replace(")", "-RRB-")
            parts.append(f"({tag} {escaped})")
    return " ".join(parts) + ")"
