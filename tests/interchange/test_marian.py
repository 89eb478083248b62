"""A model that transformers wrote computes with us what it computed there."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from bundles import copying_model, random_sources
from marian_models import TAGS, demo_lines, joint_vocabulary, learn_unigrams, write_folder

from nmtkit.config.model import PAPERS_DECODING, DecodingConfig
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.sentencepiece_subword import SentencePiecePair, SentencePieceSubword
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.corpus.tokenized import ChunkTokenizer, RawChunk
from nmtkit.decoding.details import Pieces, details
from nmtkit.decoding.text_translator import Text, TextTranslator
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.export.exported_model import write_exported_model
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.interchange.marian_import import import_marian
from nmtkit.model.transformer import Transformer
from nmtkit.store.artifacts import open_directory
from nmtkit.store.manifests import write_manifest
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

SAME = 1e-5
PLAIN = TextPreparation()
N_COPIED = 50  # tokens of a model that copies its source
UNUSUAL = ["ﬁne “quotes”", "猫 and 🐈", "a  b\u00a0c", "\u2581under"]
ONE_SIDE = {"share_encoder_decoder_embeddings": False}
NO_TIES = {**ONE_SIDE, "tie_word_embeddings": False}
OTHER_SHAPE = {"d_model": 36, "encoder_attention_heads": 3, "decoder_attention_heads": 3}
OTHER_SHAPE |= {"encoder_layers": 1, "decoder_layers": 1}


def import_folder(
    folder: Path, preparation: TextPreparation = PLAIN
) -> tuple[ImportedModel, Transformer]:
    imported = import_marian(folder, None, preparation)
    model = accelerate(Transformer(imported.description.config, imported.description.n_rows))
    for name, parameter in model.named_parameters():
        parameter.data.copy_(imported.weights[name])
    return imported, model.eval()


def marian_ids(folder: Path, imported: ImportedModel) -> list[int]:
    """Marian's id of each of our rows; our <pad> has that of nothing."""
    vocabulary = json.loads((folder / "vocab.json").read_bytes())
    symbols = [-1, *(vocabulary[symbol] for symbol in ("<pad>", "</s>", "<unk>"))]
    n_tokens = imported.subword.n_tokens
    ids = symbols + [vocabulary[piece] for piece in imported.subword.pieces(range(4, n_tokens))]
    n_theirs = imported.description.n_rows - 1
    return ids + sorted(set(range(n_theirs)) - set(ids))


def our_logits(model: Transformer, src: list[int], tgt: list[int]) -> torch.Tensor:
    layouts = PackedLayout.from_lengths([len(src)]), PackedLayout.from_lengths([len(tgt) + 1])
    hidden = model(torch.tensor(src), layouts[0], torch.tensor([BOS_ID, *tgt]), layouts[1])
    return model.logits(hidden)


