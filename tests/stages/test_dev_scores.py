"""The scores of the development set during training."""

from typing import Any

import pytest
import sacrebleu
import torch
from chains import tiny_pipeline

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages import prepare, train
from nmtkit.stages.curves import Sample
from nmtkit.stages.pipeline import Pipeline

N_LINES = 201  # of the development set


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("dev")
    pipeline = tiny_pipeline(folder)
    lines = [f"{'a ' * (number % 6 + 1)}\n" for number in range(N_LINES)]
    for side in ("src", "tgt"):
        (folder / f"dev.{side}").write_text("".join(lines), encoding="utf-8", newline="\n")
    dev = FilePair(src=str(folder / "dev.src"), tgt=str(folder / "dev.tgt"))
    corpus = pipeline.recipe.corpus.model_copy(update={"dev": dev})
    recipe = pipeline.recipe.model_copy(update={"corpus": corpus})
    pipeline = Pipeline(recipe, pipeline.settings, "test")
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
        (None, 200, "first 200 lines of dev, greedy, plain text; nrefs:1"),
        ("perplexity", 200, "first 200 lines of dev, greedy, plain text; nrefs:1"),
        ("sacrebleu", 201, "whole of dev, 201 lines, greedy, plain text; nrefs:1"),
        ("chrf", 201, "whole of dev, 201 lines, greedy, plain text; nrefs:1"),
    ],
)
def test_dev_lines_depend_on_metric(
    pipeline: Pipeline,
    metric: str | None,
    n_lines: int,
    description: str,
) -> None:
    """If a score decides which checkpoints are kept, the whole set is scored."""
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
    text = (pipeline.settings.runs_dir.parent / "dev.src").read_text(encoding="utf-8")
    assert "".join(f"{src}\n" for src, _, _ in samples) == text
