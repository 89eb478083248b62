"""The scores of the development set during training."""

from typing import Any

import pytest
import sacrebleu
import torch
from chains import tiny_pipeline

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.stages import prepare, train
from nmtkit.stages.curves import Sample
from nmtkit.stages.pipeline import Pipeline

N_LINES = 6  # of the development set of `tiny_pipeline`


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = tiny_pipeline(tmp_path_factory.mktemp("dev"))
    prepare.run(pipeline)
    return pipeline


def evaluate(pipeline: Pipeline, metric: str | None) -> tuple[dict[str, Any], list[Sample]]:
    """Score a model with random weights; return the fields and the samples."""
    prepared = PreparedCorpus(pipeline.need("prepare"))
    samples: list[Sample] = []
    torch.manual_seed(1)
    model = accelerate(Transformer(pipeline.recipe.model, 8)).eval()
    scorer = train.DevEvaluation(prepared, pipeline.recipe.corpus, metric, samples.extend)
    return scorer(model), samples


@pytest.mark.parametrize(
    ("metric", "n_lines", "description"),
    [
        (None, 2, "first 2 lines of dev, greedy, plain text; nrefs:1"),
        ("perplexity", 2, "first 2 lines of dev, greedy, plain text; nrefs:1"),
        ("sacrebleu", N_LINES, "whole of dev, 6 lines, greedy, plain text; nrefs:1"),
        ("chrf", N_LINES, "whole of dev, 6 lines, greedy, plain text; nrefs:1"),
    ],
)
def test_dev_lines_depend_on_metric(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    metric: str | None,
    n_lines: int,
    description: str,
) -> None:
    """If a score decides which checkpoints are kept, the whole set is scored."""
    monkeypatch.setattr(train, "DEV_LINES", 2)
    fields, samples = evaluate(pipeline, metric)
    assert len(samples) == n_lines
    assert fields["dev_sacrebleu_how"].startswith(description)
    assert ("dev_chrf" in fields) == (metric == "chrf")
    assert fields["dev_seconds"] >= 0


def test_dev_scores_equal_sacrebleu(pipeline: Pipeline) -> None:
    fields, samples = evaluate(pipeline, "chrf")
    _, refs, hyps = zip(*samples, strict=True)
    assert fields["dev_chrf"] == sacrebleu.corpus_chrf(hyps, [refs]).score
    assert fields["dev_sacrebleu"] == sacrebleu.corpus_bleu(hyps, [refs]).score
    text = (pipeline.settings.runs_dir.parent / "src").read_text(encoding="utf-8")
    assert "".join(f"{src}\n" for src, _, _ in samples) == text
