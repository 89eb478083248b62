"""nmtkit report: gather runs and studies from what was published; nothing is run."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from nmtkit import progress
from nmtkit.cli.cost import cost_of
from nmtkit.cli.known_runs import named_chain, recorded, split_overrides, upstream_of
from nmtkit.cli.options import Output, command, tell
from nmtkit.cli.study import chains_of, table
from nmtkit.errors import UserError
from nmtkit.evaluation.sacre import sacre_bleu
from nmtkit.evaluation.scores import read_scores
from nmtkit.evaluation.translations import TranslatedSet, translated_sets
from nmtkit.files import DamagedError
from nmtkit.languages import Language
from nmtkit.machine import Machine
from nmtkit.model.description import Description
from nmtkit.model.weights import count_parameters
from nmtkit.recipe_file import load_recipe, read_toml
from nmtkit.reporting.code import marked
from nmtkit.reporting.document import markdown_of, write_for_paper
from nmtkit.reporting.page import TEMPLATES, replace_page
from nmtkit.reporting.report import Report, RunFacts, StageFacts, document
from nmtkit.reporting.study import StudyTable
from nmtkit.stages.chain import INPUTS, STAGES
from nmtkit.stages.code import other_code
from nmtkit.store import Artifact, Store, open_directory, versions
from nmtkit.study import bundled_studies, load_study
from nmtkit.training.metrics import METRICS, read_metrics

WORDS = (10, 20, 30, 40, 50)  # ends of the groups of source lengths; the last group is open
MIN_LINES = 5  # of a group whose BLEU is reported
OF_DEV = ("step", "dev_perplexity", "dev_sacrebleu", "dev_sacrebleu_how", "dev_bracket_f1")


@command("nmtkit report demo table-3")
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Only these runs and studies, such as demo, 'demo --set SECTION.KEY=VALUE', "
            "table-3, ./mine.toml.",
        ),
    ] = None,
    *,
    machine: Machine,
    output: Output = Path("report"),
) -> None:
    """Write a report of all runs: a page, tables and charts."""
    folder = output or Path("report")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder} is not a folder; name another one")
    found = gather(machine, names or [])
    whole = document(found)
    folder.mkdir(parents=True, exist_ok=True)
    write_for_paper(whole.parts, folder)
    for name, text in {
        "report.html": TEMPLATES.get_template("report.html.j2").render(document=whole),
        "report.md": "\n\n".join(markdown_of([whole], level=1)) + "\n",
        "report.json": json.dumps(found.as_json(), ensure_ascii=False, indent=1) + "\n",
    }.items():
        replace_page(folder / name, text)
        tell(folder / name)


def gather(machine: Machine, names: Sequence[str] = ()) -> Report:
    """Return what is known of runs and studies; by default, of all, and of those that ship."""
    store = Store(machine.runs_dir)
    bundled = [path.stem for path in bundled_studies()]
    of_studies = [name for name in names or bundled if _is_study(name, bundled)]
    studies = [_study(machine, name) for name in of_studies]
    wanted = {row.scored for study in studies for row in study.rows}
    for name in names:
        if name not in of_studies:
            wanted.add(named_chain(name, machine).need("score").path.name)
    runs = []
    for artifact in store.all("score"):
        if names and artifact.path.name not in wanted:
            continue
        progress.say(f"report: {artifact.path}")
        try:
            runs.append(_run(store, artifact))
        except DamagedError as error:
            if names:
                raise
            progress.say(f"report: this run is left out: {error}")
    return Report(
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=versions(),
        runs_dir=str(machine.runs_dir),
        runs=sorted(_labelled(runs, studies), key=lambda run: run.label),
        studies=studies,
    )


def _is_study(name: str, bundled: Sequence[str]) -> bool:
    path = Path(split_overrides(name)[0])
    is_file = path.suffix == ".toml" and path.is_file()
    return "rows" in read_toml(path) if is_file else str(path) in bundled


def _study(machine: Machine, name: str) -> StudyTable:
    study_name, overrides = split_overrides(name)
    loaded = load_study(study_name)
    return table(loaded, chains_of(loaded, machine, overrides))


def _run(store: Store, scored: Artifact) -> RunFacts:
    found: dict[str, Path] = {"score": scored.path}
    for stage in reversed(list(STAGES)):
        if stage in found:
            for name, fingerprint in upstream_of(found[stage]).items():
                found[name] = store.place(name, fingerprint)
    stages = [_stage(stage, found[stage]) for stage in STAGES if stage in found]
    recipe = {key: value for stage in stages for key, value in stage.recipe.items()}
    scores = read_scores(scored)
    run = recorded(scored.path).run
    corpus = recipe.get("corpus", {})
    langs = corpus.get("src_lang", "?"), corpus.get("tgt_lang", "?")
    name = run.name if run else "?"
    description = ""
    if run:
        with suppress(UserError, OSError):
            loaded = load_recipe(run.recipe)
            description = loaded.description
            if not corpus:  # it was freed
                langs = loaded.corpus.src_lang.canonical, loaded.corpus.tgt_lang.canonical
    here = {stage.stage for stage in stages if stage.is_here}
    by_length = {}
    lang = Language.named(langs[1])
    if lang and "translate" in here:
        lowercase = bool(recipe.get("scoring", {}).get("lowercase", False))
        by_length = {
            each.name: _by_length(each, lang, lowercase=lowercase)
            for each in translated_sets(open_directory(found["translate"]))
            if each.references and "sacrebleu" in scores.get(each.name, {})
        }
    return RunFacts(
        id=scored.path.name,
        label=name,
        command=f"nmtkit run {run.run}" if run else "?",
        name=name,
        description=description,
        languages=langs,
        scores=scores,
        stages=stages,
        by_length=by_length,
        other_code=other_code(scored.manifest),
        **(_training(open_directory(found["train"])) if "train" in here else {}),
    )


def _labelled(runs: Sequence[RunFacts], studies: Sequence[StudyTable]) -> Iterator[RunFacts]:
    """Label each run with its row of a study, or the overrides that not all such runs have."""
    rows = {row.scored: f"{study.name}: {row.name}" for study in studies for row in study.rows}
    overrides = {}
    for run in runs:
        of_run = [str(each) for each in run.stages[-1].run.get("overrides", ())]
        overrides[run.id] = {each.partition("=")[0]: each for each in of_run}  # the last one holds
    for run in runs:
        others = [
            set(overrides[each.id].values())
            for each in runs
            if each.name == run.name and each.id not in rows
        ]
        common = set.intersection(*others) if len(others) > 1 else set()
        own = [each for each in overrides[run.id].values() if each not in common]
        label = " ".join([run.name, *(each.split(".", 1)[-1] for each in own)])
        yield replace(run, label=marked(rows.get(run.id, label), run.other_code))


def _stage(stage: str, path: Path) -> StageFacts:
    try:
        manifest = open_directory(path).manifest
    except DamagedError:
        return StageFacts(stage, path.name, str(path), is_here=False)
    made = recorded(path)
    return StageFacts(
        stage,
        path.name,
        str(path),
        is_here=True,
        manifest_sha256=manifest.sha256,
        published=made.published.isoformat() if made.published else None,
        seconds=made.seconds,
        host=made.host,
        run=made.run.model_dump(mode="json") if made.run else {},
        made_by=manifest.made_by,
        code=manifest.code.get(stage, {}),
        recipe={name: manifest.depends_on[name] for name in STAGES[stage]},
        texts=manifest.depends_on.get("inputs", {}) if stage in INPUTS else {},
    )


def _training(trained: Artifact) -> dict[str, Any]:
    """Return what is known of a training, by the names of the fields of `RunFacts`."""
    lines = read_metrics(trained.path / METRICS)
    model = Description.load(trained.path)
    return {
        "n_parameters": count_parameters(model.config, model.n_rows).total,
        "steps": lines[-1]["step"] if lines else None,
        "cost": cost_of(trained),
        "dev": [
            {key: line.get(key) for key in OF_DEV} for line in lines if line.get("dev_perplexity")
        ],
    }


def _by_length(of_set: TranslatedSet, lang: Language, *, lowercase: bool) -> list[dict[str, Any]]:
    """Return sacreBLEU of the lines of each group of source lengths."""
    groups: dict[int, list[tuple[Any, ...]]] = {}
    src, all_hyps, all_references = of_set.read()
    for line, hyp, *refs in zip(src, all_hyps, *all_references, strict=True):
        n_words = len(line.split())
        group = next((end for end in WORDS if n_words <= end), WORDS[-1] + 1)
        groups.setdefault(group, []).append((n_words, hyp, *refs))
    found = []
    for _, lines in sorted(groups.items()):
        if len(lines) >= MIN_LINES:
            lengths, hyps, *references = map(list, zip(*lines, strict=True))
            bleu = sacre_bleu(hyps, *references, lang=lang, lowercase=lowercase, n_bootstrap=1)
            mean = sum(lengths) / len(lines)
            found.append({"mean_words": mean, "lines": len(lines), "sacrebleu": bleu["score"]})
    return found
