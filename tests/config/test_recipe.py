"""Recipes: the paper's values, and the errors of invalid recipes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from nmtkit.config.loading import MAX_TOML_BYTES, bundled_recipes, load_recipe, recipes_dir
from nmtkit.config.recipe import Recipe, SentencePieceConfig
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import source_name
from nmtkit.sources.xml import Tmx
from nmtkit.utils.errors import UserError

BUNDLED = [path.stem for path in bundled_recipes()]
WMT14 = [f"wmt14-{pair}-{size}" for pair in ("en-de", "en-fr") for size in ("base", "big")]

DEMO = (recipes_dir() / "demo.toml").read_text(encoding="utf-8")
WORKING = re.sub("dev_every_steps = .*", "dev_every_steps = 0", DEMO)


@pytest.fixture
def working(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(WORKING, encoding="utf-8", newline="\n")
    return path


def values(recipe: Recipe) -> dict[str, Any]:
    """The values that a recipe sets, by `section.key`."""
    return flat(recipe.model_dump(mode="json", exclude_unset=True))


# The recipes that come with nmtkit


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_recipe_loads_by_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


VALUES_OF_ALL = """
model.n_layers = 6  # section 3.1
model.norm = "post"
model.d_k = 64  # 3.2.2
model.d_v = 64
model.tie_embeddings = true  # 3.4
model.positions = "sinusoid"  # 3.5
model.attention_bias = true  # Table 3 counts biases
corpus.src_lang = "en"  # 5.1
training.src_tokens_per_update = 25_000
training.tgt_tokens_per_update = 25_000
training.batches = "like-length"
training.warmup_steps = 4_000  # 5.3
training.learning_rate_scale = 1.0
training.adam_beta1 = 0.9
training.adam_beta2 = 0.98
training.adam_epsilon = 1e-9
training.label_smoothing = 0.1  # 5.4
test.sets = ["newstest2014", "newstest2013"]  # 6.1
decoding.beam_size = 4
decoding.length_penalty = 0.6
decoding.max_extra_tokens = 50
corpus.dev = "newstest2013"  # 6.2
corpus.lowercase = false  # the text of Table 2 is cased
scoring.lowercase = false
"""
VALUES_BY_SIZE = {  # Table 3, first and last row; sections 5.2 and 6.1
    "base": """
model.d_model = 512
model.d_ff = 2048
model.n_heads = 8
training.max_steps = 100_000
training.checkpoint_every_steps = 1_250  # 500 s: 1,500 does not divide the steps
training.keep_checkpoints = 5
averaging.n_checkpoints = 5
""",
    "big": """
model.d_model = 1024
model.d_ff = 4096
model.n_heads = 16
training.max_steps = 300_000
training.checkpoint_every_steps = 600  # 10 minutes at a step per second
training.keep_checkpoints = 20
averaging.n_checkpoints = 20
""",
}
VALUES_BY_PAIR = {  # section 5.1
    "en-de": """
corpus.tgt_lang = "de"
corpus.train = ["europarl-v7", "commoncrawl", "news-commentary-v9"]
corpus.tokenizer = "moses"
corpus.max_tokens = 80
corpus.max_ratio = 9.0
subword = {method = "bpe", n_merges = 32_000}
model.vocabulary_multiple = 8192
""",
    "en-fr": """
corpus.tgt_lang = "fr"
corpus.train = ["europarl-v7", "commoncrawl", "news-commentary-v9", "un", "giga-fren"]
corpus.tokenizer = "none"
corpus.max_tokens = 250
corpus.max_ratio = 1.5
subword = {method = "sentencepiece", n_tokens = 32_000}
model.vocabulary_multiple = 8
""",
}
DROPOUT = {"wmt14-en-de-big": 0.3}  # 5.4 and 6.1: 0.1 for the other three


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """The values of TOML tables by `section.key`."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        tables = value if isinstance(value, dict) else {"": value}
        for inner, entry in tables.items():
            found[f"{key}.{inner}".rstrip(".")] = entry
    return found


