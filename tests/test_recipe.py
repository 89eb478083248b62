"""Recipes: the paper's values, and what a user reads when a recipe is wrong."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmtkit.errors import UserError
from nmtkit.recipe import Recipe
from nmtkit.recipe_file import MAX_BYTES, bundled_recipes, load_recipe, override_decoding
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import name_of
from nmtkit.sources.table import Tsv
from nmtkit.sources.tmx import Tmx
from nmtkit.store import MANIFEST, MEASUREMENTS, TEMPORARY

BUNDLED = [path.stem for path in bundled_recipes()]
WMT14 = [f"wmt14-{pair}-{size}" for pair in ("en-de", "en-fr") for size in ("base", "big")]

WORKING = """\
name = "small"
description = "a recipe that tests break"
corpus = { src_lang = "en", tgt_lang = "de", train = ["demo-train"], dev = "demo-dev", \
normalize_punctuation = false, lowercase = false, tokenizer = "moses", aggressive_hyphens = false, \
min_tokens = 1, max_tokens = 80, max_ratio = 9.0, drop_duplicates = false }
subword = { method = "bpe", n_merges = 100 }

[model]
n_layers = 3
d_model = 16
d_ff = 32
n_heads = 2
d_k = 8
d_v = 4
dropout = 0.1
positions = "sinusoid"
max_positions = 64
norm = "post"
tie_embeddings = true
vocabulary_multiple = 8

[training]
seed = 1
max_steps = 100
src_tokens_per_update = 500
tgt_tokens_per_update = 600
warmup_steps = 10
learning_rate_scale = 1.0
adam_beta1 = 0.9
adam_beta2 = 0.98
adam_epsilon = 1e-9
label_smoothing = 0.1
checkpoint_every_steps = 20
keep_checkpoints = 5
dev_every_steps = 0

[averaging]
n_checkpoints = 5

[decoding]
beam_size = 4
length_penalty = 0.6
max_extra_tokens = 50

[test]
sets = ["demo-test"]

