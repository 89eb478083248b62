"""The scored runs of a folder, and studies, for a report. Nothing is run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nmtkit.config.loading import find_file, load_recipe, read_toml, recipes_dir
from nmtkit.config.settings import Settings
from nmtkit.config.study import bundled_studies, load_study
from nmtkit.evaluation.translations import read_scores
from nmtkit.model.flops import TYPICAL_LENGTH, update_flops
from nmtkit.model.weights import MODEL, Description, count_parameters
from nmtkit.report.results import TABLES
from nmtkit.report.training_cost import TrainingCost, training_cost
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.artifacts import Artifact, Store, open_directory, verify
from nmtkit.store.code_version import versions, warn_of_other_code
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.provenance import (
    RunRecord,
    read_run_record,
    split_overrides,
    with_sources,
    without_damaged,
)
from nmtkit.store.records import DamagedError
from nmtkit.study.figures import NOT_RUN, StudyTable, study_table
from nmtkit.study.study_runs import study_pipelines
from nmtkit.training.metrics import DEV_FIELDS, read_published
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

FORMAT = 6  # of report.json; README.md describes it


@dataclass(frozen=True)
class ScoredRun:
    """A scored run, as in report.json; README.md describes the fields."""

    id: str  # the fingerprint of its scores
    label: str  # the study and its row, or the recipe and its overrides
    command: str
    name: str
    description: str
    languages: tuple[str, str]
    scores: dict[str, Any]
    stages: list[dict[str, Any]]  # the artifacts that it was built from
    paper_bleu: bool = False  # whether its recipe asks for the paper's kinds of BLEU
    n_parameters: int | None = None
    steps: int | None = None
    cost: TrainingCost | None = None
    dev: list[dict[str, Any]] = field(default_factory=list)  # evaluations during training

    def changes(self) -> dict[str, str]:
        """Return the values of the recipe that the run overrides, by their keys."""
        return overridden_values(self.stages[-1].get("run", {}).get("overrides", ()))


@dataclass(frozen=True)
class Report:
    """All that a report shows."""

    written: str  # time, UTC
    made_by: dict[str, str]  # versions; the name is that of report.json
    runs_dir: str
    runs: list[ScoredRun]
    studies: list[StudyTable]

    def as_json(self) -> dict[str, Any]:
        """Return the content of report.json, except for the names of other files."""
        return {"format": FORMAT, **asdict(self), **TABLES}


def collect_report(settings: Settings, names: Sequence[str] = ()) -> Report:
    """Collect scored runs and studies.

    Args:
        settings: The folder of artifacts.
        names: Recipes and studies, with `--set` if need be. By default, all scored runs, the
            studies that come with nmtkit, and own ones that have begun.

    Raises:
        UserError: A recipe or study cannot be loaded, or a named recipe is not scored.
        DamagedError: The scores of a named recipe are damaged.
    """
    studies: list[StudyTable] = []
    requested: set[str | None] = set()  # fingerprints of scores
    if not names:
        studies += _own_studies(settings)
    for name in names or [path.stem for path in bundled_studies()]:
        # A name stands for a recipe or a study; only studies have rows.
        bare_name, overrides = split_overrides(name)
        path = find_file("recipe or study", bare_name, [recipes_dir(), recipes_dir() / "studies"])
        # A report may name both kinds together.
        if "rows" in read_toml(path):
            study = load_study(bare_name)
            table = study_table(study, study_pipelines(study, settings, overrides))
            studies.append(table)
            requested.update(run.scored for run in table.runs())
        else:
            recipe = load_recipe(bare_name, overrides)
            pipeline = Pipeline(recipe, settings, bare_name, overrides)
            requested.add(pipeline.need("score").path.name)
    return Report(
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=versions(),
        runs_dir=str(settings.runs_dir),
        runs=_collect_runs(settings, studies, requested if names else None),
        studies=studies,
    )


def _own_studies(settings: Settings) -> list[StudyTable]:
    """Return the studies of the current folder, and of its folder studies, that have begun.

    Args:
        settings: The folder of artifacts.
    """
    tables = []
    for path in [*sorted(Path().glob("*.toml")), *sorted(Path("studies").glob("*.toml"))]:
        with suppress(UserError, OSError):  # a file of another purpose
            if not {"rows", "recipe"} <= read_toml(path).keys():
                continue
            study = load_study(f"./{path}")
            table = study_table(study, study_pipelines(study, settings))
            if any(run.state != NOT_RUN for run in table.runs()):
                tables.append(table)
    return tables


def _collect_runs(
    settings: Settings, studies: Sequence[StudyTable], requested: set[str | None] | None
) -> list[ScoredRun]:
    """Return the scored runs of a folder, by label.

    Args:
        settings: The folder of artifacts.
        studies: Studies, whose rows name their runs.
        requested: Fingerprints of the scores to include; None for all. A damaged run is an
            error if it was requested, and else skipped with a warning.
    """
    # A run of a study is labelled by its row; it may also have been run by hand.
    row_names = {}
    for study in studies:
        for study_run in study.runs():
            row_names[study_run.scored] = f"{study.name}: {study_run.name}"
    store = Store(settings.runs_dir)
    runs = []
    for path in store.folders("score"):
        fingerprint = path.name
        # Drafts have no scores yet.
        is_draft = path.suffix != ""
        if is_draft or (requested is not None and fingerprint not in requested):
            continue
        try:
            scored = store.find("score", fingerprint)
            if scored is not None:
                warn_of_other_code([scored])
                runs.append(_collect_run(store, scored, row_names.get(fingerprint)))
        except DamagedError as error:
            if requested is not None:
                raise
            progress.warn(f"report: skipping a damaged run: {error}")
    return sorted(runs, key=lambda run: run.label)


def _collect_run(store: Store, scored: Artifact, row_name: str | None) -> ScoredRun:
    """Collect the scores of a run, and the records of the artifacts that it was built from.

    Args:
        store: The folder of artifacts.
        row_name: The study and row of the run, if it is one.
    """
    # The folders of the inputs are known from manifests, also if they were deleted.
    folders = {path.parent.name: path for path in with_sources(scored.path, store.folder)}
    stages = [_stage_record(stage, folders[stage]) for stage in STAGES if stage in folders]
    run = read_run_record(scored.path).run
    languages = _languages(stages)
    description = ""
    paper_bleu = False
    if run is not None:
        with suppress(UserError, OSError):  # the recipe may have been moved or changed
            recipe = load_recipe(run.recipe, run.overrides)
            description = recipe.description
            paper_bleu = recipe.scoring.paper_bleu
            # The manifest that has the languages may have been deleted.
            if languages is None:
                languages = (recipe.corpus.src_lang.canonical, recipe.corpus.tgt_lang.canonical)
    name = run.name if run else "?"
    label = row_name
    if label is None:
        label = run_label(name, overridden_values(run.overrides if run else ()))
    return ScoredRun(
        id=scored.path.name,
        label=label,
        command=f"nmtkit run {run.run}" if run else "?",
        name=name,
        description=description,
        languages=languages or ("?", "?"),
        paper_bleu=paper_bleu,
        scores=read_scores(scored),
        stages=stages,
        **(_training_record(folders["train"]) if "train" in folders else {}),
    )


def run_label(name: str, changes: Mapping[str, str]) -> str:
    """Return a recipe and its overridden values, without sections, as in the tables of studies."""
    words = [name]
    for key, value in changes.items():
        words.append(f"{key.partition('.')[2]}={value}")
    return " ".join(words)


def overridden_values(overrides: Sequence[str]) -> dict[str, str]:
    """Return the values of `--set` by key; the last value of a key counts."""
    values = {}
    for override in overrides:
        key, _, value = override.partition("=")
        values[key.strip()] = value.strip()
    return values


def _languages(stages: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the source and target language of a run; None without its artifact of `prepare`."""
    for stage in stages:
        corpus = stage.get("recipe", {}).get("corpus")
        if corpus:
            return corpus.get("src_lang", "?"), corpus.get("tgt_lang", "?")
    return None


