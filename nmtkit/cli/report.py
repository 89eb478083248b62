"""nmtkit report: gather runs and studies from what was published; nothing is run."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from nmtkit.cli.options import (
    Output,
    argument,
    check_output,
    command,
    flag,
    load_pipeline,
    print_path,
)
from nmtkit.cli.results import show_results
from nmtkit.cli.study import chains_of, table
from nmtkit.config.loading import find_file, load_recipe, read_toml, recipes_dir
from nmtkit.config.settings import Settings
from nmtkit.config.study import bundled_studies, load_study
from nmtkit.evaluation.translations import read_scores
from nmtkit.model.description import MODEL, Description
from nmtkit.model.flops import TYPICAL_LENGTH, update_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.document import files_for_paper, markdown_of, page_of, replace_page
from nmtkit.reporting.report import Report, RunFacts, document, runs_grid
from nmtkit.reporting.show import Form, as_json, show
from nmtkit.reporting.study_table import StudyTable, study_parts
from nmtkit.reporting.training_cost import TrainingCost, training_cost
from nmtkit.stages.listing import Recorded, recorded, with_sources, without_damaged
from nmtkit.stages.pipeline import STAGES, warn_of_other_code
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.code_version import versions
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.provenance import split_overrides
from nmtkit.store.records import DamagedError, read_record
from nmtkit.store.verification import verify
from nmtkit.training.metrics import OF_DEV, read_published
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

PAGES = ("report.html", "report.md", "report.json")
OF_PAPER = r"^(tables|charts)/[^/\\]+\.(md|tex|csv|svg)$"  # names of files
MAX_REPORT_BYTES = 2**26  # of a report.json that is read again


@command("nmtkit report demo table-3")
def report(
    names: Annotated[
        list[str] | None,
        argument(
            "[NAME]...",
            "Only these runs and studies, such as demo, 'demo --set SECTION.KEY=VALUE', "
            "table-3, ./mine.toml.",
        ),
    ] = None,
    *,
    settings: Settings,
    form: Form,
    output: Output = Path("report"),
    results: Annotated[
        bool, flag("Show what was reached by whom, in one table.", "--results")
    ] = False,
) -> None:
    if results:
        show_results(form)
        return
    folder = output or Path("report")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder} is not a folder; name another one")
    check_output("--output", folder)
    found = gather(settings, names or [])
    whole = document(found)
    files = dict(files_for_paper(whole))
    about = {**found.as_json(), "files": list(files)}
    files["report.html"] = page_of(whole)
    files["report.md"] = "\n\n".join(markdown_of(whole)) + "\n"
    files["report.json"] = f"{as_json(about)}\n"
    try:
        older = read_record(folder / "report.json", _Written, MAX_REPORT_BYTES).files
    except DamagedError:  # there is no older report, or one of another form
        older = set()
        own = set()
    else:
        own = {*older, *PAGES}
    for name in files:
        if name not in own and (folder / name).exists():
            raise UserError(f"{folder / name} is of no earlier report; name another --output")
    for name in older.difference(files):
        (folder / name).unlink(missing_ok=True)
    studies = [part for each in found.studies if names for part in study_parts(each, form)]
    show(form, about, studies or ([runs_grid(found)] if form.table else []))
    for name in sorted(files, key="report.json".__ne__):  # it tells a rerun that all are ours
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_page(folder / name, files[name])
    for kind in ("html", "md", "json") if form == Form() else ():
        print_path(folder / f"report.{kind}")


class _Written(BaseModel):
    """What report.json says of the tables and charts that were written with it."""

    made_by: dict[str, str]
    files: set[Annotated[str, Field(pattern=OF_PAPER)]]


def gather(settings: Settings, names: Sequence[str] = ()) -> Report:
    """Return what is known of runs and studies; by default, of all, and of those that ship."""
    store = Store(settings.runs_dir)
    studies: list[StudyTable] = []
    wanted: set[str | None] = set()
    for name in names or [path.stem for path in bundled_studies()]:
        bare, overrides = split_overrides(name)
        path = find_file("recipe or study", bare, [recipes_dir(), recipes_dir() / "studies"])
        if "rows" in read_toml(path):
            study = load_study(bare)
            studies.append(table(study, chains_of(study, settings, overrides)))
            wanted |= {run.scored for run in studies[-1].runs()}
        else:
            wanted.add(load_pipeline(bare, overrides, settings).need("score").path.name)
    rows = {run.scored: f"{study.name}: {run.name}" for study in studies for run in study.runs()}
    runs = []
    for path in store.folders("score"):
        if not path.suffix and (not names or path.name in wanted):
            try:
                if scored := store.find("score", path.name):
                    warn_of_other_code([scored])
                    runs.append(_run(store, scored, rows.get(path.name)))
            except DamagedError as error:
                if names:
                    raise
                progress.warn(f"report: this run is left out: {error}")
    return Report(
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=versions(),
        runs_dir=str(settings.runs_dir),
        runs=sorted(runs, key=lambda run: run.label),
        studies=studies,
    )


def _run(store: Store, scored: Artifact, row: str | None) -> RunFacts:
    found = {path.parent.name: path for path in with_sources(scored.path, store.folder)}
    stages = [_stage(stage, found[stage]) for stage in STAGES if stage in found]
    sections = {key: each for stage in stages for key, each in stage.get("recipe", {}).items()}
    run = recorded(scored.path).run
    corpus = sections.get("corpus", {})
    langs = corpus.get("src_lang", "?"), corpus.get("tgt_lang", "?")
    description = ""
    if run:
        with suppress(UserError, OSError):
            loaded = load_recipe(run.recipe)
            description = loaded.description
            if not corpus:  # it was freed
                langs = loaded.corpus.src_lang.canonical, loaded.corpus.tgt_lang.canonical
    name = run.name if run else "?"
    changes = (each.split(".", 1)[-1] for each in (run.overrides if run else ()))
    return RunFacts(
        id=scored.path.name,
        label=row or " ".join([name, *changes]),
        command=f"nmtkit run {run.run}" if run else "?",
        name=name,
        description=description,
        languages=langs,
        scores=read_scores(scored),
        stages=stages,
        **(_training(found["train"]) if "train" in found else {}),
    )


def _stage(stage: str, path: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"stage": stage, "fingerprint": path.name, "path": str(path)}
    with without_damaged(path / MANIFEST):
        manifest, made = open_directory(path).manifest, recorded(path)
        return {
            **about,
            "is_here": True,
            "manifest_sha256": manifest.sha256,
            **made.model_dump(mode="json", include={"published", "seconds", "host"}),
            "run": made.run.model_dump(mode="json") if made.run else {},
            "made_by": manifest.made_by,
            "recipe": {name: manifest.depends_on[name] for name in STAGES[stage]},
            "texts": manifest.depends_on.get("inputs", {}),
        }
    return {**about, "is_here": False}


def _training(path: Path) -> dict[str, Any]:
    """Return what is known of a training, by the names of the fields of `RunFacts`."""
    with without_damaged(path / MANIFEST):
        trained = verify(open_directory(path), MODEL)
        model = Description.load(trained.path)
        return {
            "n_parameters": count_parameters(model.config, model.n_rows).total,
            "steps": recorded(path).steps or None,
            "cost": _cost_of(recorded(path), model),
            "dev": [
                {key: line.get(key) for key in ("step", *OF_DEV)}
                for line in read_published(path, recorded(path).steps, progress.warn_once)
                if line.get("dev_perplexity")
            ],
        }
    return {}


def _cost_of(measured: Recorded, model: Description) -> TrainingCost | None:
    """Return the cost of a training, steps that were not measured included, if it can be known."""
    if not measured.timed_steps:
        return None
    share = measured.steps / measured.timed_steps
    seconds = share * measured.timed_seconds
    src, tgt = measured.timed_src_tokens, measured.timed_tgt_tokens
    flops = share * update_flops(model.config, model.n_rows, src, tgt, TYPICAL_LENGTH)
    return training_cost(seconds, measured.processes, measured.device_name, flops)
