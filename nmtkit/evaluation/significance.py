"""Whether systems differ by more than chance: the paired tests of sacreBLEU, except for ties.

sacreBLEU counts the samples that differ by more than the systems do, so that its p-values are far
too low where samples differ by as much: systems of equal scores, or with few different lines. Here,
those samples count half. Where there are none, the p-values are sacreBLEU's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from nmtkit.evaluation.sacre import Facts, Lines
from nmtkit.evaluation.seed import seed

TESTS = {"paired_bootstrap": "bs", "approximate_randomization": "ar"}  # with sacreBLEU's names
N_SAMPLES = {"bs": 1000, "ar": 10000}  # sacreBLEU's defaults
# What sacreBLEU calls each metric in its results, with our names.
METRICS = {"BLEU": "sacrebleu", "chrF2": "chrf", "bracket F1": "bracket_f1"}

Counts = Sequence[NDArray[Any]]  # of each system (n_lines, n_statistics)


def paired_test(
    test: str, systems: Sequence[Lines], *references: Lines, metrics: Sequence[Metric]
) -> list[Facts]:
    """Compare systems with the first one by one of `TESTS`: what it found, by system and metric."""
    short = TESTS[test]
    sampled = _bootstrap if short == "bs" else _randomization
    found: list[Facts] = [{} for _ in systems]
    for metric in metrics:
        counts = [np.array(metric._extract_corpus_statistics(hyps, references)) for hyps in systems]
        scores = [metric._compute_score_from_stats(each.sum(0)) for each in counts]
        signature = metric.get_signature()
        signature.update("seed", seed())
        signature.update(short, N_SAMPLES[short])
        results = sampled(metric, counts, [score.score for score in scores])
        for of_system, score, result in zip(found, scores, results, strict=True):
            said = {"score": score.score, "signature": str(signature)}
            of_system[METRICS[score.name]] = {**said, **result}
    return found


def p_value(differences: NDArray[Any], difference: float) -> float:
    """Return how likely chance, whose (n_samples,) `differences` are, makes this `difference`."""
    n_larger = np.sum(differences > difference) + np.sum(differences == difference) / 2
    return float((n_larger + 1) / (len(differences) + 1))


def _bootstrap(metric: Metric, counts: Counts, scores: Sequence[float]) -> Iterator[Facts]:
    """Draw lines with replacement: the differences, centred, are those of chance."""
    n_lines = len(counts[0])
    drawn = _generator().choice(n_lines, size=(N_SAMPLES["bs"], n_lines), replace=True)
    singles = [of_lines.astype(np.float32) for of_lines in counts]  # as in sacreBLEU
    samples = [
        np.array([metric._compute_score_from_stats(single[lines].sum(0)).score for lines in drawn])
        for single in singles
    ]
    for number, (of_system, score) in enumerate(zip(samples, scores, strict=True)):
        mean, half_width = estimate_ci(of_system)
        ends = [float(mean - half_width), float(mean + half_width)]
        result: Facts = {"confidence_interval": ends}
        if number > 0:
            differences = np.abs(of_system - samples[0])
            centred = differences - differences.mean()
            result["p_value"] = p_value(centred, abs(score - scores[0]))
        yield result


def _randomization(metric: Metric, counts: Counts, scores: Sequence[float]) -> Iterator[Facts]:
    """Swap the two systems in half of the lines: the differences are those of chance."""
    swapped = _generator().integers(2, size=(N_SAMPLES["ar"], len(counts[0])), dtype=bool)
    yield {}
    for of_lines, score in zip(counts[1:], scores[1:], strict=True):
        both = (counts[0] + of_lines).sum(0)
        first = of_lines.sum(0) + swapped @ (counts[0] - of_lines)
        pairs = [
            [metric._compute_score_from_stats(of_one).score for of_one in (each, both - each)]
            for each in first
        ]
        differences = np.abs(np.diff(pairs)[:, 0])
        yield {"p_value": p_value(differences, abs(score - scores[0]))}


def _generator() -> np.random.Generator:
    return np.random.default_rng(None if seed() == "none" else int(seed()))
