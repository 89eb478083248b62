"""Models of fairseq compute the same log-probabilities in nmtkit, and hostile ones are refused."""

import argparse
import io
import os
import pickle
import sys
import tracemalloc
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sentencepiece
import torch
from fairseq_models import EOS, LANGS, FairseqModel, save_checkpoint, write_dictionaries

from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeSubword, BpeVersion
from nmtkit.corpus.special_tokens import UNK_ID
from nmtkit.decoding.forced import force_ids
from nmtkit.fast.accelerate import accelerate
from nmtkit.interchange.fairseq import read_dictionary, read_model, read_subword
from nmtkit.model.transformer import Transformer
from nmtkit.store.records import write_lines
from nmtkit.utils.errors import UserError

N_ROWS = 48
SENTENCES = [([7, 5, 9, 30, EOS], [11, 4, 6, EOS]), ([47, EOS], [8, 8, 8, 8, 8, 8, 40, EOS])]


def check_equal(path: Path, theirs: FairseqModel) -> None:
    """Compare the log-probabilities of all tokens; only the special tokens have other ids."""
    ours, weights = read_model(path, LANGS)
    model = accelerate(Transformer(ours.config, ours.n_rows))
    model.load_state_dict(weights)
    sources, targets = zip(*SENTENCES, strict=True)
    found = force_ids([model], sources, [tgt[:-1] for tgt in targets], align=False)
    for (src, tgt), forced in zip(SENTENCES, found, strict=True):
        expected = theirs.log_probs(src, tgt)
        torch.testing.assert_close(torch.tensor(forced.log_probs), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("old_names", [True, False])
@pytest.mark.parametrize(
    "kind",
    [{}, {"pre_norm": True}, {"learned": True}, {"tied": False}, {"decoder_layers": 1}],
    ids=str,
)
def test_log_probs_equal_fairseq(
    kind: dict[str, Any], old_names: bool, is_zip: bool, tmp_path: Path
) -> None:
    model = FairseqModel(N_ROWS, **kind)
    state = model.state(old_names=old_names)
    path = save_checkpoint(tmp_path / "model.pt", state, model.settings(), is_zip=is_zip)
    check_equal(path, model)


class DictConfig:
    """Has the attributes of omegaconf's DictConfig in a pickle."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._metadata = {"element_type": int, "cache": defaultdict(dict, {"a": {}})}


class AnyNode:
    """Has the attributes of omegaconf's AnyNode in a pickle."""

    def __init__(self, value: Any) -> None:
        self._val = value


DictConfig.__module__ = "omegaconf.dictconfig"
AnyNode.__module__ = "omegaconf.nodes"


@pytest.mark.parametrize("form", ["namespace", "dict", "omegaconf"])
def test_settings_in_all_places(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FairseqModel(N_ROWS, pre_norm=True)
    flat = model.settings(source_lang="en", target_lang="de")
    section: Any = {"namespace": argparse.Namespace(**flat), "dict": flat}.get(form)
    cfg: Any = {"model": section, "task": {"data": "x"}}
    if form == "omegaconf":
        monkeypatch.setitem(sys.modules, "omegaconf", ModuleType("omegaconf"))
        for kind in (DictConfig, AnyNode):
            module = ModuleType(kind.__module__)
            monkeypatch.setitem(sys.modules, kind.__module__, module)
            monkeypatch.setattr(module, kind.__name__, kind, raising=False)
        nodes = DictConfig({key: AnyNode(value) for key, value in flat.items()})
        cfg = DictConfig({"model": nodes})
    changes = {"args": None, "cfg": cfg}
    path = save_checkpoint(tmp_path / "m.pt", model.state(), {}, changes)
    check_equal(path, model)
    with pytest.raises(UserError, match="translates 'en' to 'de', not de to en"):
        read_model(path, ["de", "en"])


@pytest.mark.parametrize(
    ("settings", "state", "message"),
    [
        ({"activation_fn": "gelu"}, {}, "activation_fn = 'gelu'; only activation_fn = 'relu'"),
        ({"no_scale_embedding": True}, {}, "no_scale_embedding = True"),
        ({"decoder_normalize_before": True}, {}, "only decoder_normalize_before = False can"),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, {}, "5 attention heads"),
        ({"dropout": "a"}, {}, "a model that cannot be imported"),
        ({"max_source_positions": -1}, {}, "a model that cannot be imported"),
        ({"encoder_learned_pos": True, "decoder_learned_pos": True}, {}, "no matrix encoder.embed"),
        ({}, {"encoder.embed_tokens.weight": torch.zeros(40, 12)}, "would have shape"),
        ({}, {"decoder.layers.9.fc1.weight": torch.zeros(20, 12)}, "unexpected key"),
        (
            {},
            {"encoder.layernorm_embedding.weight": torch.zeros(12)},
            "unexpected key",
        ),
        ({}, {"encoder.layers.1.fc2.bias": torch.zeros(5)}, "would have shape"),
        ({}, {"encoder.layers.1.fc2.bias": torch.zeros(12).long()}, "not a tensor of floating"),
        ({}, {"decoder.embed_tokens.weight": None}, "not a tensor of floating"),
    ],
)
def test_other_architecture_is_refused(
    settings: dict[str, Any], state: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = FairseqModel(N_ROWS)
    weights = {**model.state(), **state}
    path = save_checkpoint(tmp_path / "m.pt", weights, model.settings(**settings))
    with pytest.raises(UserError, match=message):
        read_model(path, LANGS)


class Code:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("place", ["model", "args", "extra_state"])
def test_pickle_that_runs_code_is_refused(place: str, is_zip: bool, tmp_path: Path) -> None:
    model = FairseqModel(N_ROWS)
    mark = tmp_path / "was-here"
    path = save_checkpoint(
        tmp_path / "m.pt",
        model.state(),
        model.settings(),
        {place: {"a": Code(f"touch {mark}")}},
        is_zip=is_zip,
    )
    with pytest.raises(UserError, match=r"m\.pt .*posix\.system"):
        read_model(path, LANGS)
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()  # the pickle does run code


DEEP = 150_000
LEGACY_HEADER = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) * 2


def test_long_string_in_short_file(tmp_path: Path) -> None:
    path = tmp_path / "legacy.pt"
    path.write_bytes(LEGACY_HEADER + b"\x80\x02X" + (2**30).to_bytes(4, "little") + b"short")
    tracemalloc.start()
    with pytest.raises(UserError, match="is damaged"):
        read_model(path, LANGS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]" + b"]" * DEEP + b"a" * DEEP + b".",  # nested lists
        b"\x80\x02" + b"(" * DEEP + b"t" * DEEP + b".",
        b"\x80\x02" + b"(" * DEEP + b"t" * (DEEP + 1) + b".",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",  # LONG4 of two gigabytes
        b"\x80\x02a.",
        b"\x80\x02h\x07.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x02}.",
        b"",
    ],
)
def test_hostile_pickle_is_refused(content: bytes, tmp_path: Path) -> None:
    zipped = tmp_path / "zip.pt"
    legacy = tmp_path / "legacy.pt"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("m/data.pkl", content)
    legacy.write_bytes(LEGACY_HEADER + content + pickle.dumps([], 2))
    for path in (zipped, legacy):
        with pytest.raises(UserError):
            read_model(path, LANGS)


