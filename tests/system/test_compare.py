"""nmtkit compare: the results of sacreBLEU's own command, and errors in one sentence."""

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rendering.test_page import assert_self_contained, parse
from sacrebleu.metrics.chrf import CHRF

from nmtkit.analysis.comparison_page import verdict as compute_verdict
from nmtkit.analysis.ranked_lines import mark_differences
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.stages import average, score, translate
from nmtkit.stages.pipeline import Pipeline
from system.command import RECIPE, artifact, done, environment, nmtkit, sentence
from system.conftest import Finished

N_LINES = 60
REF = ("--ref", "ref.de", "--lang", "de")
METRICS = {"BLEU": "sacrebleu", "chrF2": "chrf"}
PAPER_KINDS = {"tokenized BLEU", "compound-split BLEU", "approximate randomization: nrefs"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A reference and three systems: b.de has more errors than a.de, and c.de equals a.de."""
    generator = random.Random(1)
    words = ["der", "Hund", "sah", "die", "Katze,", "und", "rich-text", "ging", "heim", "—", "es"]
    refs = [" ".join(generator.choices(words, k=generator.randint(4, 15))) for _ in range(N_LINES)]

    def add_errors(share: float) -> list[str]:
        lines = []
        for ref in refs:
            hyp = [word if generator.random() > share else "Baum" for word in ref.split()]
            lines.append(" ".join(hyp))
        return lines

    hyps = add_errors(0.2)
    worse = add_errors(0.25)
    for name, lines in (("ref.de", refs), ("a.de", hyps), ("b.de", worse), ("c.de", hyps)):
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / name).write_text(text, encoding="utf-8", newline="\n")
    return tmp_path


def sacrebleu(folder: Path, *options: str, **variables: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sacrebleu", "ref.de", "-i", "a.de", "b.de", "c.de"]
    ended = subprocess.run(
        [*command, "-f", "json", *options],
        cwd=folder, env=environment(**variables), check=True, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


# sacreBLEU cannot print the bootstrap of chrF as JSON.
OPTIONS = {
    "paired_bootstrap": ("--paired-bs", "-m", "bleu"),
    "approximate_randomization": ("--paired-ar", "-m", "bleu", "chrf"),
}


def compared(folder: Path, *args: str, **variables: str) -> dict[str, Any]:
    command = ("compare", "a.de", "b.de", "c.de", "--ref", "ref.de", "--lang", "de", *args)
    env = environment(**variables) if variables else None
    found: dict[str, Any] = json.loads(done(nmtkit(folder, *command, "--json", env=env)).out)
    return found


def test_csv_has_only_scores(files: Path) -> None:
    command = ("compare", "a.de", "b.de", "--ref", "ref.de", "--lang", "de", "--table", "csv")
    rows = list(csv.DictReader(io.StringIO(done(nmtkit(files, *command)).out)))
    assert {row["system"] for row in rows} == {"a.de", "b.de"}
    assert all(float(row["score"]) > 0 for row in rows)


@pytest.mark.parametrize("seed", [{}, {"SACREBLEU_SEED": "7"}])
def test_compare_matches_sacrebleu(files: Path, seed: dict[str, str]) -> None:
    ours = compared(files, **seed)
    assert ours["seed"] == seed.get("SACREBLEU_SEED", "12345")
    for test, options in OPTIONS.items():
        for theirs, system in zip(sacrebleu(files, *options, **seed), ours["systems"], strict=True):
            for name in METRICS.keys() & theirs:
                expected = theirs[name]
                found = system["tests"][test][METRICS[name]]
                assert found["score"] == expected["score"]
                if system["name"] == "c.de":  # a.de: everything is a tie, which counts half
                    assert found["p_value"] == pytest.approx(0.5, abs=0.001)
                elif system["name"] == "b.de":  # few samples tie
                    assert 0 <= found["p_value"] - expected["p_value"] < 0.001
                if expected["mean"] is not None:
                    low, high = found["confidence_interval"]
                    assert (low + high) / 2 == pytest.approx(expected["mean"], abs=1e-9)
                    assert (high - low) / 2 == pytest.approx(expected["ci"], abs=1e-9)
    assert f"seed:{ours['seed']}" in ours["systems"][0]["tests"][test]["chrf"]["signature"]


def test_compare_files_output(files: Path) -> None:
    command = ("compare", "a.de", "b.de", "c.de", "--ref", "ref.de", "--lang", "de")
    shown = done(nmtkit(files, *command, "--html", "page.html")).out
    found = compared(files)
    assert [system["identical"] for system in found["systems"]] == [True, False, True]
    (verdicts,) = (line for line in shown.split("\n") if "against the first" in line)
    assert verdicts.split("│")[-2].strip() == "identical"
    assert "SACREBLEU_SEED" in shown
    names = ("ref.de", "a.de", "b.de")
    lines = [(files / name).read_text(encoding="utf-8").split("\n") for name in names]
    metric = CHRF()
    ranges = {
        number: abs(metric.sentence_score(a, [ref]).score - metric.sentence_score(b, [ref]).score)
        for number, (ref, a, b) in enumerate(zip(*lines, strict=True), 1)
    }
    differences = found["differences"]
    largest = sorted(ranges.values(), reverse=True)[: len(differences)]
    assert [ranges[difference["line"]] for difference in differences] == largest
    plain = re.sub(r"[│\s\[\]]", "", shown)
    page = parse((files / "page.html").read_text(encoding="utf-8"))
    assert_self_contained(page, "style")
    every = done(nmtkit(files, *command, "--all", "--html", "all.html")).out
    every_page = parse((files / "all.html").read_text(encoding="utf-8"))
    for text in (every, every_page.text):
        assert {name for name in PAPER_KINDS if name in text} == PAPER_KINDS
    for text in (shown, page.text):
        assert not {name for name in PAPER_KINDS if name in text}
        (signature,) = (line for line in text.split("\n") if "version:" in line)
        assert signature.count("version:") == 2  # of sacreBLEU and chrF2
    on_page = re.sub(r"[\s\[\]]", "", page.text)
    for number, difference in enumerate(differences):
        for hyp in difference["hyps"]:
            text = "".join(hyp.split())
            assert number >= 5 or text in plain or len(hyp) > 60
            assert text in on_page


@pytest.mark.parametrize(
    ("score", "p_values", "verdict"),
    [(31, (0.01, 0.04), "better"), (29, (0.01, 0.04), "worse"), (31, (0.01, 0.06), "no")],
)
def test_verdict_needs_both_tests(
    score: float, p_values: tuple[float, float], verdict: str
) -> None:
    def system(score: float) -> dict[str, Any]:
        tests = {}
        for name, p_value in zip(OPTIONS, p_values, strict=True):
            tests[name] = {"sacrebleu": {"score": score, "p_value": p_value}}
        return {"identical": False, "tests": tests}

    assert compute_verdict(system(score), system(30)).split(" ")[0] == verdict


def test_mark_differences() -> None:
    others = ["der Baum  sah die Katze", "der Hund  sah die"]
    assert mark_differences("der Hund  sah die Katze", others) == "der [Hund]  sah die [Katze]"
    assert mark_differences("a b", ["a b"]) == "a b"


def test_escaped_text_is_warned_about(files: Path) -> None:
    escaped = (files / "b.de").read_text(encoding="utf-8").replace("und", "&amp;")
    (files / "escaped.de").write_text(escaped, encoding="utf-8", newline="\n")
    for command in (("compare", "a.de"), ("score",)):
        ended = done(nmtkit(files, *command, "escaped.de", *REF[:1], "ref.de", *REF[2:], "--json"))
        assert json.loads(ended.out)
        assert ended.err.count("&amp;") == 1


def test_compare_runs(complete: Path, finished: Finished) -> None:
    variant = ["decoding.beam_size=1"]
    settings = Settings(complete / "runs", device="cpu", workers=1)
    path = str(complete / RECIPE)
    pipeline = Pipeline(load_recipe(path, variant), settings, path, variant)
    for stage in (average, translate, score):
        stage.run(pipeline)
    run = f"{RECIPE} --set {variant[0]}"
    found = json.loads(done(nmtkit(complete, "compare", RECIPE, run, "--json")).out)
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())["test"]
    worst = json.loads(done(nmtkit(complete, "score", RECIPE, "--worst", "2", "--json")).out)
    lines = worst["test"].pop("worst")["lines"]
    assert worst["test"] == scores
    hyps = artifact(finished.folder, "translate") / "test" / "hypotheses.txt"
    text = hyps.read_text(encoding="utf-8").split("\n")
    assert [line["hyps"] for line in lines] == [[text[line["line"] - 1]] for line in lines]
    assert [system["name"] for system in found["systems"]] == [RECIPE, run]
    for key in ("sacrebleu", "tokenized_bleu", "compound_split_bleu"):
        assert found["systems"][0]["scores"][key] == scores[key]
    assert found["test_set"] == scores["test_set"]
    assert not found["paper_bleu"]
    # Of several runs, one of the paper's recipes is enough.
    paper = f"{RECIPE} --set scoring.paper_bleu=true"
    for names in ((paper, str(hyps)), (RECIPE, paper)):
        shown = done(nmtkit(complete, "compare", *names)).out
        assert {name for name in PAPER_KINDS if name in shown} == PAPER_KINDS
    found = json.loads(done(nmtkit(complete, "compare", RECIPE, str(hyps), "--json")).out)
    assert found["systems"][1]["identical"]
    assert found["differences"] == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("a.de",), "needs two or more different systems"),
        (("a.de", "a.de"), "needs two or more different systems"),
        (("a.de", "b.de"), "pass --ref FILE and --lang"),
        (("a.de", "b.de", "--ref", "ref.de"), "or tree for parses"),
        (("a.de", "short.de", *REF), "short.de has 1 line, but ref.de has 60"),
        (("a.de", "b.de", *REF, "--src", "short.de"), "short.de has 1 line"),
        (("a.de", "b.dee", *REF), "cannot read b.dee: No such file"),
        (("a.de", "folder", *REF), "folder is a folder"),
        (("a.de", "demi --set decoding.length_penalty=0.5", *REF), "'demi'"),
        (("a.de", "demo --sets x=y", *REF), "is not a run"),
    ],
)
def test_compare_mistakes(files: Path, command: tuple[str, ...], message: str) -> None:
    (files / "short.de").write_text("a\n", encoding="utf-8")
    (files / "folder").mkdir()
    assert message in sentence(nmtkit(files, "compare", *command))


def test_compare_reads_pipe(files: Path) -> None:
    os.mkfifo(files / "pipe")
    hyps = (files / "b.de").read_bytes()
    writer = threading.Thread(target=(files / "pipe").write_bytes, args=(hyps,), daemon=True)
    writer.start()
    ended = done(nmtkit(files, "compare", "a.de", "pipe", *REF, "--json"))
    expected = done(nmtkit(files, "compare", "a.de", "b.de", *REF, "--json"))
    systems = json.loads(ended.out)["systems"]
    assert [system["name"] for system in systems] == ["a.de", "pipe"]
    assert systems[1]["tests"] == json.loads(expected.out)["systems"][1]["tests"]


def test_compare_other_test_set(finished: Finished, files: Path) -> None:
    folder = finished.folder
    options = ("--ref", str(files / "ref.de"), "--lang", "de")
    message = sentence(nmtkit(folder, "compare", RECIPE, str(files / "a.de"), *options))
    assert f"{RECIPE} (test, 36 lines) differ from those of ref.de (60 lines)" in message
    message = sentence(nmtkit(folder, "compare", RECIPE, str(files / "a.de")))
    assert "has 60 lines, but test has 36" in message
    message = sentence(nmtkit(folder, "compare", RECIPE, "x.de", "--test-set", "other"))
    assert "no test set other; it has test" in message
