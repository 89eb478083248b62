"""The states and the figures of the runs of a study, as they are now. Nothing is run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from nmtkit.config.study import Row, Study
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import averaged_steps
from nmtkit.evaluation.scores import score_value
from nmtkit.evaluation.translations import read_scores
from nmtkit.model.weights import count_parameters
from nmtkit.runs.listing import states
from nmtkit.sources.kinds import source_name
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.store.provenance import run_arguments, without_damaged
from nmtkit.training.metrics import read_published
from nmtkit.utils.errors import UserError

Pipelines = Mapping[str, Mapping[str, Pipeline]]  # by row, and by the name of a run

LOCKS = "study"  # the folder of locks, next to those of the stages
FINISHED = "finished"
DIVERGED = "diverged"
RUNNING = "running"
STOPPED = "stopped"
DAMAGED = "damaged"
NOT_RUN = "not run"
# The state of a run by the state of its first stage that has one of these.
RUN_STATES = {
    "damaged": DAMAGED,
    "unknown": NOT_RUN,  # for example, a text of the recipe is missing
    "running": RUNNING,
    "diverged": DIVERGED,
    "partial": STOPPED,
    "stale": STOPPED,
}


@dataclass(frozen=True)
class StudyRun:
    """A row that ran with one seed, or is to run."""

    name: str  # the row's, with the seed if there are several
    seed: int
    run: str  # the arguments of `nmtkit run`
    state: str  # "finished", "diverged", "running", "stopped", "damaged" or "not run"
    why: str  # explains any other state than "finished"
    scored: str | None = None  # fingerprint of its scores
    steps: int | None = None
    dev_perplexity: float | None = None  # per subword, of the last averaged checkpoint
    scores: dict[str, Any] = field(default_factory=dict)  # as in `scores.json`

    @property
    def first_scores(self) -> dict[str, Any]:
        """The scores on the first test set, for tables; empty if there are none."""
        return next(iter(self.scores.values()), {})

    def score(self, name: str) -> float | None:
        """Return a score on the first test set, such as "sacrebleu"; None if there is none."""
        return score_value(self.first_scores, name)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a figure over the finished runs of a row."""

    mean: float
    deviation: float | None  # of a sample (n - 1); None for a single run
    n: int

    @classmethod
    def of(cls, figures: Sequence[float | None]) -> "Spread | None":
        """Compute the spread of the figures that are known; None if there are none."""
        known = [figure for figure in figures if figure is not None]
        if not known:
            return None
        deviation = stdev(known) if len(known) > 1 else None
        return cls(fmean(known), deviation, len(known))


@dataclass(frozen=True)
class StudyRow:
    """Runs that differ only in their seeds, and their common figures."""

    name: str
    change: str  # the recipe or the overrides that the other rows do not have
    n_parameters: int  # an estimate while the vocabulary is not known
    published: dict[str, float]
    dev_perplexity: Spread | None
    score: Spread | None  # the kind of BLEU that stands next to the published one
    runs: list[StudyRun]

    @property
    def state(self) -> str:
        """The state of all runs, such as "2 finished, 1 not run"."""
        counts = Counter(run.state for run in self.runs)
        if len(counts) == 1:
            return self.runs[0].state
        texts = []
        n_finished = counts.pop("finished", 0)
        if n_finished:
            texts.append(f"{n_finished:,} finished")
        for state, n in counts.items():
            texts.append(f"{n:,} {state}")
        return ", ".join(texts)


@dataclass(frozen=True)
class StudyTable:
    """The figures of all rows of a study, next to published ones."""

    name: str
    description: str
    bleu: str  # the name of the score that stands next to the published BLEU
    rows: list[StudyRow]

    def runs(self) -> list[StudyRun]:
        """Return the runs of all rows."""
        runs = []
        for row in self.rows:
            runs += row.runs
        return runs


def study_table(study: Study, pipelines: Pipelines) -> StudyTable:
    """Collect the figures of all rows of a study."""
    rows = []
    for row in study.rows:
        rows.append(_study_row(study, row, pipelines[row.name]))
    return StudyTable(study.name, study.description, study.bleu, rows)


def _study_row(study: Study, row: Row, pipelines: Mapping[str, Pipeline]) -> StudyRow:
    """Collect the figures of a row, whose pipelines have the names of its runs."""
    first = next(iter(pipelines.values()))
    published = row.published.model_dump(exclude_none=True)
    # Overrides of the user may have selected another test set.
    if study.published_test_set not in (None, source_name(first.recipe.test.sets[0])):
        published = {}
    # The corpus knows the vocabulary; without it, the number of parameters is an estimate.
    n_tokens = first.expected_vocabulary()
    with suppress(UserError), without_damaged(first.store.folder):
        prepared = first.find("prepare")
        if prepared is not None:
            n_tokens = PreparedCorpus(prepared).counts().vocabulary
    model = first.recipe.model
    changes = [override.partition(".")[2] for override in row.set]
    if row.recipe:
        changes.insert(0, row.recipe)
    runs = [_study_run(name, pipeline) for name, pipeline in pipelines.items()]
    return StudyRow(
        name=row.name,
        change=", ".join(changes),
        n_parameters=count_parameters(model, model.embedding_rows(n_tokens)).total,
        published=published,
        dev_perplexity=Spread.of([run.dev_perplexity for run in runs]),
        score=Spread.of([run.score(study.bleu) for run in runs]),
        runs=runs,
    )


def _study_run(name: str, pipeline: Pipeline) -> StudyRun:
    """Collect the figures of a run, or the reason why it has none."""
    state, why = run_state(pipeline)
    figures: dict[str, Any] = {}
    if state == FINISHED:
        try:
            figures = _figures(pipeline)
        except UserError as error:
            state = DAMAGED
            why = str(error)
    else:
        # Between two stages of a run, only the lock of the study shows that it is running.
        holder = pipeline.store.holder(LOCKS, lock_name(pipeline))
        if holder is not None:
            state = RUNNING
            why = f"by {holder}"
    run = run_arguments(pipeline.command, pipeline.overrides)
    return StudyRun(name, pipeline.recipe.training.seed, run, state, why, **figures)


def _figures(pipeline: Pipeline) -> dict[str, Any]:
    """Return the figures of a finished run, by the names of the fields of `StudyRun`."""
    # Dev perplexity is measured before averaging: that of the last checkpoint is the closest.
    trained = pipeline.need("train")
    step = averaged_steps(pipeline.need("average"))[-1]
    dev_perplexity = None
    for line in read_published(trained.path, step):
        if line["step"] == step:
            dev_perplexity = line.get("dev_perplexity")
    return {
        "scored": pipeline.fingerprint("score"),
        "steps": step,
        "dev_perplexity": dev_perplexity,
        "scores": read_scores(pipeline.need("score")),
    }


def run_state(pipeline: Pipeline) -> tuple[str, str]:
    """Return the state of a run, and its reason."""
    _, *stages = states(pipeline)  # all rows share the corpus, so `prepare` does not count
    if stages[-1].state == "done":
        return FINISHED, ""
    for stage in stages:
        if stage.state in RUN_STATES:
            return RUN_STATES[stage.state], stage.why
    if stages[0].state == "done":
        return STOPPED, "trained, not scored yet"
    return NOT_RUN, ""


def lock_name(pipeline: Pipeline) -> str:
    """Return the name of the lock of a run."""
    # A table is also shown when texts are missing, so this is not the fingerprint of a stage.
    return compute_fingerprint(LOCKS, pipeline.recipe.model_dump(mode="json"))
