"""transformers computes what our model computes."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from bundles import N_ROWS, random_model, random_sources
from models import tiny

from nmtkit.corpus.sentencepieces import SentencePieceSubword, learn_sentencepieces
from nmtkit.errors import UserError
from nmtkit.fast.packing import PackedLayout
from nmtkit.interchange.huggingface import write_model, write_tokenizer
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID

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
    write_model(tmp_path, model, N_TOKENS, DECODING, n_positions=64)
    theirs, told = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    # In float64, all that differs is how weights are scaled when they are written, in float32.
    model.double()
    model.src_embedding.dtype = model.tgt_embedding.dtype = torch.float64
    theirs.double().eval()
    sources = random_sources(20, N_TOKENS, longest=20)
    targets = random_sources(20, N_TOKENS, longest=20, seed=6)
    for src, tgt in zip(sources, targets, strict=True):
        tgt_in = [BOS_ID, *tgt[:-1]]
        layouts = PackedLayout.of_lengths([len(src)]), PackedLayout.of_lengths([len(tgt)])
        with torch.no_grad():
            hidden = model(torch.tensor(src), layouts[0], torch.tensor(tgt_in), layouts[1])
            found = theirs(input_ids=torch.tensor([src]), decoder_input_ids=torch.tensor([tgt_in]))
        expected = hidden @ model.output_matrix.t()
        assert found.logits.shape == (1, len(tgt), N_ROWS)
        torch.testing.assert_close(found.logits[0], expected, atol=1e-5, rtol=0)


def test_tokenizer_gives_our_ids(tmp_path: Path) -> None:
    words = Counter({"the": 9, "cat": 8, "then": 5, "ran": 5, "mat": 4, ".": 9, "é": 2})
    subword = SentencePieceSubword(learn_sentencepieces(words, 290))
    write_tokenizer(tmp_path, subword, ("en", "de"), max_subwords=64)
    vocabulary = json.loads((tmp_path / "vocab.json").read_bytes())
    ids = subword.encode("the cat ran")
    assert [vocabulary[piece] for piece in subword.pieces(ids)] == ids
    assert len({(tmp_path / f"{side}.spm").read_bytes() for side in ("source", "target")}) == 1
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in ("the cat ran .", "an émat", "unseen: 猫 Z", "a  b"):
        ids = subword.encode(text)
        assert tokenizer(text)["input_ids"] == [*ids, EOS_ID]
        found = tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID], skip_special_tokens=True)
        assert found == subword.decode(ids)


@pytest.mark.parametrize("change", [{"norm": "pre"}, {"d_k": 3}, {"neighbourhood": 9}])
def test_model_that_it_cannot_express_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Marian runs no model with "):
        write_model(tmp_path, random_model(tiny(**change)), N_TOKENS, DECODING, n_positions=64)
