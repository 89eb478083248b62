"""`nmtkit import`: fairseq's checkpoints become bundles that read and write raw text."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from bundles import LINES
from fairseq_models import FairseqModel, save_checkpoint, write_dictionaries
from system.command import done, nmtkit, sentence

from nmtkit.cli.import_model import import_model
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.special_tokens import EOS_ID, UNK_ID
from nmtkit.decoding.bundle import open_bundle
from nmtkit.store.artifacts import open_directory
from nmtkit.store.records import file_sha256
from nmtkit.utils.errors import UserError

CODES = "#version: 0.2\nt h\nth e</w>\nl o\n@ -\n@- @</w>\n"


def imported(
    checkpoint: Path, folder: Path, lang: str = "en-de", codes: str = "bpecodes", **options: Any
) -> Path:
    import_model(
        model=checkpoint, folder=folder, codes=checkpoint.with_name(codes), lang=lang, **options
    )
    return folder


def pieces_of(lines: list[str], *, hyphens: bool = True) -> list[str]:
    """Every character of the tokenized lines, and some merged pieces."""
    moses = Tokenization("en", False, False, "moses", hyphens)
    characters = sorted(set("".join(map(moses.tokenize, lines))) - {" "})
    merged = ["the", "th@@", "lo@@"]
    if hyphens:
        merged.append("@-@")
    inner = [f"{character}@@" for character in characters]
    return merged + characters + inner


def published(folder: Path, *, hyphens: bool = True) -> Path:
    """The files of a published fairseq model: a checkpoint, dictionaries and codes."""
    folder.mkdir(exist_ok=True)
    n_rows = write_dictionaries(folder, pieces_of(LINES, hyphens=hyphens))
    (folder / "bpecodes").write_text(CODES, encoding="utf-8")
    model = FairseqModel(n_rows)
    return save_checkpoint(folder / "model.pt", model.state(), model.settings())


def test_text_equals_fairseq(tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    place = imported(checkpoint, tmp_path / "ours")
    bundle = open_bundle(place)
    ids = bundle.text.encode("the well-known")
    dictionary = checkpoint.with_name("dict.en.txt").read_text(encoding="utf-8").split("\n")
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    names += [line.split(" ")[0] for line in dictionary]
    pieces = " ".join(names[id_] for id_ in ids)
    assert pieces == "the w@@ e@@ l@@ l @-@ k@@ n@@ o@@ w@@ n </s>"
    assert ids[-1] == EOS_ID
    assert bundle.text.decode(ids[:-1]) == "the well-known"
    assert bundle.text.subword.n_tokens < bundle.description.n_rows  # without the fillers
    # The recipe of a fine-tuning has the same number of rows.
    config = bundle.description.config
    assert config.embedding_rows(bundle.text.subword.n_tokens) == bundle.description.n_rows
    assert bundle.max_subwords == 25
    origin = open_directory(place).manifest.depends_on["fairseq"]
    assert origin["model.pt"] == file_sha256(checkpoint)
    assert set(origin) == {"model.pt", "bpecodes", "dict.en.txt", "dict.de.txt"}


@pytest.mark.parametrize("value", [None, True, False])
def test_hyphens_from_dictionary_or_option(value: bool | None, tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs", hyphens=False)
    overrides = [] if value is None else [f"corpus.aggressive_hyphens={str(value).lower()}"]
    bundle = open_bundle(
        imported(checkpoint, tmp_path / "ours", overrides=overrides, lowercase=True)
    )
    assert bundle.text.src.aggressive_hyphens is bool(value)
    assert (bundle.text.src.lang, bundle.text.tgt.lang) == ("en", "de")
    assert bundle.text.tgt.lowercase


def test_set_describes_preprocessing(tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    moses = open_bundle(imported(checkpoint, tmp_path / "moses")).text.src
    assert (moses.tokenizer, moses.normalize_punctuation) == ("moses", False)
    overrides = ["corpus.tokenizer=none", "corpus.normalize_punctuation=true"]
    plain = open_bundle(imported(checkpoint, tmp_path / "plain", overrides=overrides)).text.tgt
    assert (plain.tokenizer, plain.normalize_punctuation) == ("none", True)
    for override in ("corpus.tokenizer=spacy", "corpus.max_ratio=9.0", "model.d_model=512"):
        with pytest.raises(UserError, match=override):
            imported(checkpoint, tmp_path / "none", overrides=[override])
    assert not (tmp_path / "none").exists()


def test_inconsistent_files_are_refused(tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    ours = tmp_path / "ours"
    with pytest.raises(UserError, match="already exists"):
        imported(checkpoint, tmp_path)
    with pytest.raises(UserError, match="already exists"):
        imported(checkpoint, Path())
    with pytest.raises(UserError, match="/dev/zero"):
        imported(Path("/dev/zero"), ours)
    with pytest.raises(UserError, match=r"nowhere/m.pt .*No such file"):
        imported(tmp_path / "nowhere" / "m.pt", ours)
    with pytest.raises(UserError, match=r"nothere .*--codes"):
        imported(checkpoint, ours, codes="nothere")
    with pytest.raises(UserError, match=r"dict.fr.txt"):
        imported(checkpoint, ours, "en-fr")
    write_dictionaries(checkpoint.parent, [*"abcdefghi"])
    with pytest.raises(
        UserError, match=r"has 16 entries .* model in .* has [0-9]+; copy the dictionaries"
    ):
        imported(checkpoint, ours)
    with checkpoint.with_name("dict.de.txt").open("a", encoding="utf-8") as file:
        file.write("more 1\n")
    with pytest.raises(UserError, match=r"dict\.en\.txt.*dict\.de\.txt.* differ"):
        imported(checkpoint, ours)
    assert not ours.exists()


def sentencepiece_model(lines: list[str]) -> bytes:
    """A typical sentencepiece model: unigram pieces, NFKC, other special tokens than ours."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 9),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def test_sentencepieces_have_dictionary_ids(tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    model = sentencepiece_model(LINES)
    checkpoint.with_name("spm.model").write_bytes(model)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    used = {piece for line in LINES[:3] for piece in theirs.encode(line, out_type=str)}
    n_rows = write_dictionaries(checkpoint.parent, sorted(used))
    fairseqs = FairseqModel(n_rows)
    save_checkpoint(checkpoint, fairseqs.state(), fairseqs.settings())
    place = imported(checkpoint, tmp_path / "ours", codes="spm.model")
    text = open_bundle(place).text
    assert text.src.tokenizer == "none"
    for line in (*LINES, "ﬁ 猫 the"):  # the last two have pieces that are not in the dictionary
        pieces = theirs.encode(line, out_type=str)
        ids = [4 + sorted(used).index(piece) if piece in used else UNK_ID for piece in pieces]
        assert text.encode(line) == [*ids, EOS_ID]
    assert text.decode(text.encode(LINES[0])[:-1]) == LINES[0]
    done(nmtkit(tmp_path, "export", "ours", "exported", "--format", "huggingface"))
    vocabulary = json.loads((tmp_path / "exported" / "tokenizer.json").read_bytes())["model"]
    assert vocabulary["type"] == "WordLevel"
    assert [vocabulary["vocab"][piece] for piece in pieces if piece in used] == [
        id_ for id_ in ids if id_ != UNK_ID
    ]
    checkpoint.with_name("spm.model").write_bytes(sentencepiece_model(["tous les chiens", "mots"]))
    with pytest.raises(UserError, match="cannot result from"):
        imported(checkpoint, tmp_path / "more", codes="spm.model")


