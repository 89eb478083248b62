"""Whether systems differ by more than chance: sacreBLEU's own paired tests."""

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from nmtkit.evaluation.bleu import bleu_metric
from nmtkit.evaluation.chrf_ter import chrf_metric
from nmtkit.languages import Language

TESTS = {"paired_bootstrap": "bs", "approximate_randomization": "ar"}  # with sacreBLEU's names
# What sacreBLEU calls each metric in its results, with our names.
METRICS = {"BLEU": "sacrebleu", "chrF2": "chrf", "bracket F1": "bracket_f1"}


def paired_test(
    test: str,
    systems: Sequence[Sequence[str]],
    *references: Sequence[str],
    metrics: Sequence[Metric],
) -> list[dict[str, Any]]:
    """Compare systems with the first one by one of sacreBLEU's paired tests, with its defaults.

    Args:
        test: one of `TESTS`.
        systems: the output of each.
        references: one or more.
        metrics: what they are scored by.

    Returns:
        Of each system and metric: score, signature, and what the test found.
    """
    named = [(str(number), hyps) for number, hyps in enumerate(systems)]
    by_class = {type(metric).__name__: metric for metric in metrics}
    signatures, results = PairedTest(named, by_class, references, test_type=TESTS[test])()
    found: list[dict[str, Any]] = [{} for _ in systems]
    for metric in results:
        key = METRICS.get(metric)
        if key is None:  # the names of the systems
            continue
        for of_system, result in zip(found, results[metric], strict=True):
            assert isinstance(result, Result)
            of_system[key] = {"score": result.score, "signature": str(signatures[metric])}
            if result.p_value is not None:
                of_system[key]["p_value"] = result.p_value
            if result.mean is not None and result.ci is not None:
                ends = (result.mean - result.ci, result.mean + result.ci)
                of_system[key]["confidence_interval"] = list(map(float, ends))
    return found


def translation_metrics(lang: Language, *, lowercase: bool = False) -> list[Metric]:
    """Return the metrics of translations, BLEU and chrF; the last one is for sentences too."""
    return [bleu_metric(lang, lowercase=lowercase), chrf_metric(lowercase=lowercase)]