[scoring]
lowercase = false
normalize_punctuation = false
"""


@pytest.fixture
def working(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(WORKING, encoding="utf-8", newline="\n")
    return path


def values(recipe: Recipe) -> dict[str, Any]:
    """Every value that a recipe gives by `section.key`."""
    flat: dict[str, Any] = {}
    for key, value in recipe.model_dump(mode="json", exclude_unset=True).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": inner_value for inner, inner_value in value.items()}
        else:
            flat[key] = value
    return flat


# The recipes that come with nmtkit


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_recipe_loads_by_its_file_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


OF_EVERY_MODEL: dict[str, dict[str, Any]] = {  # section of the paper: values
    "3.1": {"model.n_layers": 6, "model.norm": "post"},
    "3.2.2": {"model.d_k": 64, "model.d_v": 64},
    "3.4": {"model.tie_embeddings": True},
    "3.5": {"model.positions": "sinusoid"},
    "5.1": {
        "corpus.src_lang": "en",
        "training.src_tokens_per_update": 25_000,
        "training.tgt_tokens_per_update": 25_000,
        "training.batches": "like-length",
    },
    "Table 3 counts biases": {"model.attention_bias": True},
    "5.3": {
        "training.warmup_steps": 4_000,
        "training.learning_rate_scale": 1.0,
        "training.adam_beta1": 0.9,
        "training.adam_beta2": 0.98,
        "training.adam_epsilon": 1e-9,
    },
    "5.4": {"training.label_smoothing": 0.1},
    "6.1": {
        "test.sets": ["newstest2014", "newstest2013"],
        "decoding.beam_size": 4,
        "decoding.length_penalty": 0.6,
        "decoding.max_extra_tokens": 50,
    },
    "6.2": {"corpus.dev": "newstest2013"},
    "Table 2 is of cased text": {"corpus.lowercase": False, "scoring.lowercase": False},
}
OF_A_SIZE: dict[str, dict[str, Any]] = {  # Table 3, first and last row; sections 5.2 and 6.1
    "base": {
        "model.d_model": 512,
        "model.d_ff": 2048,
        "model.n_heads": 8,
        "training.max_steps": 100_000,
        "training.checkpoint_every_steps": 1_250,  # 500 s: 1,500 do not divide the steps
        "training.keep_checkpoints": 5,
        "averaging.n_checkpoints": 5,
    },
    "big": {
        "model.d_model": 1024,
        "model.d_ff": 4096,
        "model.n_heads": 16,
        "training.max_steps": 300_000,
        "training.checkpoint_every_steps": 10 * 60 / 1.0,
        "training.keep_checkpoints": 20,
        "averaging.n_checkpoints": 20,
    },
}
OF_A_PAIR: dict[str, dict[str, Any]] = {  # section 5.1
    "en-de": {
        "corpus.tgt_lang": "de",
        "corpus.train": ["europarl-v7", "commoncrawl", "news-commentary-v9"],
        "corpus.tokenizer": "moses",
        "corpus.max_tokens": 80,
        "corpus.max_ratio": 9.0,
        "subword.method": "bpe",
        "subword.n_merges": 32_000,
        "model.vocabulary_multiple": 8192,
    },
    "en-fr": {
        "corpus.tgt_lang": "fr",
        "corpus.train": ["europarl-v7", "commoncrawl", "news-commentary-v9", "un", "giga-fren"],
        "corpus.tokenizer": "none",
        "corpus.max_tokens": 250,
        "corpus.max_ratio": 1.5,
        "subword.method": "sentencepiece",
        "subword.n_tokens": 32_000,
        "model.vocabulary_multiple": 8,
    },
}
DROPOUT = {"wmt14-en-de-big": 0.3}  # 5.4 and 6.1: 0.1 for the other three


@pytest.mark.parametrize("name", WMT14)
def test_a_wmt14_recipe_holds_the_values_of_the_paper(name: str) -> None:
    pair, size = name.removeprefix("wmt14-").rsplit("-", 1)
    paper: dict[str, Any] = {"model.dropout": DROPOUT.get(name, 0.1)}
    for of_section in OF_EVERY_MODEL.values():
        paper |= of_section
    paper |= OF_A_SIZE[size] | OF_A_PAIR[pair]
    recipe = values(load_recipe(name))
    assert {key: recipe.get(key) for key in paper} == paper
    # What is averaged is evenly spaced, up to the last step.
    assert recipe["training.max_steps"] % recipe["training.checkpoint_every_steps"] == 0


def differing(one: str, other: str) -> set[str]:
    first, second = values(load_recipe(one)), values(load_recipe(other))
    keys = first.keys() | second.keys()
    assert first.items() != second.items()
    return {key for key in keys if first.get(key) != second.get(key)} - {"name", "description"}


def test_base_and_big_differ_in_what_table_3_and_section_6_1_name() -> None:
    assert differing("wmt14-en-fr-base", "wmt14-en-fr-big") == set(OF_A_SIZE["big"])
    assert differing("wmt14-en-de-base", "wmt14-en-de-big") == {*OF_A_SIZE["big"], "model.dropout"}


def test_the_text_of_the_papers_own_code_differs_in_one_corpus() -> None:
    assert differing("wmt14-en-de-base", "wmt14-en-de-base-nc11") == {"corpus.train"}
    v9, v11 = (load_recipe(f"wmt14-en-de-base{of}").corpus.train for of in ("", "-nc11"))
    assert [new for old, new in zip(v9, v11, strict=True) if old != new] == ["news-commentary-v11"]


def test_english_german_and_english_french_differ_in_text_subwords_and_dropout() -> None:
    of_pair = {*OF_A_PAIR["en-de"], *OF_A_PAIR["en-fr"]}
    assert differing("wmt14-en-de-base", "wmt14-en-fr-base") == of_pair
    assert differing("wmt14-en-de-big", "wmt14-en-fr-big") == {*of_pair, "model.dropout"}


# Recipes that are wrong: one sentence with the file, the key, the value and what is wrong

WRONG: dict[str, tuple[str, tuple[str, ...]]] = {  # override, what the message holds
    "unknown key": ("model.n_layer=3", ("[model] n_layer = 3: Unknown key", "'n_layers'")),
    "unknown key of files": (
        'corpus.dev={src="a", tgt="b", target="c"}',
        ('[corpus] dev.target = "c"', "'tgt'"),
    ),
    "columns of other languages": (
        'corpus.train=[{tsv="a", columns=["en", "fr"]}]',
        ("columns of a has not both en and de; it has en, fr; ", "name one column en and one de"),
    ),
    "a column twice": (
        'corpus.train=[{tsv="a", columns=["en", "de", "en"]}]',
        ("columns of a has en more than once",),
    ),
    "one file for both sides": (
        'corpus.train=[{src="a/b", tgt="./a//b"}]',
        ("src and tgt of a source are both a/b; ",),
    ),
    "a branch for a commit": (
        'corpus.dev={huggingface="wmt/wmt14", subset="de-en", split="test", revision="main"}',
        ('[corpus] dev.revision = "main"', "[0-9a-f]{40}"),
    ),
    "boolean for a number": ("model.n_layers=true", ("n_layers = true", "valid integer")),
    "decimal comma": ("model.dropout=0,3", ('[model] dropout = "0,3"', "valid number")),
    "half a pair of files": ('corpus.dev={src="a"}', ("a has no tgt; only a test set needs none",)),
    "output without end": (
        "decoding.max_extra_tokens=1000000000",
        ("[decoding] max_extra_tokens = 1000000000", "less than or equal to 1000"),
    ),
    "no code of a language": (
        "corpus.tgt_lang=German",
        ('[corpus] tgt_lang = "German"', "'German' is not the code of a language; give one"),
    ),
    "trees as a source": (
        "corpus.src_lang=tree",
        ('[corpus] src_lang = "tree"', "'tree' is not the code of a language; give one"),
    ),
    "no such method": (
        "subword.method=bpee",
        ("[subword]: Input tag 'bpee'", "'method'", "'bpe', 'sentencepiece'"),
    ),
    "bounds crossed": (
        "corpus.min_tokens=99",
        ("[corpus]: min_tokens = 99 is more than max_tokens = 80",),
    ),
    "one language": ("corpus.tgt_lang=en", ("[corpus]: src_lang and tgt_lang are both en",)),
    "odd width": ("model.d_model=15", ("[model]: d_model = 15 is odd", '"sinusoid"')),
    "patience between checkpoints": (
        "training.patience=2",
        ("[training]: patience = 2 needs a checkpoint at each evaluation", "= 0 is not", "= 20"),
    ),
    "too many averaged": (
        "averaging.n_checkpoints=6",
        ("averaging.n_checkpoints = 6", "training.keep_checkpoints = 5"),
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_value_is_one_sentence_with_file_key_and_value(mistake: str, working: Path) -> None:
    override, fragments = WRONG[mistake]
    with pytest.raises(UserError) as caught:
        load_recipe(str(working), [override])
    message = str(caught.value)
    assert message.startswith(f"{working} --set {override}: ")
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message.removeprefix(f"{working} --set {override}: ")


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("n_layers", 10_000),
        *((key, 2**18) for key in ("d_model", "d_ff", "n_heads", "d_k", "d_v")),
        *((key, 2**24) for key in ("neighbourhood", "max_positions", "vocabulary_multiple")),
    ],
)
def test_a_model_that_no_machine_holds_is_refused(key: str, most: int, working: Path) -> None:
    assert getattr(load_recipe(str(working), [f"model.{key}={most}"]).model, key) == most
    for value in (most + 1, 2**63 - 1):
        said = rf"\[model\] {key} = {value}: Input should be less than or equal to {most}$"
        with pytest.raises(UserError, match=said):
            load_recipe(str(working), [f"model.{key}={value}"])


def test_a_name_with_a_slash_is_a_path(
    working: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    working.rename("recipe")
    assert load_recipe("./recipe").name == "small"
    with pytest.raises(UserError, match=r"there is no recipe file '\./demo'"):
        load_recipe("./demo")


Edit = Callable[[str], str]
WRONG_FILES: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "missing key": (
        lambda text: text.replace("n_layers = 3\n", ""),
        ("[model] n_layers: Field required",),
    ),
    "missing keys and sections": (
        lambda text: (
            text[: text.index("[decoding]")].replace("n_layers = 3\n", "").replace("seed = 1\n", "")
        ),
        ("[model] n_layers, [training] seed, decoding, test, scoring: Fields required",),
    ),
    "no TOML": (
        lambda text: text.replace("d_k = 8", "d_k = = 8"),
        ("not valid TOML", "line 11", "fix the file"),
    ),
    "a key twice": (
        lambda text: text.replace("d_k = 8", "d_v = 8"),
        ("not valid TOML", "line 12", "fix the file"),
    ),
}


@pytest.mark.parametrize("mistake", WRONG_FILES)
def test_a_wrong_file_is_one_sentence_with_file_and_key(mistake: str, working: Path) -> None:
    edit, fragments = WRONG_FILES[mistake]
    working.write_text(edit(WORKING), encoding="utf-8", newline="\n")
    with pytest.raises(UserError) as caught:
        load_recipe(str(working))
    message = str(caught.value)
    assert message.startswith(str(working))
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


ODD_VALUES = [
    *("true", "0", "-1", "1e400", "nan", "-inf", "9" * 30, "9" * 400, "9" * 5_000),
    *("0x" + "f" * 5_000, '""', '"\\u0000\\u001b[31m\\n"', '"../../x"', '"' + "x" * 5_000 + '"'),
    *("[]", "{}", "[1]", '{ src = "\\u0000" }', "{ tsv = 1, columns = [[]] }", '{ tmx = "." }'),
    *("1979-05-27", "[" * 100 + "]" * 100, "[" * 5_000, "{a=" * 5_000, "\U0001f600"),
]
KEYS = sorted(f"{name}.{key}" for name, section in tomllib.loads(WORKING).items()
              if isinstance(section, dict) for key in section)  # fmt: skip


@given(
    st.sampled_from([*KEYS, "name", "corpus", "model", "a.b", "corpus.dev.src", "." * 99, ""]),
    st.sampled_from(ODD_VALUES) | st.text(max_size=20) | st.just('"x"\ny = 3'),
)
@example("model.norm", "\udcff")
@example("model.\udcff", "5")
def test_any_override_works_or_gets_one_sentence(key: str, value: str) -> None:
    _works_or_says_one_sentence("demo", [f"{key}={value}"])


def _works_or_says_one_sentence(recipe: str, overrides: list[str]) -> None:
    message = ""
    try:
        load_recipe(recipe, overrides)
    except UserError as error:
        message = str(error)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", message)
    assert len(message) < 1_000


def test_a_value_with_more_toml_behind_it_is_refused() -> None:
    with pytest.raises(UserError, match=r"--set takes one value, not several"):
        load_recipe("demo", ['model.norm="pre"\nname = "other"'])


@pytest.mark.parametrize("lang", ["../../x", "src.ids", "e\\u0000n", ""])
def test_a_language_cannot_name_another_file(lang: str) -> None:
    with pytest.raises(UserError, match=r"src_lang = .* is not the code of a language; give"):
        load_recipe("demo", [f'corpus.src_lang="{lang}"'])


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UserError, match=f"has more than {MAX_BYTES:,} bytes"):
        load_recipe(str(path))


def test_a_file_that_is_not_utf8_is_named_with_the_byte(working: Path) -> None:
    working.write_bytes("# Übersetzung\n".encode("latin-1") + WORKING.encode())
    with pytest.raises(UserError, match=r"small\.toml is not UTF-8 text: byte 0xdc at offset 2"):
        load_recipe(str(working))


@pytest.mark.parametrize("name", ["no/such/place", "absent.toml"])
def test_a_path_without_a_file_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"no recipe file '{name}'"):
        load_recipe(name)


# Overrides


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("model.n_layers=2", "model.n_layers", 2),
        (" model.n_layers = 2", "model.n_layers", 2),
        ("training.max_steps=8_000", "training.max_steps", 8000),
        ("model.dropout=0.25", "model.dropout", 0.25),
        ("corpus.max_ratio=3", "corpus.max_ratio", 3.0),
        ("model.tie_embeddings=false", "model.tie_embeddings", False),
        ("model.norm=pre", "model.norm", "pre"),
        ('model.norm="pre"', "model.norm", "pre"),
        ("description=a = b", "description", "a = b"),
        ("description=", "description", ""),
        ('corpus.train=["one", "two"]', "corpus.train", ["one", "two"]),
        ('corpus.dev={src="a.en", tgt="a.de"}', "corpus.dev", {"src": "a.en", "tgt": "a.de"}),
        (
            'subword={method="sentencepiece", n_tokens=99}',
            "subword",
            {"method": "sentencepiece", "n_tokens": 99},
        ),
    ],
)
def test_an_override_sets_one_value_and_leaves_the_file_alone(
    override: str, key: str, value: object, working: Path
) -> None:
    before = values(load_recipe(str(working)))
    after = values(load_recipe(str(working), [override]))
    changed = {key: value}
    if isinstance(value, dict) and "." not in key:
        changed = {f"{key}.{inner}": inner_value for inner, inner_value in value.items()}
    assert {k: v for k, v in after.items() if k not in before or before[k] != v} == changed
    assert working.read_text(encoding="utf-8") == WORKING


def test_the_last_override_of_a_key_counts(working: Path) -> None:
    recipe = load_recipe(str(working), ["model.d_ff=7", "model.d_v=5", "model.d_ff=9"])
    assert (recipe.model.d_ff, recipe.model.d_v) == (9, 5)


@pytest.mark.parametrize("override", ["model.n_layers", "=3", ".n_layers=3", "model.=3"])
def test_an_override_without_key_or_value_is_refused(override: str, working: Path) -> None:
    with pytest.raises(UserError, match=r"--set takes section\.key=value, not '"):
        load_recipe(str(working), [override])


def test_an_override_inside_a_value_is_refused(working: Path) -> None:
    with pytest.raises(UserError, match="'n_layers' is a value, not a section"):
        load_recipe(str(working), ["model.n_layers.x=3"])


def test_decoding_of_a_bundle_is_overridden_without_a_recipe() -> None:
    of_paper = load_recipe("wmt14-en-de-base").decoding
    assert override_decoding(of_paper) == of_paper
    changed = override_decoding(of_paper, 9, 0.0)
    assert changed == of_paper.model_copy(update={"beam_size": 9, "length_penalty": 0.0})
    with pytest.raises(UserError, match=r"^settings of a bundle: .* beam_size = 0: .* greater"):
        override_decoding(of_paper, beam_size=0)
    with pytest.raises(UserError, match=r"\[decoding\] length_penalty = NaN: .* finite number"):
        override_decoding(of_paper, length_penalty=float("nan"))


# Files of one's own


def test_files_are_found_beside_the_recipe_that_names_them(
    working: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WORKING.replace('["demo-train"]', '["demo-train", { src = "my/a.en", tgt = "/b.de" }]')
    text = text.replace('"demo-dev"', '{ src = "dev.en", tgt = "dev.de" }')
    working.write_text(text, encoding="utf-8", newline="\n")
    folder = working.parent
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    for name in (str(working), "../small.toml"):
        corpus = load_recipe(name).corpus
        assert corpus.train == ("demo-train", FilePair(src=f"{folder}/my/a.en", tgt="/b.de"))
        assert corpus.dev == FilePair(src=f"{folder}/dev.en", tgt=f"{folder}/dev.de")


def test_one_file_of_both_sides_is_found_beside_the_recipe_too(working: Path) -> None:
    tsv, tmx = '{ tsv = "my/a.tsv", columns = ["de", "en"] }', '{ tmx = "/memory.tmx" }'
    text = WORKING.replace('["demo-train"]', f"[{tsv}, {tmx}]")
    working.write_text(text, encoding="utf-8", newline="\n")
    assert load_recipe(str(working)).corpus.train == (
        Tsv(tsv=f"{working.parent}/my/a.tsv", columns=("de", "en")),
        Tmx(tmx="/memory.tmx"),
    )


# Names of test sets


@pytest.mark.parametrize("name", [TEMPORARY, MANIFEST, MEASUREMENTS])
def test_a_test_set_takes_no_name_that_an_artifact_uses(name: str) -> None:
    with pytest.raises(UserError, match=f"a set cannot be called {name}; give it another"):
        load_recipe("demo", [f'test.sets=[{{ src = "{name}" }}]'])
    load_recipe("demo", [f'test.sets=[{{ src = "{name}", name = "other" }}]'])


@pytest.mark.parametrize("length", [201, 300])
def test_a_test_set_takes_no_name_that_is_too_long_for_a_file(length: int) -> None:
    said = f'xxx..., has {length} characters, more than 200; give it another "name"$'
    with pytest.raises(UserError, match=said):
        load_recipe("demo", [f'test.sets=[{{ src = "{"x" * length}" }}]'])
    with pytest.raises(UserError, match=said):
        load_recipe("demo", [f'test.sets=[{{ src = "a", name = "{"x" * length}" }}]'])
    load_recipe("demo", [f'test.sets=[{{ src = "{"x" * 300}", name = "{"x" * 200}" }}]'])


def test_test_sets_have_names_of_their_own() -> None:
    with pytest.raises(UserError, match=r'sets has 2 called test\.en; give one a "name"'):
        load_recipe("demo", ['test.sets=[{ src = "a/test.en" }, { src = "b/test.en" }]'])


@pytest.mark.parametrize(
    ("src", "tgt", "name"),
    [
        ("a/test.en", "a/test.de", "test.en-de"),
        ("test.en.gz", "test.de.gz", "test.en-de.gz"),
        ("source.txt", "target.txt", "source-target.txt"),
        ("en/test", "de/test", "test"),
        ("test.en", "reference", "test.en-reference"),
        ("a.en", "b.de", "a.en-b.de"),
    ],
)
def test_two_files_are_called_by_both_of_their_names(src: str, tgt: str, name: str) -> None:
    assert name_of(FilePair(src=src, tgt=tgt)) == name
    assert name_of(FilePair(name="mine", src=src, tgt=tgt)) == "mine"


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("cust", "'./cust.toml'"),
        ("./csut.toml", "'./cust.toml'"),
        ("dmo", "'demo'"),
        ("demo.toml", "'demo'"),
        ("sub/cust.toml", "'./cust.toml'"),
    ],
)
def test_a_recipe_that_is_not_there_is_told_with_the_nearest_one(
    typed: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cust.toml").touch()
    with pytest.raises(UserError) as refused:
        load_recipe(typed)
    assert f"did you mean {near}" in str(refused.value)