@pytest.mark.parametrize("name", ["model.pt", "bpecodes", "dict.en.txt", "dict.de.txt"])
def test_pipes_are_refused(name: str, tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    pipe = checkpoint.with_name(name)
    pipe.unlink()
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=rf"{name} is not a regular file"):
        imported(checkpoint, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("lang", ["en-gmw", "sla-en", "en-roa"])
def test_groups_of_languages_are_refused(lang: str, tmp_path: Path) -> None:
    group = lang.replace("en", "").strip("-")
    with pytest.raises(UserError, match=f"{group} is a group of languages"):
        imported(published(tmp_path / "theirs"), tmp_path / "ours", lang)


def test_missing_model_is_named(tmp_path: Path) -> None:
    checkpoint = published(tmp_path / "theirs")
    with pytest.raises(UserError, match="does not exist"):
        import_model(model=tmp_path / "nothing", folder=tmp_path / "ours")
    with pytest.raises(UserError, match="pass --codes and --lang"):
        import_model(model=checkpoint, folder=tmp_path / "ours")
    with pytest.raises(UserError, match="pass the checkpoint in it"):
        imported(checkpoint.parent, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_imported_bundle_translates(tmp_path: Path) -> None:
    published(tmp_path)
    options = ["--codes", "bpecodes", "--lang", "en-de"]
    ended = done(nmtkit(tmp_path, "import", "model.pt", "ours", *options))
    assert ended.out == "ours\n"
    translated = done(nmtkit(tmp_path, "translate", "--bundle", "ours", stdin=b"The cat.\n\n"))
    assert translated.out.count("\n") == 2
    (tmp_path / "model.pt").write_bytes(b"\x80\x02cos\nsystem\n.")
    refused = nmtkit(tmp_path, "import", "model.pt", "more", *options)
    assert "not a file of torch.save" in sentence(refused)
