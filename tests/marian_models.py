"""Random models in the format of OPUS-MT: what transformers writes, and sentencepiece models."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

DEMO = Path(__file__).parents[1] / "data" / "demo"
TAGS = (">>deu<<", ">>nld<<", ">>sr_Latn<<")  # pieces of a multilingual model
N_PIECES = 260  # of each sentencepiece model


def demo_lines(name: str, n: int) -> list[str]:
    """The first lines of a file of the demo corpus."""
    return (DEMO / name).read_text(encoding="utf-8").split("\n")[:n]


@cache
def learn_unigrams(lang: str) -> bytes:
    """A model as OPUS-MT learns it: unigram pieces of text that sentencepiece normalizes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(demo_lines(f"train.{lang}", 1_000)),
        model_writer=model,
        vocab_size=N_PIECES,
        minloglevel=2,
        num_threads=1,
    )
    return model.getvalue()


def joint_vocabulary(models: list[bytes]) -> dict[str, int]:
    """The ids of all pieces: those of both models, of the tags, and <pad> at the end."""
    names = ["</s>", "<unk>"]
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        names += [processor.id_to_piece(id_) for id_ in range(processor.get_piece_size())]
    names += [*TAGS, "<pad>"]
    return {name: id_ for id_, name in enumerate(dict.fromkeys(names))}


def write_folder(
    folder: Path,
    *,
    bias: bool = True,
    more_rows: int = 0,
    is_safe: bool = True,
    **changes: Any,
) -> Any:
    """Write the folder of a random MarianMTModel, and return the model.

    Args:
        folder: A new folder.
        bias: Whether the logits have a random bias.
        more_rows: Number of rows of the embeddings without a piece.
        is_safe: Whether to write safetensors, or what `torch.save` writes.
        changes: Values of config.json.
    """
    transformers = pytest.importorskip("transformers")
    folder.mkdir()
    models = [learn_unigrams("en"), learn_unigrams("de")]
    (folder / "source.spm").write_bytes(models[0])
    (folder / "target.spm").write_bytes(models[1])
    vocabulary = joint_vocabulary(models)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")

    config = transformers.MarianConfig(**{**config_values(vocabulary, more_rows), **changes})
    torch.manual_seed(7)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        if bias:
            model.final_logits_bias.normal_()
    pad_id = vocabulary["<pad>"]
    model.generation_config.update(num_beams=3, bad_words_ids=[[pad_id]], max_length=70)
    if is_safe:
        model.save_pretrained(folder)
    else:
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return model


def config_values(vocabulary: dict[str, int], more_rows: int) -> dict[str, Any]:
    """The values of a small model."""
    values: dict[str, Any] = {
        "vocab_size": len(vocabulary) + more_rows,
        "d_model": 24,
        "max_position_embeddings": 70,
        "activation_function": "swish",
        "scale_embedding": True,
        "dropout": 0.1,
        "pad_token_id": vocabulary["<pad>"],
        "decoder_start_token_id": vocabulary["<pad>"],
        "eos_token_id": vocabulary["</s>"],
        "forced_eos_token_id": vocabulary["</s>"],
    }
    for side in ("encoder", "decoder"):
        values |= {f"{side}_layers": 2, f"{side}_ffn_dim": 40, f"{side}_attention_heads": 4}
    return values
