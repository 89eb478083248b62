"""Settings in the files of a Marian model: what import honours, reports and refuses."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from marian_models import TAGS, demo_lines, write_folder

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.interchange.marian_import import import_marian
from nmtkit.interchange.marian_settings import (
    HONOURED_GENERATION,
    MODEL_KEYS,
    NEUTRAL_GENERATION,
    NEUTRAL_MODEL_KEYS,
    OTHER_GENERATION,
)
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import UserError

transformers = pytest.importorskip("transformers")

N_LINES = 12
GENERATION = "generation_config.json"
# The searches end in different ways, and few translations differ.
MIN_EQUAL = 9
# Settings with which this model translates in the same way.
SAME_HERE = {
    "early_stopping",
    "num_return_sequences",
    "min_length",
    "max_time",
    "a_new_setting",
    "encoder_no_repeat_ngram_size",
}
# `generate` raises an error.
WRONG_TYPES: list[object] = [7, "7", [[1]], [[[1]], {"a": 1}, []]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings") / "theirs"
    write_folder(folder)
    change(folder / GENERATION, max_length=14)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy whose small files may be changed."""
    copy = tmp_path / "theirs"
    copy.mkdir()
    for path in original.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


def change(path: Path, **values: Any) -> None:
    content = json.loads(path.read_bytes()) if path.exists() else {}
    path.write_text(json.dumps({**content, **values}), encoding="utf-8")


def load(folder: Path) -> ImportedModel:
    return import_marian(folder, None, TextPreparation())


def translations(folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Our translations of a few lines, and those of `generate`, in Marian's ids without EOS."""
    imported = load(folder)
    model = accelerate(Transformer(imported.description.config, imported.description.n_rows))
    for name, parameter in model.named_parameters():
        parameter.data.copy_(imported.weights[name])
    engine = TorchEngine([model.eval()], imported.subword.n_tokens)
    lines = demo_lines("dev.en", N_LINES)
    sources = [[*imported.subword.encode(line), EOS_ID] for line in lines]
    found = engine.translate(sources, imported.decoding, 1, lambda _: None)
    vocabulary = json.loads((folder / "vocab.json").read_bytes())
    ours = []
    for (best,) in found:
        ours.append([vocabulary[piece] for piece in imported.subword.pieces(best.tokens)])

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = []
    reference = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    torch.manual_seed(1)
    for line in lines:
        ids = reference.generate(**tokenizer([line], return_tensors="pt"))[0, 1:].tolist()
        theirs.append(ids[:-1] if ids[-1] == vocabulary["</s>"] else ids)
    return ours, theirs


def test_folder_in_place_of_a_bundle_is_explained(original: Path) -> None:
    with pytest.raises(UserError, match=r"nmtkit import .*theirs BUNDLE"):
        open_bundle(original)


def n_equal(first: list[list[int]], second: list[list[int]]) -> int:
    return sum(a == b for a, b in zip(first, second, strict=True))


def test_all_settings_of_transformers_are_known() -> None:
    ours = HONOURED_GENERATION | OTHER_GENERATION.keys() | NEUTRAL_GENERATION
    assert vars(transformers.GenerationConfig()).keys() <= ours
    theirs = transformers.MarianConfig().to_dict().keys()
    assert theirs <= ours | MODEL_KEYS | NEUTRAL_MODEL_KEYS
    assert not HONOURED_GENERATION & NEUTRAL_GENERATION
    assert not OTHER_GENERATION.keys() & (HONOURED_GENERATION | NEUTRAL_GENERATION)


def test_defaults_are_those_of_transformers() -> None:
    for key, value in transformers.GenerationConfig._get_default_generation_params().items():
        if key in OTHER_GENERATION and value is not None:
            assert value in OTHER_GENERATION[key], key


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 8},
        {"max_length": 8, "forced_eos_token_id": None},
        {"max_new_tokens": 5},
        {"num_beams": 1},
        {"num_beams": None},  # greedy search is the default of transformers
        {"num_beams": 5, "length_penalty": 0.3},
        {"renormalize_logits": True},
        {"early_stopping": "never", "min_length": 1, "num_return_sequences": 1},
        # Neutral ones
        {"temperature": 0.1, "top_k": 2, "top_p": 0.3, "typical_p": 0.4, "epsilon_cutoff": 0.1},
        {"bos_token_id": 9, "use_cache": False, "remove_invalid_values": True},
        {"num_assistant_tokens": 3, "eta_cutoff": 0.1, "output_scores": True},
    ],
    ids=str,
)
def test_honoured_and_neutral_settings(
    settings: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder / GENERATION, **settings)
    ours, theirs = translations(folder)
    assert n_equal(ours, theirs) >= MIN_EQUAL
    assert "warning:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no_repeat_ngram_size", 1),
        ("repetition_penalty", 3.0),
        ("encoder_repetition_penalty", 3.0),
        ("encoder_no_repeat_ngram_size", 1),
        ("begin_suppress_tokens", list(range(3, 430))),
        ("suppress_tokens", list(range(3, 430))),
        ("bad_words_ids", [[id_] for id_ in range(3, 430)]),
        ("do_sample", True),
        ("exponential_decay_length_penalty", [1, 3.0]),
        ("sequence_bias", [[[id_], 20.0] for id_ in range(2, 60)]),
        ("watermarking_config", {"greenlist_ratio": 0.2, "bias": 20.0}),
        ("num_return_sequences", 2),
        ("early_stopping", True),
        ("min_length", 9),
        ("max_time", 0.5),
        ("a_new_setting", 3),
        # Wrong types
        ("bad_words_ids", 7),
        ("bad_words_ids", [[[1]], {"a": 1}, []]),
        ("suppress_tokens", "7"),
        ("suppress_tokens", [[1]]),
        ("early_stopping", float("nan")),
    ],
)
def test_other_settings_are_reported(
    key: str, value: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder / GENERATION, **{key: value})
    load(folder)
    (line,) = [line for line in capsys.readouterr().err.split("\n") if "warning:" in line]
    shown = line.partition(f"{key} = ")[2]
    assert shown.startswith(repr(value)[:20])
    if key in SAME_HERE or value in WRONG_TYPES:
        return
    ours, theirs = translations(folder)
    assert n_equal(ours, theirs) < MIN_EQUAL


