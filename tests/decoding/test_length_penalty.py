"""The two formulas of the length penalty: the paper's, and fairseq's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bundles import LINES
from typer.testing import CliRunner

from nmtkit import Translator
from nmtkit.cli import app as cli
from nmtkit.config.model import DecodingConfig
from nmtkit.decoding.engine import length_penalty
from nmtkit.utils.errors import UserError

ALPHA = 0.7
DIVISORS: dict[str, Callable[[int], float]] = {
    "gnmt": lambda n: ((5 + n) / 6) ** ALPHA,
    "fairseq": lambda n: n**ALPHA,
}


@pytest.mark.parametrize("formula", DIVISORS)
def test_length_penalty_of_formula(formula: str) -> None:
    document = {"beam_size": 1, "length_penalty": ALPHA, "max_extra_tokens": 0}
    decoding = DecodingConfig.model_validate({**document, "length_penalty_formula": formula})
    for n_tokens in (1, 2, 9):
        assert length_penalty(n_tokens, decoding) == pytest.approx(DIVISORS[formula](n_tokens))


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("formula", DIVISORS)
def test_search_ranks_by_formula(formula: str, engine: str, bundle: Path) -> None:
    translator = Translator(
        bundle,
        device="cpu",
        engine=engine,
        beam_size=5,
        length_penalty=ALPHA,
        length_penalty_formula=formula,
    )
    lengths = set()
    for translations in translator.n_best(LINES[:2], 5):
        scores = [translation.score for translation in translations]
        assert scores == sorted(scores, reverse=True)
        for translation in translations:
            n_tokens = translation.n_tokens + 1  # with EOS
            expected = translation.log_prob / DIVISORS[formula](n_tokens)
            assert translation.score == pytest.approx(expected, abs=1e-5)
            lengths.add(n_tokens)
    assert len(lengths) > 1


def test_translate_command_takes_formula(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"{LINES[0]}\n", encoding="utf-8")
    command = ["translate", "--bundle", str(bundle), "-i", str(tmp_path / "text")]
    command += ["--format", "json", "--engine", "torch", "--length-penalty", str(ALPHA)]
    scores = {}
    for formula, divisor in DIVISORS.items():
        out = tmp_path / formula
        arguments = [*command, "--penalty-formula", formula, "-o", str(out)]
        assert CliRunner().invoke(cli.app, arguments).exit_code == 0
        translation = json.loads(out.read_bytes())["translations"][0]
        n_tokens = len(translation["token_log_probs"])
        expected = translation["log_prob"] / divisor(n_tokens)
        assert translation["score"] == pytest.approx(expected, abs=2e-4)
        scores[formula] = translation["score"]
    assert scores["gnmt"] != scores["fairseq"]


def test_unknown_formula_is_refused(bundle: Path) -> None:
    with pytest.raises(UserError, match="length_penalty_formula"):
        Translator(bundle, device="cpu", engine="torch", length_penalty_formula="wu")
