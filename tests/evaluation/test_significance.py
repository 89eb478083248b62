"""Paired tests, compared with sacreBLEU and, for ties, with a computation by hand."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from nmtkit.evaluation.significance import METRICS, TESTS, p_value, paired_test

WORDS = ["der", "Hund", "sah", "die", "Katze,", "und", "ging", "heim", "—", "es"]


def lines(seed: int, n: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(n)]


def add_errors(refs: list[str], share: float, seed: int) -> list[str]:
    """Replace a share of the words."""
    generator = random.Random(seed)
    hyps = []
    for ref in refs:
        words = [word if generator.random() > share else "Baum" for word in ref.split()]
        hyps.append(" ".join(words))
    return hyps


@pytest.mark.parametrize("test", TESTS)
def test_without_ties_equals_sacrebleu(test: str) -> None:
    references = [lines(seed, 50) for seed in range(2)]
    systems = [add_errors(references[0], 0.3, 8), add_errors(references[0], 0.36, 9)]
    found = paired_test(test, systems, *references, metrics=[BLEU(), CHRF()])
    named: list[tuple[str, Sequence[str]]] = [
        (str(number), hyps) for number, hyps in enumerate(systems)
    ]
    metrics = {"BLEU": BLEU(), "CHRF": CHRF()}
    signatures, expected = PairedTest(named, metrics, references, test_type=TESTS[test])()
    for metric in ("BLEU", "chrF2"):
        for ours, theirs in zip(found, expected[metric], strict=True):
            result = ours[METRICS[metric]]
            assert not isinstance(theirs, str)
            assert result["score"] == theirs.score
            assert result["signature"] == str(signatures[metric])
            assert result.get("p_value") == theirs.p_value
            if theirs.mean is not None and theirs.ci is not None:
                ends = [theirs.mean - theirs.ci, theirs.mean + theirs.ci]
                assert result["confidence_interval"] == pytest.approx(ends, abs=1e-9)


@pytest.mark.parametrize("test", TESTS)
def test_p_value_of_equal_scores(test: str) -> None:
    refs = lines(1, 60)
    first = add_errors(refs, 0.2, 5)
    second = [line.replace(" ", "  ") for line in first]
    (_, found) = paired_test(test, [first, second], refs, metrics=[BLEU(), CHRF()])
    for metric in ("sacrebleu", "chrf"):
        assert found[metric]["p_value"] == pytest.approx(0.5, abs=0.001)


def test_p_value_by_hand() -> None:
    assert p_value(np.array([0.0, 1.0, 2.0, 2.0, 3.0]), 2.0) == (1 + 2 / 2 + 1) / 6
    assert p_value(np.zeros(3), 0.0) == (3 / 2 + 1) / 4


@pytest.mark.parametrize("test", TESTS)
def test_signature_names_ties(test: str) -> None:
    """Where the p-value is not sacreBLEU's, the signature is not sacreBLEU's either."""
    refs = lines(1, 30)
    first = add_errors(refs, 0.2, 5)
    systems: list[tuple[str, Sequence[str]]] = [
        ("first", first),
        ("second", [*first[:-1], "Baum"]),
    ]
    ours = paired_test(test, [hyps for _, hyps in systems], refs, metrics=[BLEU()])
    signatures, theirs = PairedTest(systems, {"BLEU": BLEU()}, [refs], test_type=TESTS[test])()
    result = theirs["BLEU"][1]
    assert isinstance(result, Result)
    is_equal = ours[1]["sacrebleu"]["p_value"] == result.p_value
    assert (ours[1]["sacrebleu"]["signature"] == str(signatures["BLEU"])) == is_equal
    assert ("ties:half" in ours[1]["sacrebleu"]["signature"]) != is_equal
    (_, same) = paired_test(test, [first, list(first)], refs, metrics=[BLEU()])
    assert "|ties:half|" in same["sacrebleu"]["signature"]
    assert "has_ties" not in same["sacrebleu"]
