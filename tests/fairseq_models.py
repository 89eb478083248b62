"""Checkpoints in fairseq's format, and a reference for fairseq's model.

The reference consists of torch.nn's layers and fairseq's table of positions, computed number by
number.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmtkit.store.records import write_lines

# fairseq's ids
BOS = 0
PAD = 1
EOS = 2

D_MODEL = 12
N_HEADS = 3
D_FF = 20
N_LAYERS = 2
EPSILON = 1e-5
LANGS = "en", "de"

SETTINGS: dict[str, Any] = {
    "arch": "transformer",
    "source_lang": None,
    "target_lang": None,
    "activation_fn": "relu",
    "adaptive_softmax_cutoff": None,
    "attention_dropout": 0.0,
    "dropout": 0.1,
    "encoder_attention_heads": N_HEADS,
    "decoder_attention_heads": N_HEADS,
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "max_source_positions": 30,
    "max_target_positions": 25,
    "share_all_embeddings": True,
}
ATTENTIONS = {"self_attn": "self_attn", "multihead_attn": "encoder_attn"}
LINEARS = {"linear1": "fc1", "linear2": "fc2"}
NORMS = {
    "encoder": ["self_attn_layer_norm", "final_layer_norm"],
    "decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"],
}


class FairseqModel(nn.Module):
    """A random model with fairseq's weights, which computes the same as fairseq."""

    def __init__(
        self,
        n_rows: int,
        *,
        pre_norm: bool = False,
        learned: bool = False,
        tied: bool = True,
        decoder_layers: int | None = None,
    ) -> None:
        super().__init__()
        torch.manual_seed(4)
        shape: dict[str, Any] = {
            "d_model": D_MODEL,
            "nhead": N_HEADS,
            "dim_feedforward": D_FF,
            "dropout": 0.0,
            "layer_norm_eps": EPSILON,
            "batch_first": True,
            "norm_first": pre_norm,
        }
        norms = [nn.LayerNorm(D_MODEL, eps=EPSILON) if pre_norm else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape), N_LAYERS, norms[0], False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), decoder_layers or N_LAYERS, norms[1]
        )
        self.pre_norm, self.tied = pre_norm, tied
        self.embeddings = nn.ParameterList(
            nn.Parameter(torch.randn(n_rows, D_MODEL)) for _ in range(1 if tied else 3)
        )
        self.positions = None
        if learned:  # the first two rows are not positions
            self.positions = nn.ParameterList(
                nn.Parameter(torch.randn(n_positions + 2, D_MODEL)) for n_positions in (25, 25)
            )
        for parameter in self.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
        self.embeddings[-1].data.mul_(2)
        self.eval()

    def log_probs(self, src: list[int], tgt: list[int]) -> Tensor:
        """The log-probability of every token of `tgt`; both end with the EOS."""
        x = self._embed(0, src)
        y = self._embed(1, [EOS, *tgt[:-1]])
        mask = nn.Transformer.generate_square_subsequent_mask(len(tgt))
        with torch.no_grad():
            hidden = self.decoder(y, self.encoder(x), tgt_mask=mask)
            logits = torch.nn.functional.linear(hidden, self.embeddings[-1])
        log_probs: Tensor = logits.log_softmax(-1).gather(1, torch.tensor(tgt)[:, None])
        return log_probs[:, 0]

    def _embed(self, side: int, tokens: list[int]) -> Tensor:
        weight: Tensor = self.embeddings[side if len(self.embeddings) > 1 else 0]
        if self.positions is not None:
            table: Tensor = self.positions[side][2 : len(tokens) + 2]
        else:
            table = torch.tensor(plain_fairseq_sinusoids(len(tokens)))
        scaled: Tensor = weight[torch.tensor(tokens)] * math.sqrt(D_MODEL)
        return scaled + table

    def state(self, *, old_names: bool = False) -> dict[str, Tensor]:
        """The weights under fairseq's names, or under its names until 2019."""
        state: dict[str, Tensor] = {}
        embeddings = list(self.embeddings) * (3 if self.tied else 1)
        for side, stack, matrix in (
            ("encoder", self.encoder, embeddings[0]),
            ("decoder", self.decoder, embeddings[1]),
        ):
            state[f"{side}.version"] = torch.tensor([3.0])
            state[f"{side}.embed_tokens.weight"] = matrix
            state[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
            if self.positions is not None:
                table = self.positions[0 if side == "encoder" else 1]
                state[f"{side}.embed_positions.weight"] = table
            for number, layer in enumerate(stack.layers):
                self._add_layer(state, f"{side}.layers.{number}", layer, side, old_names=old_names)
            if stack.norm is not None:
                _add(state, f"{side}.layer_norm", stack.norm)
        if old_names and not self.tied:
            state["decoder.embed_out"] = embeddings[2]
        elif not old_names:
            state["decoder.output_projection.weight"] = embeddings[2]
        return {name: weight.detach() for name, weight in state.items()}

    def _add_layer(
        self, state: dict[str, Tensor], place: str, layer: Any, side: str, *, old_names: bool
    ) -> None:
        for theirs, ours in ATTENTIONS.items():
            attention = getattr(layer, theirs, None)
            if attention is None:
                continue
            if old_names:
                state[f"{place}.{ours}.in_proj_weight"] = attention.in_proj_weight
                state[f"{place}.{ours}.in_proj_bias"] = attention.in_proj_bias
            else:
                for kind in ("weight", "bias"):
                    merged = getattr(attention, f"in_proj_{kind}")
                    for part, weights in zip("qkv", merged.chunk(3), strict=True):
                        state[f"{place}.{ours}.{part}_proj.{kind}"] = weights
            _add(state, f"{place}.{ours}.out_proj", attention.out_proj)
        for theirs, ours in LINEARS.items():
            _add(state, f"{place}.{ours}", getattr(layer, theirs))
        for number, norm in enumerate(NORMS[side]):
            name = f"layer_norms.{number}" if old_names else norm
            _add(state, f"{place}.{name}", getattr(layer, f"norm{number + 1}"))

    def settings(self, **changes: Any) -> dict[str, Any]:
        """The options of fairseq-train."""
        own: dict[str, Any] = {"share_all_embeddings": self.tied}
        for side in ("encoder", "decoder"):
            own[f"{side}_normalize_before"] = self.pre_norm
            own[f"{side}_learned_pos"] = self.positions is not None
        return {**SETTINGS, **own, **changes}


def _add(state: dict[str, Tensor], name: str, module: Any) -> None:
    state[f"{name}.weight"] = module.weight
    state[f"{name}.bias"] = module.bias


def plain_fairseq_sinusoids(n_positions: int) -> list[list[float]]:
    """The table of fairseq, number by number."""
    half = D_MODEL // 2
    rates = [math.exp(-i * math.log(10_000) / (half - 1)) for i in range(half)]
    table = []
    for position in range(2, n_positions + 2):
        sines = [math.sin(position * rate) for rate in rates]
        cosines = [math.cos(position * rate) for rate in rates]
        table.append(sines + cosines)
    return table


def save_checkpoint(
    path: Path,
    model: dict[str, Tensor],
    settings: dict[str, Any],
    changes: dict[str, Any] | None = None,
    *,
    is_zip: bool = True,
) -> Path:
    """Write a checkpoint as fairseq-train does, with `changes`."""
    state = {
        "args": argparse.Namespace(**settings),
        "cfg": None,
        "model": model,
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {"best": None}}],
        "extra_state": {"train_iterator": {"epoch": 1, "shuffle": True}, "val_loss": 3.5},
        "last_optimizer_state": {"state": {0: {"step": 7, "exp_avg": torch.ones(3)}}},
        **(changes or {}),
    }
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    return path


def write_dictionaries(folder: Path, pieces: list[str]) -> int:
    """Write both dictionaries, padded to a multiple of 8, and return the number of rows."""
    lines = [f"{piece} {9 - i % 9}" for i, piece in enumerate(pieces)]
    lines += [f"madeupword{i:04} 0" for i in range(-(len(pieces) + 4) % 8)]
    for lang in LANGS:
        write_lines(folder / f"dict.{lang}.txt", lines)
    return 4 + len(lines)
