"""BLEU, chrF and TER as computed by sacreBLEU, with the default settings of its command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric, Score
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF, CHRFScore
from sacrebleu.metrics.ter import TER, TERScore
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.evaluation.seed import seed
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

N_BOOTSTRAP = 1000

ScoreRecord = dict[str, Any]  # ready for JSON
Lines = Sequence[str]  # of a text


# sacreBLEU cannot average resamples if some of them are empty, because the scores of these are
# floats of another type. In these two classes, all of them are Python's.
class Chrf(CHRF):
    """chrF2 by default."""

    def _compute_score_from_stats(self, stats: list[int]) -> CHRFScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


class Ter(TER):
    """TER with the settings of TERCOM."""

    def _compute_score_from_stats(self, stats: list[float]) -> TERScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def bleu_metric(
    lang: Language, *, lowercase: bool = False, tokenizer: SacrebleuTokenizer | None = None
) -> BLEU:
    """Return sacreBLEU's BLEU.

    Args:
        lang: The language of the texts.
        tokenizer: The name of a tokenizer; None: that of sacreBLEU's command line for `lang`.

    Raises:
        UserError: The tokenizer, or the file that it needs, is not installed.
    """
    if tokenizer in SPM_MODELS:
        # sacreBLEU would download the file without verifying it.
        url = SPM_MODELS[tokenizer]["url"]
        path = Path(SACREBLEU_DIR, "models", url.rpartition("/")[2])
        if not path.is_file():
            raise UserError(
                f"sacreBLEU's tokenizer {tokenizer} needs the file {path}, for which no hash is "
                f"published; download it from {url}"
            )
    try:
        return BLEU(
            lowercase=lowercase,
            tokenize=tokenizer,
            force=True,  # no warnings
            trg_lang=lang.code,
        )
    except RuntimeError:
        code = lang.code if tokenizer is None else tokenizer[:2]
        purpose = f"the language {lang}" if tokenizer is None else f"the tokenizer {tokenizer}"
        raise UserError(
            f'sacreBLEU needs another package for {purpose}; run `pip install "sacrebleu[{code}]"`'
        ) from None


def sacre_bleu(
    hyps: Lines,
    *references: Lines,
    lang: Language,
    lowercase: bool = False,
    tokenizer: SacrebleuTokenizer | None = None,
    n_bootstrap: int = N_BOOTSTRAP,
) -> ScoreRecord:
    """Compute sacreBLEU with its confidence interval.

    Args:
        hyps: Detokenized hypotheses.
        references: One or more detokenized references.
        lang: The language of both.
        tokenizer: A tokenizer of sacreBLEU; None: that of the language.
        n_bootstrap: Number of resamples for the interval.

    Returns:
        The score, its parts and its signature, ready for JSON.
    """
    method = f"sacreBLEU over plain text, {case(lowercase)}, nothing normalized"
    metric = bleu_metric(lang, lowercase=lowercase, tokenizer=tokenizer)
    result = corpus_score(metric, hyps, *references, n_bootstrap=n_bootstrap)
    assert isinstance(result, BLEUScore)
    return score_record(metric, result, method) | bleu_parts(result)


def chrf(hyps: Lines, *references: Lines, lowercase: bool = False) -> ScoreRecord:
    """Compute chrF2 of detokenized `hyps` and one or more `references`, ready for JSON."""
    metric = Chrf(lowercase=lowercase)
    method = f"character F-score over plain text, {case(lowercase)}"
    return score_record(metric, corpus_score(metric, hyps, *references), method)


def ter(hyps: Lines, *references: Lines) -> ScoreRecord:
    """Compute TER of detokenized `hyps` and one or more `references`, ready for JSON."""
    metric = Ter()
    method = "edits per word of the reference, as TERCOM counts them, lower-cased; lower is better"
    return score_record(metric, corpus_score(metric, hyps, *references), method)


def case(lowercase: bool) -> str:
    """Describe the case of the scored text."""
    return "lower-cased" if lowercase else "cased"


def corpus_score(
    metric: Metric, hyps: Lines, *references: Lines, n_bootstrap: int = N_BOOTSTRAP
) -> Score:
    """Compute a score and its confidence interval from resamples.

    Args:
        references: One or more references.
        n_bootstrap: Number of resamples.

    Raises:
        UserError: The texts differ in length, or SACREBLEU_SEED is not a seed.
    """
    check_counts(hyps, *references)
    # For an invalid seed, sacreBLEU itself would raise a ValueError.
    seed()
    score: Score = metric.corpus_score(hyps, references, n_bootstrap=n_bootstrap)
    return score


def score_record(metric: Metric, result: Score, method: str) -> ScoreRecord:
    """Return a score with its signature and its 95 % interval, in the form of `scores.json`.

    Args:
        result: The score, with an interval from resamples.
        method: A description of the computation.
    """
    return {
        "score": result.score,
        "how": method,
        "signature": str(metric.get_signature()),
        "confidence_interval": [result._mean - result._ci, result._mean + result._ci],
    }


def bleu_parts(result: BLEUScore) -> ScoreRecord:
    """Return BLEU with the numbers that it is computed from, in the form of `scores.json`."""
    return {
        "score": min(result.score, 100.0),  # which rounding can exceed
        "precisions": list(result.precisions),
        "brevity_penalty": result.bp,
        "hyp_len": result.sys_len,
        "ref_len": result.ref_len,
    }


def check_counts(hyps: Lines, *references: Lines) -> None:
    """Check that the references have the same number of lines as the hypotheses, at least one.

    Raises:
        UserError: They do not.
    """
    for refs in references:
        if len(hyps) != len(refs) or not hyps:
            raise UserError(
                f"expected the same number of hypotheses and references, got {len(hyps):,} and "
                f"{len(refs):,}; pass two files of the same test set"
            )
