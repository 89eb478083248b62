"""A prepared corpus is compared with published facts, and the first difference is found."""

import hashlib
import re
from pathlib import Path

import pytest
from sacremoses import MosesTokenizer
from subword_nmt import apply_bpe
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.runs.published import compare_published
from nmtkit.sources import catalog
from nmtkit.sources.catalog import data_dir
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError

LANGS = ("en", "de")
DEMO = data_dir() / "demo"
HOST = "texts.example"
# The split of the demo corpus, its first line and its number of lines.
TEXTS = {"first": ("train", 0, 50), "second": ("train", 900, 30), "news": ("test", 0, 9)}
TOO_LONG = "word " * 299


def sha1_of(lines: list[str]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()


def blob_of(lines: list[str]) -> str:
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    blob = f"blob {len(content)}\0".encode() + content
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest()


def read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def write_texts(folder: Path) -> dict[str, list[str]]:
    """Write a mirror of the texts and a catalog of them; return their lines by file name."""
    texts = {}
    entries = []
    for name, (split, start, n_lines) in TEXTS.items():
        sides = []
        for lang in LANGS:
            lines = read_lines(DEMO / f"{split}.{lang}")[start : start + n_lines]
            if name == "second":
                lines.append(TOO_LONG)
            file = f"{name}.{lang}"
            texts[file] = lines
            path = folder / "mirror" / HOST / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            entries += [f'[files."{file}"]', f'urls = ["https://{HOST}/{file}"]']
            entries += [f'sha256 = "{sha256}"']
            sides.append(file)
        entries += [f"[corpora.{name}]", 'licence = "any"']
        entries += [f'texts.en-de = {{ src = "{sides[0]}", tgt = "{sides[1]}" }}']
    (folder / "catalog.toml").write_text("\n".join(entries), encoding="utf-8")
    return texts


def load_pipeline(folder: Path, src: str = "en", tgt: str = "de") -> Pipeline:
    document = read_toml(recipes_dir() / "demo.toml")
    document["corpus"] |= {"src_lang": src, "tgt_lang": tgt}
    document["corpus"] |= {"train": ["first", "second"], "dev": "news"}
    document["subword"]["n_merges"] = 100
    document["test"]["sets"] = ["news"]
    settings = Settings(folder / "runs", device="cpu", workers=1, mirror=folder / "mirror")
    return Pipeline(Recipe.model_validate(document), settings, "demo")


def published_facts(texts: dict[str, list[str]], corpus: PreparedCorpus) -> list[str]:
    """Return a table of the catalog with the facts as the original tools compute them."""
    codes = corpus.artifact.path / "codes.bpe"
    with codes.open(encoding="utf-8") as file:
        bpe = apply_bpe.BPE(file)
    subwords = {}
    tokens = {}
    vocabulary = set()
    for name in ("train", "news"):
        for lang in LANGS:
            raw = texts[f"news.{lang}"]
            if name == "train":
                raw = [*texts[f"first.{lang}"], *texts[f"second.{lang}"][:-1]]
            tokenizer = MosesTokenizer(lang)
            tokens[name, lang] = [tokenizer.tokenize(line, return_str=True) for line in raw]
            lines = [bpe.process_line(line) for line in tokens[name, lang]]
            subwords[name, lang] = lines
            if name == "train":
                vocabulary.update(" ".join(lines).split())
    rows = [
        'title = "the original tools"',
        'source = "this test"',
        'langs = ["en", "de"]',
        'train = ["first", "second"]',
        'bpe_version = "0.2"',
        f'codes_sha1 = "{hashlib.sha1(codes.read_bytes(), usedforsecurity=False).hexdigest()}"',
        f"n_subwords = {len(vocabulary)}",
        f'vocabulary_sha1 = "{sha1_of(sorted(vocabulary))}"',
    ]
    for name in ("train", "news"):
        rows += [f"[published.tools.texts.{name}]"]
        if name == "train":
            rows += [f"n_lines = {len(subwords['train', 'en'])}"]
        for lang in LANGS:
            raw = texts[f"news.{lang}"]
            if name == "train":
                raw = [*texts[f"first.{lang}"], *texts[f"second.{lang}"]]
            lines = subwords[name, lang]
            n_tokens = len(" ".join(lines).split()) + len(lines)
            rows += [f'plain.{lang} = "{sha1_of(raw)}"', f'subwords.{lang} = "{sha1_of(lines)}"']
            rows += [f"n_tokens.{lang} = {n_tokens}"]
            rows += [f'tokens_blob.{lang} = "{blob_of(tokens[name, lang])}"']
    # The development set is the set `news`, too.
    rows += ["[published.tools.texts.dev]", f"n_lines = {len(texts['news.en'])}"]
    rows += [f'tokens_blob.{lang} = "{blob_of(tokens["news", lang])}"' for lang in LANGS]
    return ["[published.tools]", *rows]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared corpus, and a catalog with facts about it."""
    monkeypatch.setattr(catalog, "data_dir", lambda: tmp_path)
    texts = write_texts(tmp_path)
    corpus = PreparedCorpus(prepare.run(load_pipeline(tmp_path)))
    with (tmp_path / "catalog.toml").open("a", encoding="utf-8") as file:
        file.write("\n" + "\n".join(published_facts(texts, corpus)))
    catalog._read.cache_clear()
    return tmp_path


def states(pipeline: Pipeline) -> dict[str, str]:
    return {f"{item.text}: {item.fact}": item.state for item in compare_published(pipeline)}


def test_facts_equal_original_tools(workplace: Path) -> None:
    found = states(load_pipeline(workplace))
    assert [fact for fact, state in found.items() if state != "equal"] == []
    assert len(found) == 24


def test_other_direction_is_compared_by_language(workplace: Path) -> None:
    pipeline = load_pipeline(workplace, "de", "en")
    prepare.run(pipeline)
    assert set(states(pipeline).values()) == {"equal"}


CHANGES = {
    r'(plain.de = )"\w+"': "train.de: SHA-1 of plain text",
    r"(n_lines = )\d+": "train: pairs after cleaning",
    r'(bpe_version = )"0.2"': "train: version of BPE",
    r'(codes_sha1 = )"\w+"': "train: SHA-1 of BPE codes",
    r"(n_subwords = )\d+": "train: size of vocabulary",
    r'(vocabulary_sha1 = )"\w+"': "train: SHA-1 of sorted vocabulary",
    r'(subwords.en = )"\w+"': "train.en: SHA-1 of subwords",
    r"(n_tokens.en = )\d+": "train.en: tokens with end symbols",
    r'(tokens_blob.de = )"\w+"': "train.de: git blob of tokens",
}


@pytest.mark.parametrize("pattern", CHANGES)
def test_one_difference_is_found(pattern: str, workplace: Path) -> None:
    path = workplace / "catalog.toml"
    value = '"0.1"' if "version" in pattern else f'"{"0" * 40}"' if '"' in pattern else "7"
    text = re.sub(pattern, rf"\g<1>{value}", path.read_text(encoding="utf-8"), count=1)
    path.write_text(text, encoding="utf-8")
    catalog._read.cache_clear()
    comparisons = list(compare_published(load_pipeline(workplace)))
    different = [item for item in comparisons if item.state == "different"]
    assert [f"{item.text}: {item.fact}" for item in different] == [CHANGES[pattern]]
    assert "{" not in different[0].hint
    assert different[0].hint
    assert all(not item.hint for item in comparisons if item.state != "different")


def test_missing_archive_is_not_compared(workplace: Path) -> None:
    (workplace / "mirror" / HOST / "second.de").unlink()
    (workplace / "mirror" / HOST / "news.en").unlink()
    pipeline = load_pipeline(workplace)
    missing = [fact for fact, state in states(pipeline).items() if state == "not compared"]
    plain_train = [f"train.{lang}: SHA-1 of plain text" for lang in LANGS]
    assert missing[:2] == plain_train
    assert all(fact.startswith("news.") for fact in missing[2:])
    assert len(missing) == 10


def test_unpublished_corpus_is_refused(workplace: Path) -> None:
    pipeline = load_pipeline(workplace)
    corpus = pipeline.recipe.corpus.model_copy(update={"train": ("second", "first")})
    pipeline.recipe = pipeline.recipe.model_copy(update={"corpus": corpus})
    with pytest.raises(UserError, match="nothing is published about the training text") as error:
        list(compare_published(pipeline))
    assert "'" not in str(error.value)


def test_command_fails_on_difference(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    overrides = ['corpus.train=["first", "second"]', 'corpus.dev="news"', "subword.n_merges=100"]
    overrides += ['test.sets=["news"]']
    command = ["verify", "demo", "--published", "--mirror", "mirror"]
    for override in overrides:
        command += ["--set", override]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0
    assert "24 of 24 facts are equal" in result.stdout

    path = workplace / "catalog.toml"
    text = path.read_text(encoding="utf-8").replace('bpe_version = "0.2"', 'bpe_version = "0.1"')
    path.write_text(text, encoding="utf-8")
    catalog._read.cache_clear()
    result = CliRunner().invoke(cli.app, command)
    assert isinstance(result.exception, UserError)
    assert "the first is version of BPE of train" in result.stdout
