"""chrF and TER as computed by sacreBLEU, with the default settings of its command line."""

from collections.abc import Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF, CHRFScore
from sacrebleu.metrics.ter import TER, TERScore

N_BOOTSTRAP = 1000


# sacreBLEU cannot average resamples if some of them are empty, because these have floats of another
# type than the rest: here, all are Python's.
class _Chrf(CHRF):
    def _compute_score_from_stats(self, stats: list[int]) -> CHRFScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


class _Ter(TER):
    def _compute_score_from_stats(self, stats: list[float]) -> TERScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def chrf_metric(*, lowercase: bool) -> CHRF:
    """Return the metric chrF2 of sacreBLEU."""
    return _Chrf(lowercase=lowercase)


def chrf(
    hyps: Sequence[str], *references: Sequence[str], lowercase: bool = False
) -> dict[str, object]:
    """Compute chrF2 of plain text, ready for JSON."""
    case = "lower-cased" if lowercase else "cased"
    how = f"character F-score over plain text, {case}"
    return _score(chrf_metric(lowercase=lowercase), how, hyps, references)


def ter(hyps: Sequence[str], *references: Sequence[str]) -> dict[str, object]:
    """Compute TER of plain text, ready for JSON."""
    how = "edits per word of the reference, as TERCOM counts them, lower-cased; lower is better"
    return _score(_Ter(), how, hyps, references)


def _score(
    metric: Metric, how: str, hyps: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, object]:
    result = metric.corpus_score(hyps, references, n_bootstrap=N_BOOTSTRAP)
    return {
        "score": result.score,
        "how": how,
        "signature": str(metric.get_signature()),
        "confidence_interval": [result._mean - result._ci, result._mean + result._ci],
    }
