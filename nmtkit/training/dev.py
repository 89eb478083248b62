"""Evaluations on the development set during training, and which of them are the best."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nmtkit.config.recipe import TrainingConfig
from nmtkit.evaluation.perplexity import perplexity_from_nll
from nmtkit.model.transformer import Transformer
from nmtkit.training.batches import Ints, Pairs, cut
from nmtkit.training.checkpoint import BestEvaluation, Evaluation, Progress
from nmtkit.training.gradients import batch_losses
from nmtkit.training.micro_batches import pack
from nmtkit.training.step import Trainer
from nmtkit.utils.errors import DivergedError

Evaluate = Callable[[Transformer], dict[str, Any]]  # returns the `dev_...` fields of `Metrics`


def evaluate_dev(trainer: Trainer, dev_pairs: Pairs, evaluate: Evaluate) -> dict[str, Any]:
    """Return the perplexity and the scores of the development set: the `dev_...` fields of Metrics.

    Args:
        trainer: The trainer of the model.
        dev_pairs: The development set, for perplexity.
        evaluate: Translates and scores the development set.

    Raises:
        DivergedError: The perplexity is not a number.
    """
    model = trainer.model
    device = trainer.group.device
    with torch.compiler.set_stance("force_eager"):  # dev batches have many shapes
        dev_perplexity = perplexity(
            model, dev_pairs, device=device, max_tokens=trainer.setup.max_tokens
        )
        return {"dev_perplexity": dev_perplexity, **evaluate(model)}


@torch.no_grad()
def perplexity(model: Transformer, pairs: Pairs, *, device: torch.device, max_tokens: int) -> float:
    """Compute exp of the mean negative log-likelihood per subword, with end symbols (Table 3).

    Args:
        model: The model, which is in evaluation mode afterwards.
        pairs: The sentence pairs.
        device: Device of the model.
        max_tokens: Maximum number of tokens per side of a batch.

    Raises:
        DivergedError: It is not a number.
    """
    # Sorted by length, so that batches have little padding.
    model.eval()
    by_length: Ints = np.argsort(pairs.tgt_lengths, kind="stable")
    groups = cut(by_length, [(pairs.src_lengths, max_tokens), (pairs.tgt_lengths, max_tokens)])
    nll = 0.0
    for chosen in groups:
        batch = pack(pairs, chosen, device)
        nll += batch_losses(model, batch, label_smoothing=0.0).nll.item()
    if math.isnan(nll):
        raise DivergedError("the perplexity on dev is not a number")
    return perplexity_from_nll(nll, int(pairs.tgt_lengths.sum()))


def judge(progress: Progress, config: TrainingConfig, step: int, score: float) -> dict[str, Any]:
    """Return the best evaluations after another one; of equal scores, the first is better.

    Args:
        progress: The progress with the best evaluations so far.
        config: [training] of the recipe.
        step: The step of the evaluation.
        score: Its score by [training] patience_metric.

    Returns:
        The fields `best` and `ranked` of Progress.
    """
    metric = config.patience_metric
    sign = 1 if metric in (None, "perplexity") else -1  # lower perplexity is better
    best = BestEvaluation(step=step, score=score)
    if progress.best is not None and sign * score >= sign * progress.best.score:
        best = progress.best.model_copy(update={"n_worse": progress.best.n_worse + 1})
    ranked = [*(progress.ranked or ()), Evaluation(step=step, score=score)]
    ranked.sort(key=lambda evaluation: sign * evaluation.score)
    return {
        "best": best if config.patience else None,
        "ranked": ranked[: config.keep_checkpoints] if metric else None,
    }
