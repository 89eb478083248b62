"""A bundle is enough to translate raw text, and nothing else is taken for one."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch

from nmtkit import artifacts
from nmtkit.corpus.bpe import Bpe
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.subword import BpeSubword, build_bpe_vocabulary
from nmtkit.corpus.tokenizations import TOKENIZATION, Tokenizations
from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.stages.bundle import MAX_SUBWORDS, MODEL, WEIGHTS, open_bundle, write_bundle
from nmtkit.symbols import EOS_ID

CPU = torch.device("cpu")
LINES = ["The well-known cat sat.", "", "A dog looked, and then it ran away.", "  ", "cat!"]
DECODING = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
CONFIG = ModelConfig(
    n_layers=1,
    d_model=12,
    d_ff=20,
    n_heads=2,
    d_k=6,
    d_v=5,
    dropout=0.1,
    positions="sinusoid",
    max_positions=16,
    norm="post",
    tie_embeddings=True,
    vocabulary_multiple=8,
)


def tokenization(lang: str) -> Tokenization:
    return Tokenization(
        lang,
        normalize_punctuation=False,
        lowercase=lang == "en",
        tokenizer="moses",
        aggressive_hyphens=False,
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A published bundle of a random model, the prepared corpus that it was made from gone."""
    prepared, draft, place = (tmp_path / name for name in ("prepared", "draft", "bundle"))
    prepared.mkdir()
    draft.mkdir()
    words = Counter(tokenization("en").tokenize(" ".join(LINES)).split())
    merges = learn_bpe(words, 8)
    subword = BpeSubword(merges, build_bpe_vocabulary(Bpe(merges), words))
    subword.save(prepared)
    Tokenizations(src=tokenization("en"), tgt=tokenization("de")).save(prepared)
    for name in ("train.src.ids", "dev.en", "test.de", "counts.json", "measurements.json"):
        (prepared / name).write_text("data", encoding="utf-8")
    torch.manual_seed(2)
    n_rows = -(-subword.n_tokens // 8) * 8 + 8
    model = Transformer(CONFIG, n_rows)
    model.output_matrix.data.mul_(3)
    model.output_matrix.data[EOS_ID] = 0  # some other token is always more probable
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    description = {"config": CONFIG.model_dump(mode="json"), "n_rows": n_rows}
    write_bundle(draft, prepared, description, weights)
    shutil.rmtree(prepared)
    artifacts.publish_directory(draft, place, {"kind": "average"})
    return place


def translate(folder: Path) -> list[str]:
    translations = open_bundle(folder, CPU).translate(LINES, DECODING, lambda _: None)
    return [translation.text for translation in translations]


def test_bundle_holds_what_translating_needs_and_no_data(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()}
    subwords = {"codes.bpe", "vocabulary.tsv"}
    assert names == {WEIGHTS, MODEL, TOKENIZATION, artifacts.MANIFEST, *subwords}


def test_lines_keep_their_places_and_empty_ones_stay_empty(bundle: Path) -> None:
    opened = open_bundle(bundle, CPU)
    translations = opened.translate(LINES, DECODING, lambda _: None)
    assert len(translations) == len(LINES)
    for line, translation in zip(LINES, translations, strict=True):
        (alone,) = opened.translate([line], DECODING, lambda _: None)
        assert translation.text == alone.text
        assert translation.log_prob == pytest.approx(alone.log_prob, abs=1e-4)
        assert "\n" not in translation.text
        if not line.strip():
            assert translation.text == ""
            assert translation.n_tokens == 0
        else:
            assert translation.log_prob <= translation.score < 0
    assert any(translation.text for translation in translations)


def test_long_line_is_its_pieces_translated_one_by_one_and_joined(bundle: Path) -> None:
    opened = open_bundle(bundle, CPU)
    assert opened.max_subwords == CONFIG.max_positions == 16
    pieces = ["the cat ran.", "a dog looked at!", "it ran away?", "the cat sat."]
    alone = opened.translate(pieces, DECODING, lambda _: None)
    assert [translation.n_pieces for translation in alone] == [1] * 4
    others = ["cat!", "", "a dog"]
    expected = opened.translate(others, DECODING, lambda _: None)
    long = " ".join(pieces)
    first, joined, *rest = opened.translate(
        [others[0], long, *others[1:]], DECODING, lambda _: None
    )
    assert [t.text for t in (first, *rest)] == [t.text for t in expected]
    assert [t.n_pieces for t in (first, *rest)] == [1, 0, 1]
    assert joined.text == " ".join(translation.text for translation in alone)
    assert joined.n_pieces == 4
    assert joined.n_tokens == sum(translation.n_tokens for translation in alone)
    for value in ("score", "log_prob"):
        total = sum(getattr(translation, value) for translation in alone)
        assert getattr(joined, value) == pytest.approx(total, abs=1e-3)


def test_bundle_that_claims_to_read_lines_of_any_length_is_not_believed(bundle: Path) -> None:
    opened = open_bundle(bundle, CPU)
    opened.model.config = CONFIG.model_copy(update={"max_positions": 10**9})
    assert opened.max_subwords == MAX_SUBWORDS < 2_000


def test_text_goes_through_the_tokenization_of_each_side(bundle: Path) -> None:
    opened = open_bundle(bundle, CPU)
    assert (opened.src, opened.tgt) == (tokenization("en"), tokenization("de"))
    upper, lower = opened.translate(["THE CAT", "the cat"], DECODING, lambda _: None)
    assert upper.text == lower.text


def test_folder_alone_suffices_wherever_it_lies(bundle: Path, tmp_path: Path) -> None:
    before = translate(bundle)
    elsewhere = tmp_path / "far" / "away"
    elsewhere.parent.mkdir()
    shutil.move(bundle, elsewhere)
    assert translate(elsewhere) == before


def test_folder_that_is_no_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished artifact"):
        open_bundle(tmp_path, CPU)
    draft, other = tmp_path / "draft", tmp_path / "other"
    for missing, says in {
        WEIGHTS: "is no bundle: it has no model.safetensors",
        MODEL: "is no bundle: it has no model.json",
        TOKENIZATION: "was published without tokenization.json",
    }.items():
        shutil.copytree(bundle, draft)
        (draft / missing).unlink()
        (draft / artifacts.MANIFEST).unlink()
        artifacts.publish_directory(draft, other, {"kind": "train"})
        with pytest.raises(UserError, match=f"other {says}"):
            open_bundle(other, CPU)
        shutil.rmtree(other)


@pytest.mark.parametrize("name", [WEIGHTS, MODEL, TOKENIZATION, "vocabulary.tsv", "codes.bpe"])
def test_altered_file_is_refused(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[-3] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} was altered"):
        open_bundle(bundle, CPU)
