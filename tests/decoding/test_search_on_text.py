"""Sentences of text through the whole search, against lists and loops, and in any company."""

import random
import zlib
from pathlib import Path

import pytest
import torch
from models import tiny

from nmtkit.decoding import translator
from nmtkit.decoding.engine import Hypothesis, gnmt_length_penalty
from nmtkit.decoding.translator import translate_ids
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID

N_TOKENS, BEAM, ALPHA, EXTRA = 200, 4, 0.6, 6
DEMO = Path(__file__).resolve().parents[2] / "data" / "demo" / "test.en"


def model() -> Transformer:
    """A random model that has clear opinions, and ends sentences now and then."""
    torch.manual_seed(6)
    made = Transformer(tiny(d_model=32, d_ff=48, n_heads=4, d_k=8, d_v=8), N_TOKENS)
    for parameter in made.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    made.output_matrix.data.mul_(2)
    return accelerate(made.eval())


def ids(line: str) -> list[int]:
    """A number for each word."""
    n_words = N_TOKENS - len(SPECIALS)
    return [*(len(SPECIALS) + zlib.crc32(w.encode()) % n_words for w in line.split()), EOS_ID]


def translated(made: Transformer, sources: list[list[int]]) -> list[Hypothesis]:
    found = translate_ids(
        made,
        sources,
        DecodingConfig(beam_size=BEAM, length_penalty=ALPHA, max_extra_tokens=EXTRA),
        n_tokens=N_TOKENS,
        n_best=1,
        progress=lambda _: None,
    )
    return [hypotheses[0] for hypotheses in found]


@torch.inference_mode()
def plain(made: Transformer, source: list[int]) -> list[int]:
    """Search one sentence with lists and the whole decoder, always up to the maximum length."""
    layout = PackedLayout.of_lengths([len(source)])
    memory = made.encode(torch.tensor(source), layout)
    live: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[float, list[int]]] = []
    max_length = len(source) - 1 + EXTRA
    for length in range(max_length + 1):
        prefixes = PackedLayout.of_lengths([length + 1] * len(live))
        tgt_in = torch.tensor([token for tokens, _ in live for token in (BOS_ID, *tokens)])
        sources = PackedLayout.of_lengths([len(source)] * len(live))
        hidden = made.decode(tgt_in, prefixes, memory.repeat(len(live), 1), sources)
        last = hidden.view(len(live), length + 1, -1)[:, -1]
        log_probs = (last @ made.output_matrix.t()).log_softmax(-1)
        log_probs[:, [PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
        candidates = [
            ([*tokens, token], total + value)
            for (tokens, total), values in zip(live, log_probs.tolist(), strict=True)
            for token, value in enumerate(values)
            if length < max_length or token == EOS_ID
        ]
        best = sorted(candidates, key=lambda pair: -pair[1])[: 2 * BEAM]
        penalty = gnmt_length_penalty(length + 1, ALPHA)
        finished += [(total / penalty, tokens[:-1]) for tokens, total in best if tokens[-1] == 2]
        live = [pair for pair in best if pair[0][-1] != EOS_ID][:BEAM]
    return max(finished, key=lambda pair: pair[0])[1]


def assert_equals_the_plain_search(lines: list[str]) -> None:
    made = model()
    sources = [ids(line) for line in lines]
    expected = [plain(made, source) for source in sources]
    assert len({tuple(tokens) for tokens in expected}) > len(lines) // 4
    found = [hypothesis.tokens for hypothesis in translated(made, sources)]
    assert found == expected


def assert_company_changes_nothing(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    made = model()
    sources = [ids(line) for line in lines]
    expected = [hypothesis.tokens for hypothesis in translated(made, sources)]
    order = random.Random(1).sample(range(len(sources)), len(sources))
    for n_sentences in (1, 7, 64):
        monkeypatch.setitem(translator.BATCH_ROWS, "cpu", n_sentences * BEAM)
        found = translated(made, [sources[i] for i in order])
        assert [hypothesis.tokens for hypothesis in found] == [expected[i] for i in order]


def demo_lines(n: int) -> list[str]:
    return DEMO.read_text(encoding="utf-8").split("\n")[:n]


def test_some_sentences_get_what_a_plain_search_finds() -> None:
    assert_equals_the_plain_search(demo_lines(16))


def test_some_sentences_get_the_same_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_company_changes_nothing(monkeypatch, demo_lines(40))


@pytest.mark.slow
def test_500_sentences_of_news(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    news = shared_data / "newstest" / "newstest2014-deen.en"
    lines = news.read_text(encoding="utf-8").split("\n")[:500]
    assert_equals_the_plain_search(lines)
    assert_company_changes_nothing(monkeypatch, lines)