@pytest.mark.parametrize("name", WMT14)
def test_wmt14_recipe_has_values_of_paper(name: str) -> None:
    pair, size = name.removeprefix("wmt14-").rsplit("-", 1)
    paper = flat(tomllib.loads(VALUES_OF_ALL + VALUES_BY_SIZE[size] + VALUES_BY_PAIR[pair]))
    paper["model.dropout"] = DROPOUT.get(name, 0.1)
    recipe = values(load_recipe(name))
    assert {key: recipe.get(key) for key in paper} == paper
    # The averaged checkpoints are evenly spaced, up to the last step.
    assert recipe["training.max_steps"] % recipe["training.checkpoint_every_steps"] == 0


# Invalid recipes: one sentence with the file, the key, the value and the problem

WRONG = """\
model.n_layer=3 -> [model] n_layer = 3: Unknown key (did you mean 'n_layers'?)
corpus.dev={src="a", tgt="b", target="c"} -> [corpus] dev.target = "c"
corpus.train=[{tsv="a", columns=["en", "fr"]}] -> not have both en and de (it has en, fr)
corpus.train=[{tsv="a", columns=["en", "de", "en"]}] -> several candidates for en: en, en
corpus.train=[{src="a/b", tgt="./a//b"}] -> a/b twice
corpus.dev={huggingface="a/b", subset="de-en", split="test", revision="main"} -> "main": String
corpus.dev={src="a"} -> a has no tgt
corpus.tgt_lang=German -> [corpus] tgt_lang = "German": 'German' is not a language code; use de
corpus.src_lang="../../x" -> is not a language code
corpus.src_lang=tree -> 'tree' is not a language code; use one such as pt-BR
corpus.linearization=tags -> a parser has tgt_lang = "tree" and a linearization
corpus.min_tokens=251 -> [corpus]: min_tokens = 251 is more than max_tokens = 250
corpus.tgt_lang=en -> [corpus]: src_lang and tgt_lang are both en
subword={method="sentencepiece", n_tokens=300, protected=["a b"]} -> [subword]: protected has 'a b'
subword.protected=["<b>"] -> ["<b>"]: Unknown key with method = "bpe"
subword.method=bpee -> [subword]: 'bpee' is not a 'method'; use one of 'bpe', 'sentencepiece'
corpus.train=[{jsonl = "a", columns = ["en"]}] -> [corpus] train[0].columns[1]: Field required
corpus.train=7 -> [corpus] train = 7: expected a list
model.n_layers=true -> [model] n_layers = true: Input should be a valid integer
model.dropout=0,3 -> [model] dropout = "0,3": Input should be a valid number
model.d_model=15 -> [model]: d_model = 15 must be even for positions = "sinusoid"
decoding.max_extra_tokens=-1 -> max_extra_tokens = -1: Input should be greater than or equal to 0
decoding.max_extra_tokens=1000000000 -> max_extra_tokens = 1000000000: Input should be less than
training.patience=2 -> [training]: patience = 2 needs a checkpoint at every evaluation, but
training.patience_metric=chrf -> [training]: patience_metric = 'chrf' needs a checkpoint at every
averaging.which=best -> averaging.which = "best" needs training.patience_metric, such as
corpus.train=[{src="a", tgt="b", weight=0}] -> [corpus] train[0].weight = 0: Input should be
corpus.dev={corpus="demo-dev", weight=2} -> demo-dev has weight = 2.0
test.sets=[{src="a", weight=2}] -> a has weight = 2.0, but only [corpus] train
averaging.n_checkpoints=9 -> n_checkpoints = 9 is more than training.keep_checkpoints = 4
test.sets=[{ src = "temporary" }] -> a set cannot be called temporary; set another "name"
test.sets=[{ src = "manifest.json" }] -> a set cannot be called manifest.json; set another
test.sets=[{ src = "Manifest.JSON" }] -> a set cannot be called Manifest.JSON; set another
test.sets=[{ src = "a/test.en" }, { src = "b/test.en" }] -> 2 sets are called test.en
test.sets=[{ src = "Test" }, { src = "test" }] -> the sets Test and test would have the same folder
training.start_from="a\\u0000" -> a path cannot contain a NUL character
subword={method="bundle", path="a\\u0000"} -> a path cannot contain a NUL character
n_layers=3 -> --set takes section.key=value, not 'n_layers=3'
model.n_layers.x=3 -> 'n_layers' is a value, not a section (in --set 'model.n_layers.x=3')
model.n_layers -> --set takes section.key=value, not 'model.n_layers'
model.=3 -> --set takes section.key=value, not 'model.=3'
"""  # an override, and a part of the message
LONG = f'test.sets=[{{ src = "{"x" * 201}" }}]'
MORE = 'model.norm="pre"\nname = "other"'


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        *(line.split(" -> ") for line in WRONG.split("\n")[:-1]),
        (LONG, "xxx..., has 201 characters, more than 200; "),
        (MORE, "--set takes one value"),
    ],
)
def test_invalid_value_is_one_sentence(override: str, expected: str, working: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(str(working), [override])
    message = str(caught.value)
    assert expected in message
    # The reason comes first: an override may be as long as a line of a terminal.
    assert message.index(expected) <= message.rindex("--set")
    if not message.startswith("--set takes"):
        assert re.search(rf" \(in ({re.escape(str(working))} with )?--set [^)]*", message)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("corpus.tgt_lang=de", "a parser has"),
        ("corpus.tokenizer=moses", "the words of trees"),
        ('corpus.dev={src="a", tgt="b"}', "a parser needs trees"),
        ("scoring.metric=bleu", "does not fit"),
    ],
)
def test_invalid_parser_is_refused(override: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        load_recipe("trees-demo", [override])


@pytest.mark.parametrize(
    "override",
    [
        "model.dropout=0.9999999999999999",
        "model.attention_dropout=0.99999",
        "subword.n_merges=9223372036854775807",
        "subword.n_merges=16777217",
        'subword={ method = "sentencepiece", n_tokens = 9223372036854775807 }',
    ],
)
def test_extreme_values_are_refused(override: str, working: Path) -> None:
    with pytest.raises(UserError, match="Input should be less than or equal to"):
        load_recipe(str(working), [override])


@pytest.mark.parametrize(
    ("key", "maximum"),
    [
        ("n_layers", 10_000),
        *((key, 2**18) for key in ("d_model", "d_ff", "n_heads", "d_k", "d_v")),
        *((key, 2**24) for key in ("neighbourhood", "max_positions", "vocabulary_multiple")),
    ],
)
def test_huge_model_is_refused(key: str, maximum: int, working: Path) -> None:
    assert getattr(load_recipe(str(working), [f"model.{key}={maximum}"]).model, key) == maximum
    for value in (maximum + 1, 2**63 - 1):
        message = rf"\[model\] {key} = {value}: Input should be less than or equal to {maximum} "
        with pytest.raises(UserError, match=message):
            load_recipe(str(working), [f"model.{key}={value}"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("n_layers = 2\n", "", "[model] n_layers: Field required"),
        ("d_k = 32", "d_k = = 32", "not valid TOML"),
        ("d_k = 32", "d_v = 32", "not valid TOML"),
        *(
            ("[corpus]\n", f"{nested}\n[corpus]\n", "not valid TOML")
            for nested in (
                f"[{'.'.join('a' * 3_000)}]",
                f"[{'.'.join('a' * 990)}]\nx = 1",
                f"[corpus.{'.'.join('a' * 3_000)}]",
                f"[[{'.'.join('a' * 3_000)}]]",
                f"[a]\n{'.'.join('a' * 3_000)} = 1",
                f"[a]\na = {'[' * 3_000}{']' * 3_000}",
                f"[a]\na = {'{a=' * 3_000}1{'}' * 3_000}",
            )
        ),
    ],
)
def test_invalid_file_is_one_sentence(old: str, new: str, message: str, working: Path) -> None:
    working.write_text(WORKING.replace(old, new), encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=rf"^{working}.*{re.escape(message)}"):
        load_recipe(str(working))


UNUSUAL_VALUES = [
    "true",
    "0",
    "-1",
    "1e400",
    "nan",
    "-inf",
    "9" * 30,
    "9" * 400,
    "9" * 5_000,
    "0x" + "f" * 5_000,
    '""',
    '"\\u0000\\u001b[31m\\n"',
    '"../../x"',
    '"' + "x" * 5_000 + '"',
    "[]",
    "{}",
    "[1]",
    '{ src = "\\u0000" }',
    "{ tsv = 1, columns = [[]] }",
    '{ tmx = "." }',
    "1979-05-27",
    "[" * 100 + "]" * 100,
    "[" * 5_000,
    "{a=" * 5_000,
    "\U0001f600",
]
KEYS = sorted(key for key in flat(tomllib.loads(WORKING)) if "." in key)


@given(
    st.sampled_from([*KEYS, "name", "corpus", "model", "a.b", "corpus.dev.src", "." * 99, ""]),
    st.sampled_from(UNUSUAL_VALUES) | st.text(max_size=20) | st.just('"x"\ny = 3'),
)
@example("model.norm", "\udcff")
@example("model.\udcff", "5")
def test_any_override_works_or_is_refused(key: str, value: str) -> None:
    message = ""
    try:
        load_recipe("demo", [f"{key}={value}"])
    except UserError as error:
        message = str(error)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", message)
    assert len(message) < 1_000


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UserError, match=f"has more than {MAX_TOML_BYTES:,} bytes"):
        load_recipe(str(path))


