"""Paired significance tests, as in sacreBLEU, except for ties.

sacreBLEU counts only the samples whose difference exceeds that of the systems, and its p-values
are far too low where many samples have exactly the same difference: for systems of equal scores, or
with few different lines. Here, those samples count half, and the signature has "ties:half". Without
such samples, p-values and signatures are sacreBLEU's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import estimate_ci

from nmtkit.evaluation.sacre import Lines, ScoreRecord
from nmtkit.evaluation.seed import seed

TESTS = {"paired_bootstrap": "bs", "approximate_randomization": "ar"}  # with sacreBLEU's names
TIES = ("ties", "half")  # the part of the signature if p-values differ from sacreBLEU's
N_SAMPLES = {"bs": 1000, "ar": 10000}  # sacreBLEU's defaults
# Our names of the metrics, by the names in sacreBLEU's results.
METRICS = {"BLEU": "sacrebleu", "chrF2": "chrf", "bracket F1": "bracket_f1"}

# Statistics of the lines of the systems: arrays of (n_lines, n_statistics), whose sums over lines
# give the score of a metric.
Statistics = Sequence[NDArray[Any]]


def paired_test(
    test: str, systems: Sequence[Lines], *references: Lines, metrics: Sequence[Metric]
) -> list[ScoreRecord]:
    """Test whether systems differ from the first one by more than chance.

    Args:
        test: The name of one of `TESTS`.
        systems: Hypotheses of the systems; the first one is the baseline.
        references: One or more references.

    Returns:
        For each system, its results by metric: score, signature, p-value (not of the baseline)
        and, from a bootstrap, the confidence interval.
    """
    abbreviation = TESTS[test]
    run_test = _bootstrap if abbreviation == "bs" else _randomization
    results_by_system: list[ScoreRecord] = [{} for _ in systems]
    for metric in metrics:
        statistics = []
        scores = []
        for hyps in systems:
            line_statistics = np.array(metric._extract_corpus_statistics(hyps, references))
            statistics.append(line_statistics)
            scores.append(metric._compute_score_from_stats(line_statistics.sum(0)))
        # sacreBLEU's command line completes the signature in the same way.
        signature = metric.get_signature()
        signature.update("seed", seed())
        signature.update(abbreviation, N_SAMPLES[abbreviation])
        results = list(run_test(metric, statistics, [score.score for score in scores]))
        has_ties = [result.pop("has_ties", False) for result in results]
        if any(has_ties):
            signature.update(*TIES)
        for system, score, result in zip(results_by_system, scores, results, strict=True):
            system[METRICS[score.name]] = {
                "score": score.score,
                "signature": str(signature),
                **result,
            }
    return results_by_system


def p_value(differences: NDArray[Any], difference: float) -> float:
    """Compute the probability that chance gives at least the difference of two systems.

    Args:
        differences: Differences that are due to chance (n_samples,).
    """
    n_larger = np.sum(differences > difference) + np.sum(differences == difference) / 2
    return float((n_larger + 1) / (len(differences) + 1))


def _bootstrap(
    metric: Metric, statistics: Statistics, scores: Sequence[float]
) -> Iterator[ScoreRecord]:
    """Draw lines with replacement; the centred differences of the samples are due to chance.

    Args:
        statistics: Statistics of the systems, the baseline first.

    Yields:
        Confidence intervals, with p-values of the systems after the baseline, and whether samples
        are tied with the difference of the systems.
    """
    n_lines = len(statistics[0])
    # All systems are scored on the same samples.
    drawn = _generator().choice(n_lines, size=(N_SAMPLES["bs"], n_lines), replace=True)
    baseline: NDArray[Any] | None = None
    for line_statistics, score in zip(statistics, scores, strict=True):
        rounded = line_statistics.astype(np.float32)  # as in sacreBLEU
        sample_scores = []
        for lines in drawn:
            sums = rounded[lines].sum(0)
            sample_scores.append(metric._compute_score_from_stats(sums).score)
        samples = np.array(sample_scores)
        mean, half_width = estimate_ci(samples)
        result: ScoreRecord = {
            "confidence_interval": [float(mean - half_width), float(mean + half_width)]
        }
        if baseline is None:
            baseline = samples
        else:
            # If the systems did not differ, the differences would vary around zero.
            differences = np.abs(samples - baseline)
            centred = differences - differences.mean()
            result["p_value"] = p_value(centred, abs(score - scores[0]))
            result["has_ties"] = bool(np.any(centred == abs(score - scores[0])))
        yield result


def _randomization(
    metric: Metric, statistics: Statistics, scores: Sequence[float]
) -> Iterator[ScoreRecord]:
    """Swap the two systems in half of the lines; the differences are due to chance.

    Args:
        statistics: Statistics of the systems, the baseline first.

    Yields:
        Nothing for the baseline; p-values of the other systems, and whether samples are tied with
        their difference.
    """
    baseline = statistics[0]
    swapped = _generator().integers(2, size=(N_SAMPLES["ar"], len(baseline)), dtype=bool)
    yield {}
    for line_statistics, score in zip(statistics[1:], scores[1:], strict=True):
        # The two systems share the lines: the sums of one follow from those of the other.
        both_sums = (baseline + line_statistics).sum(0)
        first_sums = line_statistics.sum(0) + swapped @ (baseline - line_statistics)
        firsts = []
        seconds = []
        for sums in first_sums:
            firsts.append(metric._compute_score_from_stats(sums).score)
            seconds.append(metric._compute_score_from_stats(both_sums - sums).score)
        differences = np.abs(np.array(seconds) - np.array(firsts))
        difference = abs(score - scores[0])
        yield {
            "p_value": p_value(differences, difference),
            "has_ties": bool(np.any(differences == difference)),
        }


def _generator() -> np.random.Generator:
    """Return sacreBLEU's random generator."""
    return np.random.default_rng(None if seed() == "none" else int(seed()))