def test_dictionary_is_padded(tmp_path: Path) -> None:
    n_rows = write_dictionaries(tmp_path, ["a@@", "b"])
    pieces, n_read = read_dictionary(tmp_path / "dict.en.txt")
    assert (list(pieces), n_read, n_rows) == (["a@@", "b"], 8, 8)


@pytest.mark.parametrize("line", ["a", "a b", "a -1", "<pad> 3", "b 4", "a 1 #fairseq:overwrite"])
def test_malformed_dictionary_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "dict.en.txt"
    path.write_text(f"b 9\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"dict.en.txt, line 2"):
        read_dictionary(path)


WORDS = Counter({"the": 90, "then": 50, "thinking": 40, "look": 30, "looking": 20, "away": 9})
OTHERS = Counter({"der": 90, "den": 50, "schauen": 40, "schaute": 30, "weg": 20, "und": 9})


@pytest.mark.parametrize(
    ("tool", "version"), [("subword-nmt", "0.1"), ("subword-nmt", "0.2"), ("fastBPE", "0.2")]
)
@pytest.mark.parametrize("learned_from", [WORDS, OTHERS])
@pytest.mark.parametrize("n_tags", [0, 1])
@pytest.mark.parametrize("text", [WORDS, {word: WORDS[word] for word in ("look", "away")}])
def test_codes_must_match_dictionary(
    learned_from: Counter[str],
    n_tags: int,
    text: Mapping[str, int],
    tool: str,
    version: BpeVersion,
    tmp_path: Path,
) -> None:
    codes = tmp_path / "codes"
    learned = learn_bpe(learned_from, 30, version)
    lines = learned.lines()
    if tool == "fastBPE":
        lines = [f"{line} 9" for line in lines[1:]]
    codes.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    counts = BpeSubword.from_words(learn_bpe(WORDS, 30, version), text).counts
    characters = {chr(0x400 + i): 0 for i in range(100)}
    dictionary = {**counts, **characters, **{f"__{n}__": 0 for n in range(n_tags)}}
    if learned_from is WORDS:
        subword = read_subword(codes, dictionary)
        assert subword.pieces(subword.encode("look")) == ["look"]
    else:
        with pytest.raises(UserError, match=r"[0-9]+ of the [0-9]+ subwords .* cannot result"):
            read_subword(codes, dictionary)


def check_sentencepieces(
    training: list[str], unseen: list[str], kind: str, coverage: float, folder: Path
) -> None:
    """Compare ids and texts with fairseq's, which looks up pieces as text in its dictionary."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training),
        model_writer=content,
        model_type=kind,
        vocab_size=500,
        hard_vocab_limit=False,
        character_coverage=coverage,
        minloglevel=2,
    )
    (folder / "spm.model").write_bytes(content.getvalue())
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())
    counts = Counter(p for line in training for p in theirs.encode(line, out_type=str))
    write_lines(folder / "dict.en.txt", (f"{piece} {n}" for piece, n in counts.most_common()))
    pieces, _ = read_dictionary(folder / "dict.en.txt")
    if coverage < 1:
        own = {theirs.id_to_piece(id_) for id_ in range(len(theirs))}
        assert not pieces.keys() <= own
    subword = read_subword(folder / "spm.model", pieces)
    ids_of = {piece: 4 + rank for rank, (piece, _) in enumerate(counts.most_common())}
    for line in unseen:
        expected = theirs.encode(line, out_type=str)
        ids = [ids_of[p] if p in counts else UNK_ID for p in expected]
        assert subword.encode(line) == ids
        text = "".join(p for p in expected if p in counts).replace("\u2581", " ")
        assert subword.decode(ids) == " ".join(text.split())


def first_lines(path: Path, n_lines: int) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:n_lines]


COVERAGES = pytest.mark.parametrize("coverage", [1.0, 0.9995, 0.995])
KINDS = pytest.mark.parametrize("kind", ["unigram", "bpe"])


@KINDS
@COVERAGES
def test_sentencepieces_equal_fairseq(kind: str, coverage: float, tmp_path: Path) -> None:
    words = ["the", "cat", "saw", "that", "hat", "then", "what"]
    lines = [f"{words[i % 7]} {words[i % 5]} {words[i % 3]} ." for i in range(400)]
    rare = ["Ω1 the ½x cat", "猫 saw (猫猫) the ΩΩ", "a žena 42 %", "§42 42§"]
    unseen = [*rare, "犬 the cat", "42猫Ω", "</s> the <unk>", "猫</s>Ω", ""]
    check_sentencepieces([*lines, *rare], unseen, kind, coverage, tmp_path)


@pytest.mark.slow
@KINDS
@COVERAGES
def test_sentencepieces_of_news(
    kind: str, coverage: float, shared_data: Path, tmp_path: Path
) -> None:
    training = []
    unseen = []
    for lang in ("en", "de"):
        training += first_lines(shared_data / "wmt-news" / f"ende.{lang}", 3_000)
    for lang in ("fr", "de"):
        unseen += first_lines(shared_data / "newstest" / f"newstest2013.{lang}", 1_000)
    check_sentencepieces(training, unseen, kind, coverage, tmp_path)
