"""transformers computes what our model computes."""

import json
from collections import Counter
from pathlib import Path

import ctranslate2
import pytest
import torch
from bundles import N_ROWS, random_model, random_sources
from ctranslate2.converters import TransformersConverter
from models import random_transformer, tiny

from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.sentencepieces import learn_sentencepieces
from nmtkit.corpus.subword import BpeSubword, SentencePieceSubword, Subword
from nmtkit.errors import UserError
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.interchange.ctranslate2 import write_model as write_ctranslate2
from nmtkit.interchange.huggingface import write_model, write_tokenizer
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import BOS_ID, EOS_ID

N_TOKENS = 50
DECODING = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=20)


@pytest.mark.parametrize(
    "config",
    [
        tiny(),
        tiny(attention_bias=True, positions="learned"),
        tiny(tie_embeddings=False),
        tiny(tie_embeddings=False, positions="fairseq", layer_norm_epsilon=0.01),
    ],
)
def test_logits_are_those_of_our_model(config: ModelConfig, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = random_model(config)
    write_model(tmp_path, model, N_TOKENS, DECODING, max_subwords=30, n_positions=64)
    generation = json.loads((tmp_path / "generation_config.json").read_bytes())
    assert (generation["num_beams"], generation["length_penalty"]) == (4, 0.6)
    assert generation["max_length"] == 30 - 1 + 20 + len(["start", "end"])
    theirs, told = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    # In float64, all that differs is how weights are scaled when they are written, in float32.
    model.double()
    model.src_embedding.dtype = model.tgt_embedding.dtype = torch.float64
    theirs.double().eval()
    sources = random_sources(20, N_TOKENS, longest=20)
    targets = random_sources(20, N_TOKENS, longest=20, seed=6)
    for src, tgt in zip(sources, targets, strict=True):
        tgt_in, their_tgt_in = [BOS_ID, *tgt[:-1]], [N_ROWS, *tgt[:-1]]
        layouts = PackedLayout.of_lengths([len(src)]), PackedLayout.of_lengths([len(tgt)])
        with torch.no_grad():
            hidden = model(torch.tensor(src), layouts[0], torch.tensor(tgt_in), layouts[1])
            given = {"input_ids": [src], "decoder_input_ids": [their_tgt_in]}
            found = theirs(**{name: torch.tensor(ids) for name, ids in given.items()})
        expected = hidden @ model.output_matrix.t()
        assert found.logits.shape == (1, len(tgt), N_ROWS + 1)
        torch.testing.assert_close(found.logits[0, :, :-1], expected, atol=1e-5, rtol=0)
        assert found.logits[0, :, -1].max() < -1e6  # <pad> has no part in the softmax


WORDS = Counter({"the": 9, "cat": 8, "then": 5, "ran": 5, "mat": 4, ".": 9, "é": 2})
SUBWORDS: dict[str, Subword] = {
    "sentencepiece": SentencePieceSubword(learn_sentencepieces(WORDS, 290)),
    "bpe": BpeSubword.of_words(learn_bpe(WORDS, 8), WORDS),
}
TEXTS = """the cat ran .\nan émat catcatthethethen\nunseen: 猫 Z 🐈\u200d⬛
 a  b\tc\u00a0d\u2028e\x1cf\x85\ne\u0301 ﬁ\x00\n</s> <pad>the <s>cat\n<0x41>\n>>de<< the▁cat ▁▁\n"""


@pytest.mark.parametrize("method", SUBWORDS)
def test_tokenizer_and_converter_read_the_folder(method: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    subword = SUBWORDS[method]
    n_rows = subword.n_tokens + 3
    model = accelerate(random_transformer(tiny(), n_rows, seed=3))
    write_model(tmp_path, model, n_rows - 3, DECODING, max_subwords=30, n_positions=64)
    write_tokenizer(tmp_path, subword, n_rows, max_subwords=64)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS.split("\n"):
        ids = subword.encode(" ".join(text.split()))
        subwords = " ".join(subword.pieces(ids))
        assert tokenizer(subwords if method == "bpe" else text)["input_ids"] == [*ids, EOS_ID]
        assert tokenizer.decode(ids) == (subwords if method == "bpe" else subword.decode(ids))
    assert tokenizer.decode([n_rows, EOS_ID], skip_special_tokens=True) == ""
    assert tokenizer(["cat cat", "."], padding=True)["input_ids"][1][-1] == n_rows

    TransformersConverter(str(tmp_path)).convert(str(tmp_path / "theirs"))
    pieces = tokenizer.convert_ids_to_tokens(range(n_rows))
    (tmp_path / "ours").mkdir()
    write_ctranslate2(tmp_path / "ours", model, pieces, "float32", 64)
    theirs, ours = (
        ctranslate2.Translator(str(tmp_path / who)).score_batch(
            [[*pieces[5:9], "</s>"]], [pieces[6:12]]
        )
        for who in ("theirs", "ours")
    )
    assert theirs[0].log_probs == pytest.approx(ours[0].log_probs, abs=1e-4)


def test_subword_called_like_a_symbol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="called like one of the symbols"):
        write_tokenizer(tmp_path, BpeSubword([], {"</s>": 1}), 8, max_subwords=64)


@pytest.mark.parametrize("change", [{"norm": "pre"}, {"d_k": 3}, {"neighbourhood": 9}])
def test_model_that_it_cannot_express_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Marian runs no model with "):
        write_model(tmp_path, random_model(tiny(**change)), N_TOKENS, DECODING, 30, n_positions=64)
