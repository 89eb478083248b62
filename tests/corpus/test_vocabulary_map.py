"""Vocabulary maps: alignments as in a plain implementation, and files that are read as written."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from nmtkit.corpus.ids import Ids, ids_writer, pack
from nmtkit.corpus.special_tokens import EOS_ID, PAD_ID
from nmtkit.corpus.vocabulary_map import (
    N_FREQUENT,
    N_ITERATIONS,
    VocabularyMap,
    expected_links,
)
from nmtkit.utils.errors import UserError

N_TOKENS = 23
NAMES = [str(id_) for id_ in range(N_TOKENS)]


def write_ids(path: Path, sentences: list[list[int]], n_tokens: int = N_TOKENS) -> Ids:
    with ids_writer(path, n_tokens) as writer:
        writer.append(pack([[*sentence, EOS_ID] for sentence in sentences], n_tokens))
    return Ids.open(path)


def random_pairs(n: int, seed: int = 1) -> tuple[list[list[int]], list[list[int]]]:
    """Pairs of 0 to 6 source and 0 to 4 target tokens."""
    generator = np.random.default_rng(seed)
    src = [generator.integers(4, 15, generator.integers(7)).tolist() for _ in range(n)]
    tgt = [generator.integers(9, N_TOKENS, generator.integers(5)).tolist() for _ in range(n)]
    return src, tgt


def plain_model_1(src: list[list[int]], tgt: list[list[int]]) -> dict[tuple[int, int], float]:
    """IBM model 1, written as in its definition."""
    t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(N_ITERATIONS):
        count: dict[tuple[int, int], float] = defaultdict(float)
        total: dict[int, float] = defaultdict(float)
        for source, target in zip(src, tgt, strict=True):
            for f in target:
                norm = sum(t[e, f] for e in [PAD_ID, *source])
                for e in [PAD_ID, *source]:
                    count[e, f] += t[e, f] / norm
                    total[e] += t[e, f] / norm
        t = defaultdict(float, {(e, f): count[e, f] / total[e] for e, f in count})
    return count


def test_expected_links_equal_plain_model(tmp_path: Path) -> None:
    src, tgt = random_pairs(60)
    src_ids, tgt_ids = write_ids(tmp_path / "src", src), write_ids(tmp_path / "tgt", tgt)
    keys, counts = expected_links(src_ids, tgt_ids, N_TOKENS, n_best=N_TOKENS)
    links = {divmod(key, N_TOKENS): count for key, count in zip(keys.tolist(), counts, strict=True)}
    assert links == pytest.approx(plain_model_1(src, tgt))
    # By source token, the best first; fewer if requested.
    order = [(key // N_TOKENS, -count) for key, count in zip(keys, counts, strict=True)]
    assert order == sorted(order)
    best = [key for i, key in enumerate(keys) if i < 2 or keys[i - 2] // N_TOKENS < key // N_TOKENS]
    assert expected_links(src_ids, tgt_ids, N_TOKENS, n_best=2)[0].tolist() == best


def test_text_is_aligned_in_chunks(tmp_path: Path) -> None:
    src, tgt = random_pairs(60)
    src_ids, tgt_ids = write_ids(tmp_path / "src", src), write_ids(tmp_path / "tgt", tgt)
    keys, counts = expected_links(src_ids, tgt_ids, N_TOKENS, n_best=N_TOKENS, links_per_chunk=1)
    links: dict[int, float] = defaultdict(float)
    for source, target in zip(src, tgt, strict=True):
        for (e, f), count in plain_model_1([source], [target]).items():
            links[e * N_TOKENS + f] += count
    assert dict(zip(keys.tolist(), counts, strict=True)) == pytest.approx(links)
    # Of a longer text, every third pair.
    n_links = sum((1 + len(source)) * len(target) for source, target in zip(src, tgt, strict=True))
    limit = n_links // 2 - 1
    keys, counts = expected_links(src_ids, tgt_ids, N_TOKENS, n_best=N_TOKENS, max_links=limit)
    links = {e * N_TOKENS + f: count for (e, f), count in plain_model_1(src[::3], tgt[::3]).items()}
    assert dict(zip(keys.tolist(), counts, strict=True)) == pytest.approx(links)


def test_candidates_of_a_dictionary(tmp_path: Path) -> None:
    n_tokens = 5_000
    generator = np.random.default_rng(2)
    src = [generator.choice(np.arange(4, 2_400), 8, replace=False).tolist() for _ in range(3_000)]
    tgt = [[token + 2_500 for token in reversed(sentence)] for sentence in src]
    src_ids = write_ids(tmp_path / "src", src, n_tokens)
    tgt_ids = write_ids(tmp_path / "tgt", tgt, n_tokens)
    found = VocabularyMap.from_corpus(src_ids, tgt_ids, n_tokens, n_candidates=1)
    seen = {token for sentence in src for token in sentence}
    for token in range(4, n_tokens):
        translations = [token + 2_500] if token in seen else []
        assert found.candidates[token] == [token, *translations]
    counts = np.bincount(np.concatenate(tgt), minlength=n_tokens)
    assert len(found.frequent) == N_FREQUENT
    rare = set(range(n_tokens)).difference(found.frequent)
    assert counts[found.frequent].min() >= max(counts[token] for token in rare)


def test_empty_corpus_has_no_candidates(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "a", [])
    found = VocabularyMap.from_corpus(ids, ids, N_TOKENS, n_candidates=3)
    assert found.frequent == []
    assert found.candidates == {token: [token] for token in range(4, N_TOKENS)}
    found.write(tmp_path / "map", NAMES)
    assert VocabularyMap.read(tmp_path / "map", N_TOKENS) == found


def test_file_is_read_as_written(tmp_path: Path) -> None:
    expected = VocabularyMap([5, 22], {4: [4], 7: [7, 9, 8]})
    expected.write(tmp_path / "map", NAMES)
    assert (tmp_path / "map").read_bytes() == b"\t5 22\n4\t4\n7\t7 9 8\n"
    assert VocabularyMap.read(tmp_path / "map", N_TOKENS) == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "expected a token id"),
        ("5 6\t7", "expected a token id"),
        ("5\t7  8", "expected a token id"),
        ("5\tx", "expected a token id"),
        ("5\t-1", "expected a token id"),
        ("5\t23", "the token id 23 is not in the vocabulary"),
        ("23\t5", "the token id 23 is not in the vocabulary"),
        (f"5\t{'9' * 5_000}", "expected a token id"),
    ],
)
def test_invalid_line_is_refused(line: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "map").write_text(f"\t5\n{line}\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=f"line 2: {problem}"):
        VocabularyMap.read(tmp_path / "map", N_TOKENS)
