"""Exported models compute the same in transformers."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from bundles import N_ROWS, copying_model, random_model, random_sources
from ctranslate2.converters import TransformersConverter
from models import random_transformer, tiny

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.interchange.ctranslate2 import write_model as write_ctranslate2
from nmtkit.interchange.huggingface import write_model
from nmtkit.interchange.huggingface_tokenizer import write_tokenizer
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import UserError

N_TOKENS = 50
DECODING = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=20)
SAME = 1e-5  # LayerNorm's epsilon in transformers
FAIRSEQ = tiny(tie_embeddings=False, positions="fairseq", layer_norm_epsilon=SAME)


def loaded(folder: Path, dtype: torch.dtype) -> Any:
    transformers = pytest.importorskip("transformers")
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=dtype, output_loading_info=True
    )
    assert not any(info.values())
    return model.eval()


def check_log_probs(model: Transformer, folder: Path, atol: float) -> None:
    """Compare the log-probabilities of random targets of random sources."""
    # FSMT cannot compute in float64.
    dtype = torch.float32 if model.config.positions == "fairseq" else torch.float64
    theirs = loaded(folder, dtype)
    model.double()
    model.src_embedding.dtype = model.tgt_embedding.dtype = torch.float64
    start = theirs.generation_config.decoder_start_token_id
    sources = random_sources(20, N_TOKENS, longest=20)
    targets = random_sources(20, N_TOKENS, longest=20, seed=6)
    for src, tgt in zip(sources, targets, strict=True):
        layouts = PackedLayout.from_lengths([len(src)]), PackedLayout.from_lengths([len(tgt)])
        tgt_in = torch.tensor([BOS_ID, *tgt[:-1]])
        their_tgt_in = torch.tensor([[start, *tgt[:-1]]])
        with torch.no_grad():
            hidden = model(torch.tensor(src), layouts[0], tgt_in, layouts[1])
            output = theirs(torch.tensor([src]), decoder_input_ids=their_tgt_in, use_cache=False)
        expected = model.logits(hidden).log_softmax(-1)
        log_probs = output.logits[0].double().log_softmax(-1)
        torch.testing.assert_close(log_probs[:, :N_ROWS], expected, atol=atol, rtol=0)
        assert log_probs[:, N_ROWS:].exp().sum() == 0  # <pad> has probability 0


@pytest.mark.parametrize(
    ("config", "atol"),
    [
        (tiny(layer_norm_epsilon=SAME), 1e-5),
        (tiny(layer_norm_epsilon=SAME, attention_bias=True, tie_embeddings=False), 1e-5),
        (tiny(layer_norm_epsilon=SAME, activation="swish", output_bias=True), 1e-5),
        (FAIRSEQ, 1e-4),
        (tiny(positions="fairseq", layer_norm_epsilon=SAME), 1e-4),
        (tiny(n_decoder_layers=1), 1e-4),
        (tiny(n_decoder_layers=3, positions="fairseq"), 1e-4),
        # The first LayerNorm of both sides keeps another epsilon.
        (tiny(), 1e-4),
        (tiny(tie_embeddings=False), 1e-4),
        (tiny(positions="fairseq"), 1e-4),
    ],
    ids=str,
)
def test_log_probs_equal_nmtkit(config: ModelConfig, atol: float, tmp_path: Path) -> None:
    model = random_model(config)
    write_model(tmp_path, model, N_TOKENS, DECODING, max_subwords=30, n_positions=64)
    generation = json.loads((tmp_path / "generation_config.json").read_bytes())
    assert (generation["num_beams"], generation["length_penalty"]) == (4, 0.6)
    assert generation["max_length"] == 30 - 1 + 20 + len(["start", "end"])
    check_log_probs(model, tmp_path, atol)


def check_saving(folder: Path, dtype: torch.dtype, sources: list[list[int]]) -> list[list[int]]:
    """Compare a model with copies that were saved and loaded, also after a training step.

    Returns:
        The translations of the exported model.
    """

    def generated(theirs: Any) -> list[list[int]]:
        return [theirs.generate(torch.tensor([src])).tolist()[0] for src in sources]

    exported = loaded(folder, dtype)
    first = generated(exported)
    exported.save_pretrained(folder / "saved")
    saved = loaded(folder / "saved", dtype)
    assert generated(saved) == first

    saved.train()
    for side in (saved.model.encoder, saved.model.decoder):
        side.embed_positions.requires_grad_(False)  # transformers trains but does not save them
    labels = torch.tensor([sources[0]])
    tgt_in = saved.prepare_decoder_input_ids_from_labels(labels=labels.clone())
    saved(torch.tensor([sources[1]]), decoder_input_ids=tgt_in, labels=labels).loss.backward()
    torch.optim.SGD(saved.parameters(), lr=1e-3).step()
    saved.save_pretrained(folder / "trained")
    trained = loaded(folder / "trained", dtype)
    assert generated(trained) == generated(saved.eval())
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, trained.state_dict()[name])
    return first


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_marian_survives_saving(dtype: torch.dtype, tmp_path: Path) -> None:
    model = copying_model(N_TOKENS, longest=9)
    write_model(tmp_path, model, N_TOKENS, DECODING, max_subwords=30, n_positions=64)
    sources = random_sources(20, N_TOKENS, longest=9)
    batches = check_saving(tmp_path, dtype, sources)
    assert sum(ids == [N_ROWS, *src] for ids, src in zip(batches, sources, strict=True)) > 10


def test_fsmt_survives_saving(tmp_path: Path) -> None:
    write_model(tmp_path, random_model(FAIRSEQ), N_TOKENS, DECODING, 30, n_positions=64)
    check_saving(tmp_path, torch.float32, random_sources(5, N_TOKENS, longest=9))


@pytest.mark.parametrize("is_tuned", [False, True])
def test_fsmt_starts_as_fairseq_does(is_tuned: bool, tmp_path: Path) -> None:
    """Training in FSMT and fairseq starts with </s>; nmtkit's fine-tuning only changes <s>."""
    model = random_model(FAIRSEQ)
    if not is_tuned:
        embedding = model.tgt_embedding.weight.data
        embedding[BOS_ID] = embedding[EOS_ID]
    write_model(tmp_path, model, N_TOKENS, DECODING, max_subwords=30, n_positions=64)
    start = json.loads((tmp_path / "config.json").read_bytes())["decoder_start_token_id"]
    assert (start == EOS_ID) is not is_tuned
    check_log_probs(model, tmp_path, atol=1e-4)