def _stage_record(stage: str, path: Path) -> dict[str, Any]:
    """Return the record of an artifact, as in report.json.

    Args:
        path: The artifact; it may have been deleted.
    """
    record: dict[str, Any] = {
        "stage": stage,
        "fingerprint": path.name,
        "path": str(path),
        "is_here": False,
    }
    # The user may have deleted artifacts that a score was computed from.
    with without_damaged(path / MANIFEST):
        manifest = open_directory(path).manifest
        measurements = read_run_record(path)
        record.update(
            {
                "is_here": True,
                "manifest_sha256": manifest.sha256,
                **measurements.model_dump(mode="json", include={"published", "seconds", "host"}),
                "run": measurements.run.model_dump(mode="json") if measurements.run else {},
                "made_by": manifest.made_by,
                "recipe": {name: manifest.depends_on[name] for name in STAGES[stage]},
                "texts": manifest.depends_on.get("inputs", {}),
            }
        )
    return record


def _training_record(path: Path) -> dict[str, Any]:
    """Return the record of a training, by the names of the fields of `ScoredRun`.

    Args:
        path: The artifact of the training; the record is empty if it was deleted or is damaged.
    """
    with without_damaged(path / MANIFEST):
        trained = verify(open_directory(path), MODEL)
        model = Description.load(trained.path)
        measured = read_run_record(path)
        # The curves of a report need the scores of dev only, not every step.
        dev = []
        for line in read_published(path, measured.steps):
            if any(line.get(name) is not None for name in DEV_FIELDS):
                keys = [key for key in line if key == "step" or key.startswith("dev_")]
                dev.append({key: line[key] for key in keys})
        return {
            "n_parameters": count_parameters(model.config, model.n_rows).total,
            "steps": measured.steps or None,
            "cost": _training_cost(measured, model),
            "dev": dev,
        }
    return {}


def _training_cost(measured: RunRecord, model: Description) -> TrainingCost | None:
    """Estimate the cost of a training; None if no step was timed.

    Steps that were not timed, such as those before a kill, count with the average cost.

    Args:
        measured: The measurements of the training.
    """
    if not measured.timed_steps:
        return None
    device = measured.device_name
    n_devices = 1
    # Parts on other machines, or with other numbers of processes, have no common rate.
    if isinstance(measured.processes, str) or "+" in device:
        device = f"several machines ({device}, processes: {measured.processes})"
    else:
        n_devices = measured.processes
    scale = measured.steps / measured.timed_steps
    # Lengths of single sentences are not recorded; attention is a small part of the operations.
    timed_flops = update_flops(
        model.config,
        model.n_rows,
        measured.timed_src_tokens,
        measured.timed_tgt_tokens,
        TYPICAL_LENGTH,
    )
    return training_cost(
        scale * measured.timed_seconds,
        n_devices,
        device,
        scale * timed_flops,
    )
