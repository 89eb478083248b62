"""The heads that `nmtkit attention` finds, and their measures, computed with plain loops."""

import numpy as np
import pytest

from nmtkit.analysis.attention_heads import (
    Mask,
    Weights,
    alignment_scores,
    anaphora_weights,
    find_heads,
    long_distance_weights,
    specific_weights,
    structure_scores,
)


def test_find_heads() -> None:
    src = ["the", "dog", "bites", "a", "man", "because", "it", "is", "bad", "</s>"]
    n = len(src)
    n_tgt = 5
    encoder = np.full((2, 4, n, n), 1 / n)
    encoder[0, 1] = 0.0
    encoder[0, 1, :, -1] = 1.0  # all tokens attend to the last one
    encoder[1, 0] = np.roll(np.eye(n), -1, 1)  # every token attends to the previous one
    encoder[1, 2, 6] = 0.0
    encoder[1, 2, 6, 1] = 1.0  # "it" attends to "dog"
    encoder[1, 3] = 0.0
    for query, key in enumerate([1, 0, 0, 4, 2, 2, 4, 6, 1, 0]):
        encoder[1, 3, query, key] = 0.9
    cross = np.full((2, 4, n_tgt, n), 1 / n)
    cross[1, 2] = np.eye(n)[1 : n_tgt + 1]
    found = {each.name: each.view for each in find_heads(encoder, cross, src, "en")}
    named = {}
    for name, view in found.items():
        assert view is not None
        named[name] = (view.kind, view.layer, view.head, view.query)
    assert named == {
        "alignment": ("cross", 2, 3, None),
        "long distance": ("encoder", 2, None, 7),
        "anaphora": ("encoder", 2, 3, 7),
        "structure": ("encoder", 2, 4, None),
    }
    others = {finding.name: finding for finding in find_heads(encoder, cross, src, "xx")}
    assert (others["anaphora"].value, others["anaphora"].view) == (0, None)


def test_find_heads_ignores_small_values() -> None:
    uniform = np.full((1, 2, 8, 8), 1 / 8)
    uniform[0, 1, 6, 1] += 0.039  # the pronoun at an earlier word
    src = ["the", "dog", "bites", "a", "man", "because", "it", "</s>"]
    for finding in find_heads(uniform, uniform, src, "en"):
        assert finding.value > 0 or finding.name == "structure"
        assert finding.view is None


@pytest.mark.parametrize(("n_src", "n_tgt"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_find_heads_short_sentences(n_src: int, n_tgt: int) -> None:
    generator = np.random.default_rng(1)
    encoder, cross = (generator.dirichlet(np.ones(n_src), size=(1, 2, n)) for n in (n_src, n_tgt))
    for finding in find_heads(encoder, cross, ["a", "b", "</s>"][-n_src:], "en"):
        assert -1 <= finding.value <= 1 + 1e-6


@pytest.fixture
def random_weights() -> Weights:
    """Attention of one layer with two heads over nine tokens."""
    # The last token, the EOS, has the largest weight of many words.
    return np.random.default_rng(7).dirichlet([*np.ones(8), 3.0], size=(1, 2, 9))


@pytest.fixture
def words() -> Mask:
    """Which of nine tokens are words: not the comma, not the EOS."""
    return np.array([True, True, False, True, True, True, True, True, False])


def test_specific_weights_formula(random_weights: Weights) -> None:
    specific = specific_weights(random_weights)
    for head in range(2):
        for key in range(9):
            mean = sum(random_weights[0, head, query, key] for query in range(9)) / 9
            for query in range(9):
                expected = max(0.0, random_weights[0, head, query, key] - mean)
                assert specific[0, head, query, key] == pytest.approx(expected)


def test_pair_measures_formula(random_weights: Weights, words: Mask) -> None:
    pronouns = np.array([False, False, True, False, True, False, False, True, False])
    far = long_distance_weights(random_weights, words)
    back = anaphora_weights(random_weights, words, pronouns)
    for query in range(9):
        for key in range(9):
            weight = random_weights[0, 1, query, key]
            are_words = words[query] and words[key]
            is_far = are_words and abs(query - key) > 4
            is_back = are_words and pronouns[query] and query - key > 1
            assert far[0, 1, query, key] == (weight if is_far else 0)
            assert back[0, 1, query, key] == (weight if is_back else 0)


def test_head_scores_formula(random_weights: Weights) -> None:
    for head in range(2):
        rows = random_weights[0, head]
        largest = [max(row[key] for key in range(8)) for row in rows[:8]]
        assert alignment_scores(random_weights)[0, head] == pytest.approx(sum(largest) / 8)
        others = [max(rows[q, k] for k in range(8) if k != q) for q in range(8)]
        at_distance = []
        for distance in [*range(-7, 0), *range(1, 8)]:
            pairs = [(q, q + distance) for q in range(8) if 0 <= q + distance < 8]
            at_distance.append(sum(rows[q, k] for q, k in pairs))
        expected = (sum(others) - max(at_distance)) / 8
        assert structure_scores(random_weights)[0, head] == pytest.approx(expected)


@pytest.mark.parametrize("distance", [-1, 1])
def test_structure_of_neighbours_is_zero(distance: int) -> None:
    neighbours = np.zeros((1, 1, 6, 6))
    for query in range(5):
        if 0 <= query + distance < 5:
            neighbours[0, 0, query, query + distance] = 1.0
    assert structure_scores(neighbours)[0, 0] == pytest.approx(0)
