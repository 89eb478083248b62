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
from dataclasses import dataclass
from typing import Literal

from nmtkit.errors import UserError, shortened

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
# Words that have one tag in the treebank, or almost. Where tags are missing or too many, these tell
# which.
ANCHORS = {
    word: tag
    for tag, words in {
        "DT": "the a an this some",
        "IN": "of in for on by at with from than because",
        "TO": "to",
        "CC": "and but or",
        "PRP": "it he they we she i",
        "PRP$": "its his their",
        "MD": "will would could should",
        "VBZ": "is has",
        "VBP": "are",
        "VBD": "was were said",
        "VB": "be",
        "RB": "n't not also",
        "WDT": "which",
        "WP": "who",
        "$": "$",
        "NN": "%",
    }.items()
    for word in words.split()
}
CLOSED = frozenset(("DT", "IN", "TO", "CC", "PRP", "PRP$", "MD", "WDT", "WP", "$"))  # few words
_PUNCTUATION_TAGS = frozenset(PUNCTUATION.values())
_APOSTROPHE = "'"

_NODE = re.compile(
    r"\((?P<tag>[^\s()]+) (?P<word>[^\s()]+)\)|\((?P<label>[^\s()]+) ?|(?P<end>\)) ?"
)


@dataclass(frozen=True)
class Parse:
    """A tree of given words, and how the tokens had to be repaired to become one."""

    tree: str
    repairs: tuple[Repair, ...] = ()


def linearize(tree: str, how: Linearization) -> str:
    """Return the tokens of a tree that `sources.treebank` normalized.

    Raises:
        UserError: It is not a tree in this form.
    """
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
            f"{shortened(tree)!r} is not a tree; give one as nmtkit writes it, such as (TOP (S (NP "
            "(NN Sales)) (VP (VBD rose))))"
        )
    return " ".join(tokens[1:-1])


def read_back(tokens: str, words: Sequence[str]) -> Parse:
    """Return the tree of `words` that the output of a parser means, repaired if it means none.

    brackets: a closing bracket closes all brackets inside its own, and is left out if none is open;
        brackets that are open at the end are closed; a bracket without a word is left out.
    words: if their number is not that of the tags, or punctuation does not meet punctuation, both
        are aligned with the fewest changes, so that no word gets a tag that it cannot have, as far
        as punctuation, numbers and frequent words tell. A word without a tag is put after the word
        before it; a tag without a word is left out. Above a thousand words, tags are just counted.
    flat: if no bracket is left, one is put around all words.
    punctuation: a comma, a full stop etc. has the tag that it has in the treebank, and no other
        word has such a tag. Scoring leaves out words by these tags, and otherwise could not compare
        the two trees.

    A tree that was linearized is read back as it was.
    """
    repairs: list[Repair] = []
    given = tokens.split()
    nodes = _without_empty(_balance(given))
    if nodes != given:
        repairs.append("brackets")
    aligned = _align(nodes, words)
    if aligned != nodes:
        repairs.append("words")
        nodes = _without_empty(aligned)
    if repairs and not any(node.startswith("(") for node in nodes):
        repairs.append("flat")
        nodes = [f"({FLAT}", *nodes, f"){FLAT}"]
    tags = [node for node in nodes if _is_tag(node)]
    right = [_tag(word, tag) for word, tag in zip(words, tags, strict=True)]
    if any(tag not in (XX, new) for tag, new in zip(tags, right, strict=True)):
        repairs.append("punctuation")
    return Parse(_written(nodes, right, words), tuple(repairs))


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


def _align(nodes: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the nodes with one tag for each word: some are added as XX, some left out."""
    before, *of_tags = _fewest_changes([node for node in nodes if _is_tag(node)], words)
    aligned: list[str] = []
    waiting = iter(of_tags)
    for node in nodes:
        if _is_tag(node):
            aligned += [*before, *next(waiting)]
            before = []
        else:
            aligned.append(node)
    end = len(aligned) - (bool(aligned) and aligned[-1][0] == ")")
    return [*aligned[:end], *before, *aligned[end:]]  # `before` is left if there is no tag at all


def _fewest_changes(tags: Sequence[str], words: Sequence[str]) -> list[list[str]]:
    """Return the tags of the words: those before the first given tag, then what each one becomes.

    A given tag becomes itself or nothing, followed by XX for each word that has none.
    """
    if len(tags) == len(words) and all(map(_fits, tags, words)):
        return [[], *([tag] for tag in tags)]
    n, m = len(tags), len(words)
    if n * m > MAX_CELLS:
        counted = [[], *([tag] if i < m else [] for i, tag in enumerate(tags))]
        counted[-1] += [XX] * (m - n)
        return counted
    # changes[i][j]: the fewest for the tags from i on and the words from j on
    changes = [[CHANGE * (n - i + m - j) for j in range(m + 1)] for i in range(n + 1)]
    for i in range(n - 1, -1, -1):
        row, below = changes[i], changes[i + 1]
        for j in range(m - 1, -1, -1):
            cost = _cost(tags[i], words[j])
            row[j] = min(below[j + 1] + cost, below[j] + CHANGE, row[j + 1] + CHANGE)
    found: list[list[str]] = [[] for _ in range(n + 1)]
    i = j = 0
    while j < m:
        here = changes[i][j]
        if i < n and here == changes[i + 1][j + 1] + _cost(tags[i], words[j]):
            found[i + 1].append(tags[i])
            i, j = i + 1, j + 1
        elif i < n and here == changes[i + 1][j] + CHANGE:
            i += 1
        else:
            found[i].append(XX)
            j += 1
    return found


def _fits(tag: str, word: str) -> bool:
    """Return whether a word may have a tag, as far as punctuation is concerned."""
    return tag == XX or _tag(word, tag) == tag


MAX_CELLS = 2**20  # of a table, which a sentence of a thousand words fills
CHANGE = 2  # what a tag that is left out costs, or a word without a tag


def _cost(tag: str, word: str) -> int:
    """Return what it costs that a word has a tag, as far as it can be told without its sentence."""
    is_number = word.replace(",", "").replace(".", "").isdecimal()
    usual = "CD" if is_number else ANCHORS.get(word.lower())
    if not _fits(tag, word) or (usual and tag not in (usual, XX)):
        return 2 * CHANGE  # no less than leaving out the tag and giving the word another one
    return int(tag in CLOSED and not usual)


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
    if word == _APOSTROPHE and tag == "''":
        return tag
    return XX if tag in _PUNCTUATION_TAGS else tag


def _written(nodes: Sequence[str], tags: Sequence[str], words: Sequence[str]) -> str:
    leaves = (f"({tag} {_escaped(word)})" for tag, word in zip(tags, words, strict=True))
    parts = ["(TOP"]
    for node in nodes:
        if node[0] == ")":
            parts[-1] += ")"
        else:
            parts.append(node if node[0] == "(" else next(leaves))
    return " ".join(parts) + ")"


def _escaped(word: str) -> str:
    """Return a word without brackets, as the treebank writes it."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
