"""`nmtkit score` of files, compared with sacreBLEU's own command."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers import tokenizer_ja_mecab
from typer.testing import CliRunner

from nmtkit.analysis.scoring import score_files, worst_lines_parts
from nmtkit.analysis.test_sets import own_test_set
from nmtkit.cli import app as cli
from nmtkit.evaluation import sacre
from nmtkit.evaluation.scores import format_score, score_table
from nmtkit.rendering.grid import Grid, as_csv
from nmtkit.sources.catalog import data_dir
from nmtkit.utils.errors import UserError

TEXTS = {
    "a.de": "Die Katze saß auf der roten Matte.|Ein Hund kam.|Nein!|Es regnet heute in Köln.",
    "b.de": "Eine Katze saß auf der Matte.|Ein Hund ging.|Nein.|In Köln regnet es heute.",
    "1.de": "Die Katze saß auf einer Matte.|Ein Hund kam heim.|Nein|Heute regnet es.",
    "2.de": "Die Katze saß auf der Matte.|Der Hund kam.|Doch|Es regnet heute in Köln!",
    "a.zh": "有人提议将头衔改为议员。|整个政坛担心这会惹来嘲笑。|AM 的人数|是的",
    "1.zh": "有人提议应将头衔改为议员。|整个政坛担心会惹来嘲笑。|AM 的人数|是的",
    "h.de": "Ja|Es \x1b[31mregnet|Nein|Es \x1b[31mregnet|Da",
    "r.de": "Ja|Es schneit|Doch!|Es schneit|Ja",
    "2.zh": "有人建议应将头衔改为议员。|政坛担心这会惹来嘲笑。|AM 人数|是",
}


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts, as files in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        text = "".join(f"{line}\n" for line in lines.split("|"))
        Path(name).write_text(text, encoding="utf-8", newline="\n")


def score(*args: str) -> dict[str, Any]:
    ended = CliRunner().invoke(cli.app, ["score", *args, "--json"])
    if ended.exception is not None:
        raise ended.exception
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def sacrebleu(system: str, references: Sequence[str], *options: str) -> dict[str, Any]:
    """The results of sacreBLEU's own command, by metric."""
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", system, *options]
    ended = subprocess.run([*command, "-ci", "-w", "10"], capture_output=True, check=True)
    printed = json.loads(ended.stdout)
    results = printed if isinstance(printed, list) else [printed]
    return {result["name"]: result for result in results}


