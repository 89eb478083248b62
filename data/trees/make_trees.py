"""Write the demo treebank: sentences with their trees from a small grammar, the same every time.

    python data/trees/make_trees.py [OUT_DIR]

The grammar is a context-free one with labels and tags of the Penn Treebank. A parser has to learn
where phrases attach: "with a telescope" belongs to the verb (one sees with it), "with a beard" to
the noun before it, and "of the town" always to the noun.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

SPLITS = {"train": 3_000, "dev": 200, "test": 300}
SEED = 1412
MAX_WORDS = 25

# Each symbol with its expansions, every one as likely as its weight. A symbol in lower case is a
# part of the grammar alone, and its expansion stands in its place.
GRAMMAR: dict[str, list[tuple[int, str]]] = {
    "TOP": [(8, "statement"), (2, "quoted"), (1, "question"), (1, "joined")],
    "statement": [(6, "S"), (2, "fronted")],
    "S": [(1, "subject VP .")],
    "fronted": [(1, "S:time_first")],
    "S:time_first": [(1, "PP:time , subject VP .")],
    "joined": [(1, "S:joined")],
    "S:joined": [(1, "S:clause , CC S:clause .")],
    "S:clause": [(1, "subject VP")],
    "quoted": [(1, "S:quoted")],
    "S:quoted": [(1, "`` S:clause , '' subject VP:said .")],
    "VP:said": [(1, "VBD:said"), (1, "VBD:said PP:time")],
    "question": [(1, "SQ")],
    "SQ": [(1, "VBD:did subject VP:base ?")],
    "VP:base": [(1, "VB np"), (1, "VB np PP:tool")],
    "subject": [(5, "np"), (2, "NP:name"), (2, "NP:pronoun")],
    "np": [(5, "NP:plain"), (2, "NP:of"), (2, "NP:feature"), (1, "NP:which"), (1, "NP:pair")],
    "NP:plain": [(3, "DT NN"), (2, "DT JJ NN"), (1, "DT ADJP NN"), (1, "CD NNS"), (1, "CD JJ NNS")],
    "ADJP": [(1, "RB:very JJ")],
    "NP:of": [(1, "NP:plain PP:of")],
    "PP:of": [(1, "IN:of np")],
    "NP:feature": [(1, "NP:plain PP:feature")],
    "PP:feature": [(1, "IN:with NP:beard")],
    "NP:beard": [(1, "DT NN:feature"), (1, "DT JJ NN:feature")],
    "NP:which": [(1, "NP:plain , SBAR ,"), (1, "NP:plain SBAR")],
    "SBAR": [(1, "WHNP S:gap")],
    "WHNP": [(1, "WP")],
    "S:gap": [(1, "VP")],
    "NP:pair": [(1, "NP:plain CC:and NP:plain")],
    "NP:name": [(3, "NNP"), (1, "NNP:title NNP")],
    "NP:pronoun": [(1, "PRP")],
    "VP": [
        (4, "VBD np"),
        (3, "VBD np PP:tool"),
        (2, "VBD:went PP:place"),
        (2, "VBD:went ADVP"),
        (2, "VBD np PP:time"),
        (2, "VBD:thought SBAR:that"),
        (1, "VBD:began S:to"),
        (1, "VBD PRT np"),
    ],
    "SBAR:that": [(1, "IN:that S:clause"), (1, "S:clause")],
    "S:to": [(1, "VP:to")],
    "VP:to": [(1, "TO VP:base")],
    "PP:tool": [(1, "IN:with NP:tool")],
    "NP:tool": [(1, "DT NN:tool"), (1, "DT JJ NN:tool")],
    "PP:place": [(1, "IN:place np"), (1, "TO np")],
    "PP:time": [(1, "IN:time NP:time")],
    "NP:time": [(1, "NNP:month"), (1, "DT NN:day")],
    "ADVP": [(2, "RB"), (1, "RB:very RB")],
    "PRT": [(1, "RP")],
}
WORDS = {
    "DT": "the a this that every",
    "NN": "baker teacher garden river letter house farmer captain bridge horse window story doctor",
    "NN:feature": "beard hat scar smile limp uniform",
    "NN:tool": "telescope hammer camera knife rope shovel",
    "NN:day": "morning evening war harvest storm winter",
    "NNS": "letters horses farmers windows stories gardens doctors captains",
    "NNP": "Anna Boris Clara David Emma Felix Greta Henry",
    "NNP:title": "Mr. Mrs. Dr.",
    "NNP:month": "March April June October Monday Friday",
    "PRP": "he she they we",
    "WP": "who",
    "CD": "two three seven twelve forty",
    "JJ": "old small quiet green broken famous tired heavy young",
    "RB": "slowly home away yesterday again quickly",
    "RB:very": "very quite rather",
    "RP": "up off down",
    "VB": "see find paint break follow carry remember",
    "VBD": "saw found painted broke followed carried remembered",
    "VBD:did": "Did",
    "VBD:said": "said asked replied shouted",
    "VBD:went": "went walked returned drove",
    "VBD:thought": "thought knew believed hoped",
    "VBD:began": "began tried wanted refused",
    "IN:of": "of",
    "IN:with": "with",
    "IN:that": "that",
    "IN:place": "into behind near under",
    "IN:time": "before after during until",
    "TO": "to",
    "CC": "but and",
    "CC:and": "and or",
    ".": ".",
    ",": ",",
    "?": "?",
    "``": "``",
    "''": "''",
}
TAGS = {"?": "."}  # of the words whose symbol is not their tag

Tree = tuple[str, list["Tree"] | str]


def grow(symbol: str, random: Random) -> list[Tree]:
    """Expand a symbol to one tree, or to several if the symbol has no label of its own."""
    label = TAGS.get(symbol, symbol.partition(":")[0])
    if symbol in WORDS:
        words = WORDS[symbol].split()
        return [(label, words[int(random.random() * len(words))])]
    expansions = GRAMMAR[symbol]
    choices = [expansion for weight, expansion in expansions for _ in range(weight)]
    expansion = choices[int(random.random() * len(choices))]
    children = [tree for each in expansion.split() for tree in grow(each, random)]
    return children if label.islower() else [(label, children)]


def written(tree: Tree) -> str:
    """Write a tree in brackets."""
    label, inside = tree
    return f"({label} {inside if isinstance(inside, str) else ' '.join(map(written, inside))})"


def words_of(tree: Tree) -> list[str]:
    """Return the words of a tree."""
    inside = tree[1]
    return [inside] if isinstance(inside, str) else [w for each in inside for w in words_of(each)]


def distinct_trees(random: Random) -> Iterator[str]:
    """Grow tree after tree, never with the same words twice, each with 4 to 25 words."""
    seen: set[str] = set()
    while True:
        try:
            [tree] = grow("TOP", random)
        except RecursionError:
            continue
        words = words_of(tree)
        if 4 <= len(words) <= MAX_WORDS and (sentence := " ".join(words)) not in seen:
            seen.add(sentence)
            yield written(tree)


def write(out_dir: Path) -> None:
    """Write train, dev and test, one tree a line."""
    out_dir.mkdir(parents=True, exist_ok=True)
    trees = distinct_trees(Random(SEED))
    for split, size in SPLITS.items():
        text = "".join(f"{tree}\n" for tree in islice(trees, size))
        (out_dir / f"{split}.mrg").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