# Overrides


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        (" training.max_steps = 8_000", "training.max_steps", 8000),
        ("corpus.max_ratio=3", "corpus.max_ratio", 3.0),
        ("model.tie_embeddings=false", "model.tie_embeddings", False),
        ("model.norm=pre", "model.norm", "pre"),
        ('model.norm="pre"', "model.norm", "pre"),
        ("description=a = b", "description", "a = b"),
        ("description=", "description", ""),
        ('corpus.dev={src="a.en", tgt="a.de"}', "corpus.dev", {"src": "a.en", "tgt": "a.de"}),
    ],
)
def test_last_override_counts(override: str, key: str, value: object, working: Path) -> None:
    before = values(load_recipe(str(working)))
    after = values(load_recipe(str(working), [f"{key}=5", override]))
    assert {k: v for k, v in after.items() if k not in before or before[k] != v} == {key: value}
    assert working.read_text(encoding="utf-8") == WORKING


# Files of one's own


def test_files_relative_to_recipe(working: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = '["demo-train", { src = "my/a.en", tgt = "/b.de" }, { tmx = "memory.tmx" }]'
    text = WORKING.replace('["demo-train"]', sources)
    text = text.replace('"demo-dev"', '{ src = "dev.en", tgt = "dev.de" }')
    working.write_text(text, encoding="utf-8", newline="\n")
    folder = working.parent
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    for name in (str(working), "../small.toml"):
        corpus = load_recipe(name).corpus
        _, pair, memory = corpus.train
        assert pair == FilePair(src=f"{folder}/my/a.en", tgt="/b.de")
        assert memory == Tmx(tmx=f"{folder}/memory.tmx")
        assert corpus.dev == FilePair(src=f"{folder}/dev.en", tgt=f"{folder}/dev.de")


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
def test_name_of_two_files(src: str, tgt: str, name: str) -> None:
    assert source_name(FilePair(src=src, tgt=tgt)) == name
    assert source_name(FilePair(name="mine", src=src, tgt=tgt)) == "mine"


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
def test_missing_recipe_names_similar(
    typed: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cust.toml").touch()
    with pytest.raises(UserError) as refused:
        load_recipe(typed)
    assert f"did you mean {near}" in str(refused.value)


@pytest.mark.parametrize(
    "protected", [["a b"], [""], ["\u2581"], ["x", "x"], ["\n"], ["x" * 101]], ids=repr
)
def test_invalid_protected_tokens_are_refused(protected: list[str]) -> None:
    values = {"method": "sentencepiece", "n_tokens": 300, "protected": protected}
    with pytest.raises(ValidationError):
        SentencePieceConfig.model_validate(values)


def test_protected_tokens_are_off_in_fingerprints() -> None:
    config = SentencePieceConfig(method="sentencepiece", n_tokens=300)
    assert "protected" not in config.model_dump(exclude_defaults=True)