@pytest.mark.parametrize(("lang", "metrics"), [("de", ("chrf", "ter")), ("zh", ("chrf",))])
def test_scores_equal_sacrebleu(lang: str, metrics: Sequence[str]) -> None:
    system = f"a.{lang}"
    references = [f"1.{lang}", f"2.{lang}"]
    options = [f"--lang={lang}", "--metric=bleu"]
    options += [f"--metric={metric}" for metric in metrics]
    options += [f"--ref={reference}" for reference in references]
    ours = score(system, *options)[system]
    theirs = sacrebleu(system, references, "-l", f"en-{lang}", "-m", "bleu", *metrics)
    names = {"sacrebleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
    for key in ("sacrebleu", *metrics):
        expected = theirs[names[key]]
        assert round(ours[key]["score"], 10) == expected["score"]
        assert ours[key]["signature"] == expected["signature"]
        low, high = ours[key]["confidence_interval"]
        assert (low + high) / 2 == pytest.approx(expected["confidence_mean"], abs=1e-4)
        assert (high - low) / 2 == pytest.approx(expected["confidence_var"], abs=1e-4)


def test_table_has_interval_and_signature() -> None:
    scores = score("a.de", "b.de", "--ref", "1.de", "--lang", "de")
    grid, *notes = score_table(scores)
    assert isinstance(grid, Grid)
    rows = {row[0]: row[1:] for (row,) in grid.groups}
    for cell, system_scores in zip(rows["sacreBLEU"], scores.values(), strict=True):
        low, high = system_scores["sacrebleu"]["confidence_interval"]
        assert cell.startswith(f"{system_scores['sacrebleu']['score']:.2f}")
        assert f"[{low:.2f}, {high:.2f}]" in cell
    assert "\n".join(map(str, notes)).count(scores["a.de"]["sacrebleu"]["signature"]) == 1


def test_interval_has_no_negative_zero() -> None:
    scores = {"sacrebleu": {"score": 0.001, "confidence_interval": [-0.001, 0.003]}}
    assert format_score(scores, "sacrebleu", with_interval=True) == "0.00 [0.00, 0.00]"


def test_table_has_kinds_of_today() -> None:
    names = ["sacreBLEU", "chrF2", "tokenized BLEU", "compound-split BLEU"]

    def shown(*options: str) -> str:
        command = ["score", "a.de", "1.de", "--lang", "de", *options]
        return CliRunner().invoke(cli.app, command, catch_exceptions=False).stdout

    default = shown()
    assert [name for name in names if name in default] == ["sacreBLEU", "chrF2"]
    notes = default.rpartition("┘")[2].strip().split("\n")
    assert len(notes) == 1  # with both signatures
    assert notes[0].count("version:") == 2
    every = shown("--all")
    assert [name for name in names if name in every] == names
    assert "get_ende_bleu.sh" in every
    data = shown("--table", "csv")
    assert "compound_split_bleu.score_quotes_replaced" in data
    scores = json.loads(shown("--json"))["a.de"]
    assert set(scores) == {"sacrebleu", "tokenized_bleu", "compound_split_bleu", "test_set"}


def test_scores_of_text_without_spaces() -> None:
    (found,) = score("a.zh", "1.zh", "--lang", "zh-TW").values()
    assert found.keys() == {"sacrebleu", "test_set"}
    assert "|tok:zh|" in found["sacrebleu"]["signature"]
    with pytest.raises(UserError, match=r"--metric ter .*zh"):
        score("a.zh", "1.zh", "--lang", "zh", "--metric", "ter")


def test_missing_tokenizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(UserError, match=r'run `pip install "sacrebleu\[ja\]"`$'):
        score("a.zh", "1.zh", "--lang", "ja")


def test_several_systems_and_references() -> None:
    found = score("a.de", "b.de", "--ref", "1.de", "--ref", "2.de", "--lang", "DE", "--lowercase")
    assert list(found) == ["a.de", "b.de"]
    references = Path("1.de").read_bytes() + Path("2.de").read_bytes()
    for system, scores in found.items():
        sha256 = hashlib.sha256(references).hexdigest()
        assert scores["test_set"] == {"name": "1.de, 2.de", "lines": 4, "sha256": sha256}
        single = score(system, "--ref", "1.de", "--ref", "2.de", "--lang", "de", "--lowercase")
        assert single[system] == scores


def test_standard_input_is_a_system() -> None:
    command = [sys.executable, "-m", "nmtkit", "score", "-", "b.de", "--ref", "1.de", "--lang=de"]
    text = Path("a.de").read_bytes()
    ended = subprocess.run([*command, "--json"], input=text, capture_output=True, check=True)
    found = json.loads(ended.stdout)
    assert found["-"] == score("a.de", "1.de", "--lang", "de")["a.de"]
    assert found["b.de"] == score("b.de", "1.de", "--lang", "de")["b.de"]


def test_reference_from_catalog() -> None:
    reference = data_dir() / "demo" / "test.de"
    named = ("--test-set", "demo-test", "--lang", "en-de")
    (scores,) = score(str(reference), *named, "--worst", "1").values()
    src = reference.with_suffix(".en").read_text(encoding="utf-8").split("\n")
    assert [line["src"] for line in scores["worst"]["lines"]] == src[:1]
    assert scores["sacrebleu"]["score"] == pytest.approx(100)
    sha256 = hashlib.sha256(reference.read_bytes()).hexdigest()
    assert scores["test_set"] == {"name": "demo-test", "lines": 500, "sha256": sha256}
    with pytest.raises(UserError, match=r"a\.de has 4 lines, but demo-test has 500"):
        score("a.de", *named)


def test_worst_lines_have_lowest_chrf() -> None:
    texts = (TEXTS[name].split("|") for name in ("h.de", "r.de"))
    expected = [CHRF().sentence_score(hyp, [ref]).score for hyp, ref in zip(*texts, strict=True)]
    for n in (2, 99):
        scores = score("h.de", "r.de", "--lang", "de", "--worst", str(n))
        found = [(*line["scores"], line["line"]) for line in scores["h.de"]["worst"]["lines"]]
        assert found == sorted(zip(expected, range(1, 6), strict=True))[:n]
    grid, signature = worst_lines_parts(scores)
    assert isinstance(grid, Grid)
    assert as_csv(grid).split("\n")[1:4] == [
        *("3,reference,Doch!,", "3,translation,Nein,0.0", "2,reference,Es schneit,"),
    ]
    assert as_csv(grid).count("translation,Es <U+001B>[31mregnet,") == 2
    assert "|eff:yes|nc:6|nw:0|" in str(signature)


ALL = "a.de 1.de --lang de"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("demo --lang de", "--lang"),
        ("demo --metric ter", "--metric"),
        ("demo --lowercase", "--lowercase"),
        ("demo --plain", "--plain"),
        ("demo --mirror .", "--mirror"),
        (f"{ALL} --set scoring.lowercase=true", "--set"),
        (f"{ALL} --force", "--force"),
        ("a.de 1.de --lang en-de", "language pair"),
        ("a.de --test-set demo-test --ref 1.de", "--ref"),
        ("a.de --test-set demo-test", "--lang en-de"),
        ("a.de --test-set demo-test --lang de", "'de' is not a language pair"),
        ("a.de --test-set demo-tset --lang en-de", "did you mean 'demo-test'"),
        ("a.de --test-set demo-test --lang en-fr", "demo-test has no en-fr"),
        ("a.de b.de 1.de --lang de", "--ref FILE"),
        ("a.de 1.de", "--lang de"),
        ("a.de --lang de", "--ref FILE"),
        ("a.de 1.de --lang german", "'german'"),
        ("a.de a.de --ref 1.de --lang de", "twice"),
        ("- - --ref 1.de --lang de", "twice"),
        ("a.de 1.df --lang de", "1.df"),
        ("/dev/null /dev/null --lang de", "/dev/null is empty"),
        ("a.de 1.de --metric bracket-f1 --lang de", "--lang"),
        ("a.de 1.de --metric bracket-f1 --metric chrf", "--metric"),
    ],
)
def test_mistakes_are_named(args: str, named: str) -> None:
    with pytest.raises(UserError) as refused:
        score(*args.split())
    assert named in str(refused.value)