WORDS = Counter({"the": 9, "cat": 8, "then": 5, "ran": 5, "mat": 4, ".": 9, "é": 2})
SUBWORDS: dict[str, Subword] = {
    "sentencepiece": SentencePieceSubword(learn_sentencepieces(WORDS, 290)),
    "protected": SentencePieceSubword(
        learn_sentencepieces(WORDS, 290, ["<b>", "</b>", "</b>.", "{0}", "%1$s", "a-b"])
    ),
    "bpe": BpeSubword.from_words(learn_bpe(WORDS, 8), WORDS),
}
TEXTS = """the cat ran .\nan émat catcatthethethen\nunseen: 猫 Z 🐈\u200d⬛
 a  b\tc\u00a0d\u2028e\x1cf\x85\ne\u0301 ﬁ\x00\n</s> <pad>the <s>cat\n<0x41>\n>>de<< the▁cat ▁▁\n
<b>the</b> {0} cat{0}{0} <b>the cat</b>. a-b%1$s the<b>cat</b> </b>.x <b\n"""


@pytest.mark.parametrize("method", SUBWORDS)
def test_tokenizer_and_converter(method: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    subword = SUBWORDS[method]
    n_rows = subword.n_tokens + 3
    model = accelerate(random_transformer(tiny(), n_rows, seed=3))
    write_model(tmp_path, model, n_rows - 3, DECODING, max_subwords=30, n_positions=64)
    write_tokenizer(tmp_path, subword, tiny(), n_rows, 64, ("en", "de"))
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
    log_probs = []
    for name in ("theirs", "ours"):
        translator = ctranslate2.Translator(str(tmp_path / name))
        (scored,) = translator.score_batch([[*pieces[5:9], "</s>"]], [pieces[6:12]])
        log_probs.append(scored.log_probs)
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-4)


@pytest.mark.parametrize("piece", [*SPECIALS, "<unused 0>", "<unused 12>"])
def test_piece_like_special_is_refused(piece: str, tmp_path: Path) -> None:
    subword = BpeSubword(BpeCodes([]), {"a": 2, piece: 1})
    with pytest.raises(UserError, match=re.escape(repr(piece))):
        write_tokenizer(tmp_path, subword, tiny(), 8, 64, ("en", "de"))


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "pre"},
        {"d_k": 3},
        {"neighbourhood": 9},
        {"positions": "learned"},
        {"layer_norm_epsilon": 1e-3},
        {"positions": "fairseq", "output_bias": True},
    ],
    ids=str,
)
def test_model_without_class_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="transformers"):
        write_model(tmp_path, random_model(tiny(**change)), N_TOKENS, DECODING, 30, n_positions=64)
    assert not any(tmp_path.iterdir())
