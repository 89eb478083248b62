"""The bundles that tests build."""

import shutil
from collections import Counter
from pathlib import Path

import torch
from models import random_transformer, tiny

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, SPECIALS
from nmtkit.decoding.bundle import write_bundle
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import Description
from nmtkit.store.artifacts import open_directory, publish_directory

LINES = ["The well-known cat sat.", "A dog looked, and then it ran away.", "cat!", "Who looked?"]
N_ROWS = 64  # more than the subwords of these lines


def peaked_model(config: ModelConfig, n_rows: int, seed: int) -> Transformer:
    """A random model that is certain of its choices, and that ends its translations."""
    return accelerate(random_transformer(config, n_rows, seed, peaked=3.0).eval())


def random_model(config: ModelConfig, seed: int = 3) -> Transformer:
    """An accelerated model with random weights, biases and norms."""
    return accelerate(random_transformer(config, N_ROWS, seed).eval())


def copying_model(
    n_tokens: int, longest: int, first_id: int = len(SPECIALS), n_rows: int = N_ROWS
) -> Transformer:
    """Train a model for seconds to copy its source.

    Training is in float64: in float32, processors round so differently that the models differ.

    Args:
        n_tokens: Size of the vocabulary.
        longest: Number of tokens that a source has fewer of, EOS not counted.
        first_id: The tokens from this one on are copied.
        n_rows: Number of rows of the embeddings.
    """
    config = tiny(n_layers=1, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    model = accelerate(Transformer(config, n_rows, torch.float64))
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(200):
        sources = random_sources(32, n_tokens, longest, step, first_id)
        layout = PackedLayout.from_lengths([len(source) for source in sources])
        src = torch.cat([torch.tensor(source) for source in sources])
        tgt_in = torch.cat([torch.tensor([BOS_ID, *source[:-1]]) for source in sources])
        logits = model(src, layout, tgt_in, layout) @ model.output_matrix.t()
        loss = torch.nn.functional.cross_entropy(logits, src, label_smoothing=0.1)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    copying = Transformer(config, n_rows)
    copying.load_state_dict(model.state_dict())
    return accelerate(copying.eval())


def publish_bundle(folder: Path, config: ModelConfig, seed: int = 1) -> Path:
    """Publish the bundle of a peaked model in a new folder, and return its path."""
    prepared, draft, place = (folder / name for name in ("prepared", "draft", "bundle"))
    prepared.mkdir(parents=True)
    draft.mkdir()
    src, tgt = (Tokenization(lang, False, False, "moses", False) for lang in ("en", "de"))
    words = Counter(" ".join(map(src.tokenize, LINES)).split())
    BpeSubword.from_words(learn_bpe(words, 8), words).save(prepared)
    Tokenizations(src=src, tgt=tgt).save(prepared)
    (prepared / "train.src.ids").write_bytes(b"data")
    publish_directory(prepared, folder / "corpus", {"kind": "prepare"})
    corpus = PreparedCorpus(open_directory(folder / "corpus")).bundle_files()
    model = peaked_model(config, N_ROWS, seed)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    decoding = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
    write_bundle(draft, corpus, Description(config=config, n_rows=N_ROWS), decoding, weights)
    shutil.rmtree(folder / "corpus")
    publish_directory(draft, place, {"kind": "average"})
    return place


def random_sources(
    n: int, n_tokens: int, longest: int, seed: int = 5, first_id: int = len(SPECIALS)
) -> list[list[int]]:
    """Sentences of random subwords, from `first_id` on, with EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (n,), generator=generator).tolist()
    sources = []
    for length in lengths:
        ids = torch.randint(first_id, n_tokens, (length,), generator=generator).tolist()
        sources.append([*ids, EOS_ID])
    return sources