def test_bracket_f1_counts_left_out_sentences() -> None:
    tree = "(TOP (S (NP (NN dog)) (VP (VBZ barks))))\n"
    Path("gold").write_text(tree * 4, encoding="utf-8")
    Path("test").write_text(f"{tree * 2}{tree.replace('dog', 'cat')}\n", encoding="utf-8")
    command = ["score", "test", "gold", "--metric", "bracket-f1"]
    printed = CliRunner().invoke(cli.app, command).stdout
    assert "test: bracket F1 leaves out 2 of 4 sentences: 1 error, 1 blank\n" in printed
    printed = CliRunner().invoke(cli.app, ["score", "gold", *command[2:]]).stdout
    assert "leaves out" not in printed


def test_shorter_reference_is_refused() -> None:
    Path("3.de").write_text("Ja.\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=r"3\.de has 1 line, but 1\.de has 4"):
        own_test_set([Path("1.de"), Path("3.de")], "de")
    with pytest.raises(UserError, match=r"3\.de has 1 line, but 1\.de has 4"):
        score_files(["3.de"], own_test_set([Path("1.de")], "de"))


@pytest.mark.parametrize(
    ("code", "tags"),
    [("de", "de-AT DE deu ger de_CH deu_Latn"), ("zh", "zho cmn_Hans zh-CN ZH")],
)
def test_language_in_any_spelling(code: str, tags: str) -> None:
    [expected] = score(f"a.{code}", f"1.{code}", "--lang", code).values()
    for tag in tags.split():
        assert [*score(f"a.{code}", f"1.{code}", "--lang", tag).values()] == [expected]


# Warnings do not change the score, which equals sacreBLEU's.

REFERENCE = ["Ja.", "Es schneit heute.", "Nein, danke."]
OUTPUTS = {
    "Moses n-best": [
        "0 ||| Ja. ||| LM0= -1 ||| -1.5",
        "1 ||| Es schneit. ||| LM0= -2 ||| -2",
        "2 ||| Nein, danke. ||| 0 ||| 0",
    ],
    "fairseq-generate": ["H-0\t-0.25\tJa.", "H-2\t-0.5\tEs schneit.", "H-1\t-1\tNein."],
    "": ["Ja ||| Nein", "H-0 Es schneit.", "{a} Nein"],
}
UNSPACED = {
    "th": ["แมวนั่งอยู่บนเสื่อ", "สุนัขกลับบ้านแล้ว", "ฝนตกหนักมากในวันนี้"],
    "yue": ["佢哋喺度食緊飯", "今日天氣好好呀", "你去咗邊度呀"],
    "km": ["ឆ្មាអង្គុយលើកន្ទេល", "ឆ្កែបានត្រឡប់មកផ្ទះ", "ភ្លៀងធ្លាក់ខ្លាំង"],
    "lo": ["ແມວນັ່ງຢູ່ເທິງເສື່ອ", "ໝາກັບບ້ານແລ້ວ", "ຝົນຕົກໜັກ"],
    "my": ["ကြောင်ကဖျာပေါ်မှာထိုင်တယ်", "ခွေးအိမ်ပြန်လာပြီ", "မိုးရွာတယ်"],
    "bo": ["ཞི་མི་གདན་ཐོག་ཏུ་བསྡད།", "ཁྱི་ནང་དུ་ལོག་སོང་།", "ཆར་པ་བབས།"],
    "zh": ["有人提议将头衔改为议员。", "政坛担心这会惹来嘲笑。", "是的"],
}


def score_with_warnings(
    hyps: Sequence[str], refs: Sequence[str], *options: str
) -> tuple[dict[str, Any], list[str]]:
    """The scores of two texts, and the printed warnings."""
    for name, lines in (("hyp.txt", hyps), ("ref.txt", refs)):
        text = "".join(f"{line}\n" for line in lines)
        Path(name).write_text(text, encoding="utf-8", newline="\n")
    command = ["score", "hyp.txt", "ref.txt", *options, "--plain", "--json"]
    ended = CliRunner().invoke(cli.app, command, catch_exceptions=False)
    found = json.loads(ended.stdout)["hyp.txt"]
    lines = ended.stderr.split("\n")
    return found, [line for line in lines if line.startswith("warning: ")]


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_format_warns(name: str) -> None:
    found, warned = score_with_warnings(OUTPUTS[name], REFERENCE, "--lang", "de", "--plain")
    expected = sacrebleu("hyp.txt", ["ref.txt"])["BLEU"]["score"]
    assert round(found["sacrebleu"]["score"], 10) == expected
    assert len(warned) == (name != "")
    assert all(name in warning for warning in warned)


def test_output_format_of_reference_warns() -> None:
    _, (warning,) = score_with_warnings(REFERENCE, OUTPUTS["Moses n-best"], "--lang", "de")
    assert "3 of 3 lines of the reference" in warning


@pytest.mark.parametrize("lang", UNSPACED)
def test_word_tokenizer_warns(lang: str) -> None:
    """Also with a wrong language; only Chinese has a suitable tokenizer."""
    texts = UNSPACED[lang], UNSPACED[lang][:2] + UNSPACED[lang][:1]
    found, warned = score_with_warnings(*texts, "--lang", lang)
    expected = sacrebleu("hyp.txt", ["ref.txt"], "-l", f"en-{lang}")["BLEU"]
    assert round(found["sacrebleu"]["score"], 10) == expected["score"]
    assert found["sacrebleu"]["signature"] == expected["signature"]
    assert len(warned) == (lang != "zh")
    assert all(f"{lang} is written without spaces" in warning for warning in warned)
    _, (warning,) = score_with_warnings(*texts, "--lang", "en")
    assert "the text is written without spaces" in warning
    assert "13a" in warning


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (REFERENCE, ["--lang", "de"]),
        (REFERENCE, ["--lang", "de", "--metric", "ter"]),
        (["고양이가 매트 위에 앉았다.", "네."], ["--lang", "en"]),  # Korean has spaces
        (["नमस्ते दुनिया।", "हाँ।"], ["--lang", "hi"]),
        (["She replied 你好 and smiled.", "Yes."], ["--lang", "en"]),
        (["1 2 3", "..."], ["--lang", "en"]),
        (UNSPACED["th"], ["--lang", "th", "--metric", "chrf"]),
    ],
)
def test_suitable_tokenizer_is_silent(text: list[str], options: list[str]) -> None:
    assert score_with_warnings(text, text, *options)[1] == []


def test_tokenizer_equals_sacrebleu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sacrebleu", "1.de", "-i", "a.de", "-m", "bleu", "-w", "6"]
    theirs = subprocess.run(
        [*command, "--tokenize", "char"], cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    arguments = ["score", "a.de", "1.de", "--lang", "de", "--tokenizer", "char", "--json"]
    ours = json.loads(CliRunner().invoke(cli.app, arguments).stdout)["a.de"]["sacrebleu"]
    assert ours["score"] == pytest.approx(json.loads(theirs.stdout)["score"], abs=1e-6)
    assert "tok:char" in ours["signature"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenizer", "flores200"], r"flores200 needs the file .*flores200sacrebleuspm"),
        (["--tokenizer", "intl", "--metric", "chrf"], "--tokenizer intl is for BLEU"),
    ],
    ids=["missing file", "other metric"],
)
def test_unusable_tokenizer_is_refused(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sacre, "SACREBLEU_DIR", str(tmp_path))
    result = CliRunner().invoke(cli.app, ["score", "a.de", "1.de", "--lang", "de", *options])
    assert isinstance(result.exception, UserError)
    assert re.search(message, str(result.exception))
