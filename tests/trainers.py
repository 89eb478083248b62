"""Small models, corpora and trainers for tests of training."""

import itertools
from typing import Any

import numpy as np
import torch
from models import tiny

from nmtkit.config.recipe import TrainingConfig
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group
from nmtkit.training.step import Setup, Trainer

V = 23
CPU = torch.device("cpu")
ONE_PROCESS = Group(0, 1, CPU)
N_STEPS = 5


def corpus(n_pairs: int = 60, *, seed: int = 1, copy: bool = False) -> Pairs:
    """Random sentences of 1 to 8 tokens and an end symbol; if `copy`, targets are the sources."""
    generator = np.random.default_rng(seed)

    def sentences() -> list[list[int]]:
        lengths = generator.integers(1, 9, size=n_pairs)
        return [[*generator.integers(4, V, size=length).tolist(), EOS_ID] for length in lengths]

    src = sentences()
    tgt = src if copy else sentences()
    src_ids, tgt_ids = (np.array(list(itertools.chain(*side)), np.uint16) for side in (src, tgt))
    src_offsets, tgt_offsets = (np.cumsum([0, *map(len, side)]) for side in (src, tgt))
    return Pairs(src_ids, src_offsets, tgt_ids, tgt_offsets)


FLOAT32 = Acceleration()


def model_of(*, dropout: float = 0.0, seed: int = 1) -> Transformer:
    torch.manual_seed(seed)
    config = tiny(n_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8, dropout=dropout)
    return accelerate(Transformer(config, V))


def config_of(**changes: Any) -> TrainingConfig:
    values: dict[str, Any] = {
        "seed": 3,
        "max_steps": N_STEPS,
        "src_tokens_per_update": 120,
        "tgt_tokens_per_update": 120,
        "warmup_steps": 3,
        "learning_rate_scale": 1.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-9,
        "label_smoothing": 0.1,
        "checkpoint_every_steps": 2,
        "keep_checkpoints": 3,  # those of steps 2, 4 and 5
        "dev_every_steps": 0,
    }
    return TrainingConfig(**{**values, **changes})


def trainer_of(
    model: Transformer,
    pairs: Pairs,
    config: TrainingConfig,
    group: Group = ONE_PROCESS,
    acceleration: Acceleration = FLOAT32,
    *,
    max_tokens: int = 120,
    multiple_of: int = 1,
    use_bins: bool = False,
) -> Trainer:
    setup = Setup(model.config, config, group, acceleration, max_tokens, multiple_of, use_bins)
    return Trainer(model, pairs, setup)