@pytest.mark.parametrize("is_safe", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation_function": "relu", **OTHER_SHAPE},
        {"activation_function": "silu", "bias": False},
        {"more_rows": 5, **ONE_SIDE},
        {"tie_word_embeddings": False},
        NO_TIES,
        {"decoder_layers": 1},
        {"encoder_layers": 1, "decoder_layers": 3},
    ],
    ids=str,
)
def test_logits_equal_transformers(changes: dict[str, Any], is_safe: bool, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    theirs = write_folder(folder, is_safe=is_safe, **changes).double()
    imported, model = import_folder(folder)
    assert imported.description.config.tie_embeddings is not ({*NO_TIES} & {*changes} != set())
    model.double()
    model.src_embedding.dtype = model.tgt_embedding.dtype = torch.float64
    n_tokens = imported.subword.n_tokens
    assert imported.description.config.embedding_rows(n_tokens) == imported.description.n_rows
    ids = marian_ids(folder, imported)
    text = imported.tokenizations, imported.subword
    for src_line, tgt_line in zip(demo_lines("dev.en", 8), demo_lines("dev.de", 8), strict=True):
        src = [*text[1].encode(text[0].src.tokenize(src_line)), EOS_ID]
        tgt = text[1].encode_target(text[0].tgt.tokenize(tgt_line))
        with torch.no_grad():
            ours = our_logits(model, src, tgt)
            expected = theirs(
                torch.tensor([[ids[id_] for id_ in src]]),
                decoder_input_ids=torch.tensor([[ids[id_] for id_ in [BOS_ID, *tgt]]]),
            ).logits[0]
        assert expected.std() > 1
        torch.testing.assert_close(ours[:, 1:], expected[:, ids[1:]], atol=SAME, rtol=0)
        # Our <pad> has no part in the softmax.
        assert ours.log_softmax(-1)[:, PAD_ID].float().exp().max() == 0


def test_tokenizer_equals_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "theirs"
    write_folder(folder)
    imported, _ = import_folder(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = marian_ids(folder, imported)
    subword = imported.subword
    n_unknown = 0
    lines = [*demo_lines("dev.en", 50), *UNUSUAL]
    for line in [*lines, *(f"{TAGS[0]} {line}" for line in lines), f"{TAGS[1]}no space"]:
        ours = subword.encode(line)
        assert [ids[id_] for id_ in [*ours, EOS_ID]] == tokenizer(line)["input_ids"]
        n_unknown += UNK_ID in ours
    assert n_unknown > 2
    for line in [*demo_lines("dev.de", 50), *UNUSUAL]:
        ours = subword.encode_target(line)
        theirs = tokenizer(text_target=line)["input_ids"]
        assert [ids[id_] for id_ in [*ours, EOS_ID]] == theirs
        decoded = tokenizer.decode(theirs, skip_special_tokens=True)
        assert subword.decode(ours).split() == decoded.replace("<unk>", "").split()


def test_decode_equals_transformers(tmp_path: Path) -> None:
    """The vocabulary has pieces that only one of the two sentencepiece models has."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "theirs"
    write_folder(folder)
    imported, _ = import_folder(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = marian_ids(folder, imported)
    for first in range(UNK_ID + 1, imported.subword.n_tokens, 20):
        some = range(first, min(first + 20, imported.subword.n_tokens))
        text = tokenizer.decode([ids[id_] for id_ in some], skip_special_tokens=True)
        assert imported.subword.decode(some) == " ".join(text.split())


def test_unknown_tag_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    write_folder(folder)
    subword = import_folder(folder)[0].subword
    text = ">>a quotation<< of the text"
    assert subword.encode(text) == subword.encode("x " + text)[-len(subword.encode(text)) :]
    assert subword.split_tag(text) == ("", text)
    assert subword.split_tag(f" {TAGS[0]} a <<b<<") == (TAGS[0], " a <<b<<")


@pytest.mark.parametrize("tokenizer", ["moses", "none"])
@pytest.mark.parametrize("split_sentences", [True, False])
def test_tag_is_left_alone(
    tokenizer: Literal["moses", "none"],
    split_sentences: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Known and unknown tags are one token, whatever the options do to the text."""
    preparation = TextPreparation(tokenizer, normalize_punctuation=True, lowercase=True)
    translator = text_translator(tmp_path / "theirs", preparation, split_sentences=split_sentences)
    subword = translator.text.subword
    known, unknown, quotation = translator.translate(
        [f"{TAGS[2]} IT IS.", ">>sr_Cyrl<< IT IS.", ">>IT IS.<<"]
    )
    expected = subword.pieces(subword.encode(translator.text.src.tokenize("it is.")))
    assert subword.pieces(known.src[0]) == [TAGS[2], *expected, "</s>"]
    assert subword.pieces(unknown.src[0]) == ["<unk>", *expected, "</s>"]
    assert not quotation.has_tag
    warnings = capsys.readouterr().err
    assert warnings.count("warning:") == 1
    assert ">>sr_Cyrl<<" in warnings
    assert TAGS[2] in warnings
    assert subword.encode(f"{TAGS[2]} it is.") == known.src[0][:-1] or tokenizer == "moses"


def test_tag_of_training_text_is_left_alone(tmp_path: Path) -> None:
    """The chunks of a training text are tokenized with the settings of the bundle."""
    preparation = TextPreparation("moses", lowercase=True)
    text = text_translator(tmp_path / "theirs", preparation, split_sentences=False).text
    tokenizer = ChunkTokenizer(
        text.src, text.tgt, Cleaning(1, 99, 9.0), ("corpus",), frozenset(), frozenset()
    )
    line = f"{TAGS[2]} It's HERE."
    chunk = tokenizer(RawChunk(0, 0, [(line, "Es IST hier.")], frozenset()))
    assert chunk.pairs[0][0].split(" ")[0] == TAGS[2]
    assert [*text.subword.encode(chunk.pairs[0][0]), EOS_ID] == text.encode(line)


def test_alignment_counts_the_words_of_the_line(tmp_path: Path) -> None:
    """Also in later sentences, and with a tag that is put in front of each of them."""
    translator = text_translator(tmp_path / "theirs", split_sentences=True)
    for line in (
        "A cat sat. The dog ran. It slept.",
        f"{TAGS[0]} A cat sat. The dog ran.",
        f"{TAGS[0]}A cat sat.  The dog ran.",
        ">>sr_Cyrl<< A cat sat. The dog ran.",
        f"{TAGS[0]} " + "A cat sat on and on " * 20,  # in pieces
    ):
        (translation,) = translator.translate([line])
        assert translation.n_pieces > 1
        pieces = Pieces(
            translation.src, translation.tgt, translation.has_tag, translation.continues
        )
        (detail,) = details(translator.text.subword, translator.engine, [pieces], align=True)
        assert detail.alignment is not None
        words = [word if ">>sr" not in word else "" for word in line.split()]
        assert detail.alignment.src_words == words
        n_src = sum(len(tokens) - 1 for tokens in detail.src_tokens)
        assert max(i for i, _ in detail.alignment.token_links) < n_src


def text_translator(
    folder: Path, preparation: TextPreparation = PLAIN, *, split_sentences: bool
) -> TextTranslator:
    """A translator with the torch engine, of a model that is written to `folder`."""
    write_folder(folder)
    imported, model = import_folder(folder, preparation)
    engine = TorchEngine([model], imported.subword.n_tokens)
    bundle = folder.parent / "bundle"
    bundle.mkdir()
    imported.save_text(bundle)
    write_manifest(bundle, {"kind": "import", "depends_on": {}})
    text = Text.load(open_directory(bundle), imported.description.n_rows)
    decoding = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=0)
    return TextTranslator(text, engine, decoding, max_subwords=70, split_sentences=split_sentences)


def test_tag_applies_to_all_sentences(tmp_path: Path) -> None:
    translator = text_translator(tmp_path / "theirs", split_sentences=True)
    subword = translator.text.subword
    (translation,) = translator.translate([f"{TAGS[1]} A house. He saw it."])
    names = [subword.pieces(ids) for ids in translation.src]
    assert [pieces[0] for pieces in names] == [TAGS[1], TAGS[1]]
    assert names[1][1:] == subword.pieces([*subword.encode("He saw it."), EOS_ID])


@pytest.mark.parametrize("split_sentences", [True, False])
def test_tag_of_blank_line_is_not_translated(split_sentences: bool, tmp_path: Path) -> None:
    """A user may put a tag in front of every line, also of empty ones."""
    translator = text_translator(tmp_path / "theirs", split_sentences=split_sentences)
    lines = [TAGS[0], f"{TAGS[0]} ", f" {TAGS[0]}\u200b\r", f"{TAGS[0]} A house."]
    n_pieces = [translation.n_pieces for translation in translator.translate(lines)]
    assert n_pieces == [0, 0, 0, 1]


@pytest.fixture(scope="module")
def copying_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model: the choices of its search are clear, and its translations end."""
    folder = tmp_path_factory.mktemp("copying")
    pieces = [name for name in joint_vocabulary([learn_unigrams("en")]) if name not in SPECIALS]
    counts = dict.fromkeys(pieces[: N_COPIED - len(SPECIALS)], 0)
    src, tgt = (SentencePieceSubword(learn_unigrams(lang), counts) for lang in ("en", "de"))
    write_exported_model(
        folder,
        "huggingface",
        copying_model(N_COPIED, longest=9),
        SentencePiecePair(src, tgt),
        PAPERS_DECODING,
        max_subwords=30,
        n_positions=64,
        langs=("en", "de"),
    )
    return folder


def test_scores_equal_transformers(copying_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(copying_folder)
    imported, model = import_folder(copying_folder)
    ids = marian_ids(copying_folder, imported)
    decoding = imported.decoding.model_copy(update={"beam_size": 4, "length_penalty": 0.8})
    sources = random_sources(20, N_COPIED, longest=9)
    engine = TorchEngine([model], imported.subword.n_tokens)
    found = engine.translate(sources, decoding, 1, lambda _: None)
    n_equal = 0
    for source, (best,) in zip(sources, found, strict=True):
        output = theirs.generate(
            torch.tensor([[ids[id_] for id_ in source]]),
            num_beams=4,
            length_penalty=0.8,
            max_length=30,
            return_dict_in_generate=True,
            output_scores=True,
        )
        tokens = [ids.index(id_) for id_ in output.sequences[0, 1:-1].tolist()]
        if best.tokens == tokens:
            n_equal += 1
            assert best.score == pytest.approx(output.sequences_scores.item(), rel=1e-3)
    assert n_equal >= 15


@pytest.mark.parametrize("beam_size", [1, 4])
def test_search_equals_transformers(beam_size: int, copying_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(copying_folder)
    imported, model = import_folder(copying_folder)
    ids = marian_ids(copying_folder, imported)
    sources = random_sources(60, N_COPIED, longest=9)
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_tokens=20)
    engine = TorchEngine([model], imported.subword.n_tokens)
    found = engine.translate(sources, decoding, 1, lambda _: None)
    n_equal = 0
    for source, (best,) in zip(sources, found, strict=True):
        output = theirs.generate(
            torch.tensor([[ids[id_] for id_ in source]]),
            num_beams=beam_size,
            length_penalty=0.0,
            max_length=30,
        )
        assert output[0, -1] == ids[EOS_ID]
        tokens = [ids.index(id_) for id_ in output[0, 1:-1].tolist()]
        n_equal += best.tokens == tokens
        # Our search also finishes hypotheses whose EOS is not among the best `beam_size`
        # continuations of a step, and finds better ones.
        (forced,) = engine.force([source], [tokens], align=False)
        assert best.log_prob >= sum(forced.log_probs) - 1e-4
    assert n_equal >= (59 if beam_size > 1 else 55)


def test_decoding_settings_of_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "theirs")
    imported, _ = import_folder(tmp_path / "theirs")
    assert imported.decoding.beam_size == 3
    assert imported.decoding.length_penalty == 1.0
    assert imported.decoding.length_penalty_formula == "fairseq"
    assert (imported.tokenizations.src.lang, imported.tokenizations.tgt.lang) == ("en", "de")


@pytest.mark.parametrize(
    "changes", [{}, NO_TIES, {"encoder_layers": 3, "decoder_layers": 1}], ids=str
)
def test_export_equals_imported_folder(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    first = write_folder(tmp_path / "theirs", **changes).double()
    imported, model = import_folder(tmp_path / "theirs")
    exported = tmp_path / "exported"
    exported.mkdir()
    langs = ("en", "de")
    write_exported_model(
        exported, "huggingface", model, imported.subword, imported.decoding, 70, 200, langs
    )
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(folder)
        for folder in (tmp_path / "theirs", exported)
    ]
    second = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported, dtype=torch.float64)
    second.eval()
    names = tokenizers[0].get_vocab()
    common = [piece for piece in tokenizers[1].get_vocab() if piece in names and piece != "<pad>"]
    columns = [[tokenizer.get_vocab()[piece] for piece in common] for tokenizer in tokenizers]
    for line in [*demo_lines("dev.en", 5), f"{TAGS[0]} {UNUSUAL[0]}"]:
        log_probs = []
        for tokenizer, theirs, ids in zip(tokenizers, (first, second), columns, strict=True):
            batch = tokenizer([line], text_target=["Ein Haus."], return_tensors="pt")
            with torch.no_grad():
                logits = theirs(**batch).logits[0]
            log_probs.append(logits.log_softmax(-1)[:, ids])
            assert tokenizer.decode(batch["labels"][0], skip_special_tokens=True) == "Ein Haus."
        difference = log_probs[1] - log_probs[0]
        # Marian's <pad> had a part in the softmax, which the exported model does not give it.
        assert (difference.amax(-1) - difference.amin(-1)).max() < SAME
    again, _ = import_folder(exported)
    assert again.description.config.max_positions == 70
    assert again.decoding == imported.decoding
    assert again.weights["output_bias"].min() == -100  # so that label smoothing is not dominated
    assert again.subword.pieces(range(4, 9)) == imported.subword.pieces(range(4, 9))


def changed_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, **changes}), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, "model_type = 'bart'; only model_type = 'marian'"),
        ({"scale_embedding": False}, "scale_embedding = False; only"),
        ({"normalize_before": True}, "normalize_before = True; only"),
        ({"static_position_embeddings": False}, "static_position_embeddings = False"),
        ({"activation_function": "gelu"}, "activation_function = 'gelu'; only relu, swish"),
        ({"decoder_layers": 3}, "has no model.decoder.layers.2"),
        ({"decoder_layers": None}, "n_decoder_layers"),
        ({"encoder_ffn_dim": 8}, "encoder_ffn_dim = 8 and decoder_ffn_dim = 40"),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "d_model = 24 and"),
        ({"d_model": 25, "encoder_attention_heads": 5, "decoder_attention_heads": 5}, "must be ev"),
        ({"d_model": "24"}, "d_model = '24'"),
        ({"d_model": 2**40}, "d_model"),
        ({"encoder_layers": None, "decoder_layers": None}, "n_layers"),
        ({"decoder_vocab_size": 99}, "decoder_vocab_size = 99; only models with one vocabulary"),
        ({"vocab_size": -1}, "vocab_size = -1"),
        ({"vocab_size": 2**24, "decoder_vocab_size": 2**24}, r"but vocab.json .* has \d+ pieces"),
        ({"vocab_size": 100, "decoder_vocab_size": 100}, "vocab.json .* the id 100"),
        ({"vocab_size": 4_000, "decoder_vocab_size": 4_000}, r"has shape \([0-9]+, 24\)"),
        ({"decoder_start_token_id": 5}, "decoder_start_token_id = 5 and pad_token_id"),
        ({"eos_token_id": 5}, "</s> the id 5, and vocab.json next to it the id 0"),
        ({"encoder_ffn_dim": 8, "decoder_ffn_dim": 8}, "fc1.weight has shape"),
        ({"encoder_layers": 1, "decoder_layers": 1}, "unexpected key .*decoder.layers.1"),
        ({"encoder_layers": 3, "decoder_layers": 3}, "has no model.encoder.layers.2"),
    ],
    ids=str,
)
def test_unsupported_config_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    write_folder(folder)
    changed_config(folder, **changes)
    with pytest.raises(UserError, match=message):
        import_folder(folder)


def test_damaged_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    write_folder(folder)
    for name, content, message in (
        ("model.safetensors", b"none", "model.safetensors is damaged"),
        ("model.safetensors", bytes(99), "model.safetensors is damaged"),
        ("source.spm", b"none", "is not a sentencepiece model"),
        ("vocab.json", b'{"</s>": 0}', "vocab.json .* has no <pad>"),
        ("vocab.json", b'{"a\\nb": 0}', "expected pieces"),
        ("vocab.json", b'{"\\ud800": 0}', "expected pieces"),
        ("vocab.json", b'{"a": true}', "expected pieces"),
        ("config.json", b"[" * 9_999, "not valid JSON"),
        ("config.json", b"[]", "not a JSON object"),
        ("target_vocab.json", b"{}", "one vocabulary for both sides"),
        ("generation_config.json", b'{"num_beams": 0}', "num_beams|beam_size"),
        ("tokenizer_config.json", b'{"source_lang": "roa"}', "pass --lang"),
    ):
        path = folder / name
        whole = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            import_folder(folder)
        path.unlink()
        if whole is not None:
            path.write_bytes(whole)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no model.safetensors or pytorch_model.bin"):
        import_folder(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        import_folder(folder)


def test_other_positions_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    model = write_folder(folder, is_safe=False)
    state = model.state_dict()
    assert "model.encoder.embed_positions.weight" in state  # and is equal to ours
    import_folder(folder)
    state["model.encoder.embed_positions.weight"][3, 5] += 0.5
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"embed_positions.weight are not the sinusoids"):
        import_folder(folder)


def test_langs_of_the_user_win(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    write_folder(folder)
    langs = Language.parse_pair("en-nl")
    imported = import_marian(folder, langs, TextPreparation(lowercase=True))
    assert imported.tokenizations.tgt.lang == "nl"
    assert imported.tokenizations.src.lowercase