@pytest.mark.parametrize(
    "settings",
    [
        {"forced_bos_token_id": 7},
        {"forced_bos_token_id": 0},
        {"forced_decoder_ids": [[1, 7]]},
        {"_from_model_config": True, "force_bos_token_to_be_generated": True, "bos_token_id": 7},
        {"eos_token_id": [0, 9]},
        {"eos_token_id": 9},
        {"decoder_start_token_id": 9},
        {"num_beams": 0},
        {"num_beams": "4"},
        {"num_beams": float("nan")},
        {"max_length": 1},
        {"max_length": 2},
        {"max_new_tokens": 1},
        {"max_length": None, "max_new_tokens": "5"},
        {"max_length": "14"},
        {"max_new_tokens": [3]},
        {"length_penalty": -1.0},
    ],
    ids=str,
)
def test_other_models_are_refused(settings: dict[str, Any], folder: Path) -> None:
    change(folder / GENERATION, **settings)
    with pytest.raises(UserError, match=r"generation_config\.json") as caught:
        load(folder)
    assert any(key in str(caught.value) for key in settings)


def test_search_in_config_of_earlier_versions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without generation_config.json, the settings are in config.json."""
    (folder / GENERATION).unlink()
    change(folder / "config.json", num_beams=2, max_length=10, no_repeat_ngram_size=1)
    assert load(folder).decoding == DecodingConfig(
        beam_size=2,
        length_penalty=1.0,
        length_penalty_formula="fairseq",
        max_extra_tokens=50,
        max_length=8,
    )
    assert capsys.readouterr().err.count("no_repeat_ngram_size = 1") == 1


def test_missing_max_length_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder / GENERATION, max_length=None)
    assert load(folder).decoding.max_length is None
    assert "no max_length" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("config.json", {"a_new_key": 1}, "a_new_key = 1"),
        ("config.json", {"task_specific_params": {"t": 1}}, "task_specific_params = {'t': 1}"),
        ("tokenizer_config.json", {"clean_up_tokenization_spaces": True}, "_spaces = True"),
        ("tokenizer_config.json", {"sp_model_kwargs": {"alpha": 1}}, "sp_model_kwargs"),
        ("tokenizer_config.json", {"tokenizer_class": "X"}, "tokenizer_class = 'X'"),
        ("tokenizer_config.json", {"a_new_key": 1}, "a_new_key = 1"),
        ("tokenizer_config.json", {"additional_special_tokens": ["house"]}, "['house']"),
        ("tokenizer_config.json", {"bos_token": {"content": "the"}}, "['the']"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"4": {"content": "x"}}}, "['x']"),
        ("added_tokens.json", {"the": 5}, "['the']"),
        ("special_tokens_map.json", {"additional_special_tokens": ["a"]}, "['a']"),
        ("tokenizer_config.json", {"extra_special_tokens": {"image_token": "a"}}, "['a']"),
        ("tokenizer_config.json", {"extra_special_tokens": "abc"}, "['abc']"),
        ("tokenizer_config.json", {"additional_special_tokens": 3}, "['3']"),
        ("tokenizer_config.json", {"additional_special_tokens": [[2], "a"]}, "['[2]', 'a']"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"4": ["x"]}}, "x"),
        ("tokenizer_config.json", {"bos_token": ["x"]}, "x"),
        # Nothing to report
        ("config.json", {"architectures": ["MarianMTModel"], "num_beams": 9}, None),
        ("tokenizer_config.json", {"clean_up_tokenization_spaces": False}, None),
        ("tokenizer_config.json", {"additional_special_tokens": [TAGS[0]]}, None),
        ("special_tokens_map.json", {"eos_token": {"content": "</s>"}}, None),
    ],
)
def test_keys_of_other_files_are_reported(
    name: str,
    values: dict[str, Any],
    expected: str | None,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(folder / name, **values)
    load(folder)
    err = capsys.readouterr().err
    assert err.count("warning:") == (expected is not None)
    assert (expected or "") in err
    assert name in err or expected is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokenizer_config.json", {"eos_token": "<pad>"}),
        ("tokenizer_config.json", {"separate_vocabs": True}),
        ("special_tokens_map.json", {"eos_token": "<unk>"}),
        ("config.json", {"is_decoder": True}),
        ("config.json", {"pruned_heads": {"0": [1]}}),
        ("config.json", {"activation_function": ["relu"]}),
        ("config.json", {"quantization_config": {"bits": 4}}),
        ("config.json", {"hidden_size": 48}),
        ("config.json", {"num_hidden_layers": 3}),
    ],
)
def test_keys_of_other_models_are_refused(name: str, values: dict[str, Any], folder: Path) -> None:
    change(folder / name, **values)
    with pytest.raises(UserError, match=next(iter(values))):
        load(folder)


@pytest.mark.parametrize("lang", ["gmw", "sla", "mul", "ROMANCE"])
def test_groups_of_languages_need_lang(lang: str, folder: Path) -> None:
    change(folder / "tokenizer_config.json", target_lang=lang)
    with pytest.raises(UserError, match=f"target_lang = '{lang}'.*--lang"):
        load(folder)


@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
def test_empty_sentencepiece_model_is_refused(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"")
    with pytest.raises(UserError, match=name):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused(value: float, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.encoder.layers.1.fc1.weight"][3, 2] = value
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"layers\.1\.fc1\.weight.* NaN"):
        load(folder)


def test_weights_in_several_files_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="weights in several files"):
        load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "source.spm",
        "target.spm",
        "model.safetensors",
        "model.safetensors.index.json",
    ],
)
@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_files_that_are_not_regular_are_refused(kind: str, name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    with pytest.raises(UserError, match=f"{name} is not a regular file"):
        load(folder)
