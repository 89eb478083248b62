"""transformers computes what our model computes."""

from pathlib import Path

import pytest
import torch
from bundles import N_ROWS, random_model, random_sources
from models import tiny

from nmtkit.errors import UserError
from nmtkit.fast.packing import PackedLayout
from nmtkit.interchange.huggingface import write_model
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import BOS_ID

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


@pytest.mark.parametrize("change", [{"norm": "pre"}, {"d_k": 3}, {"neighbourhood": 9}])
def test_model_that_it_cannot_express_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Marian runs only post-norm models"):
        write_model(tmp_path, random_model(tiny(**change)), N_TOKENS, DECODING, n_positions=64)
