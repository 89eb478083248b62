"""The recipes of IWSLT, from small texts in the formats of their archives."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packed import tarred
from sacremoses import MosesTokenizer

from nmtkit.corpus.ids import Ids
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.subword import load_subword
from nmtkit.evaluation.bleu import multi_bleu
from nmtkit.sources import catalog
from nmtkit.sources.catalog import data_dir
from nmtkit.store.artifacts import open_directory
from system.command import done, nmtkit, read_lines, sentence
from system.server import serving

DEMO = data_dir() / "demo"
TED_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
N_TALKS = 12
SENTENCES_PER_TALK = 20
DEV_EVERY = 23

STAGES = ("prepare", "train", "average", "translate", "score")

# A small model and two updates.
TINY = ["model.n_layers=1", "model.d_model=16", "model.d_ff=24", "model.n_heads=2", "model.d_k=8"]
TINY += ["model.d_v=8", "subword.n_merges=150", "training.max_steps=2"]
TINY += ["training.src_tokens_per_update=300", "training.tgt_tokens_per_update=300"]
TINY += ["training.checkpoint_every_steps=1", "training.dev_every_steps=1"]
TINY += ["decoding.beam_size=2", "decoding.max_extra_tokens=2"]


def overridden(*overrides: str) -> list[str]:
    return [argument for override in overrides for argument in ("--set", override)]


def demo_lines(split: str, lang: str) -> list[str]:
    return read_lines(DEMO / f"{split}.{lang}")


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def talk_facts(lang: str, number: int) -> list[str]:
    """The lines about a talk. Its title and description are sentences to the script."""
    return [
        f"<url>http://talks.example/{number}</url>",
        "<keywords>Talks, TED</keywords>",
        f"<talkid>{number}</talkid>",
        f"<title>Talk {number}: {lang}</title>",
        f"<description>TED Talk: A talk of {lang}.</description>",
    ]


def training_talks(lang: str) -> list[str]:
    lines = []
    sentences = iter(demo_lines("train", lang))
    for number in range(N_TALKS):
        lines += talk_facts(lang, number)
        for position in range(SENTENCES_PER_TALK):
            line = next(sentences)
            # Several sentences of a line, so that a full stop stands before a capital letter.
            if position % 3 == 0:
                line += f" {next(sentences)}"
            # Pairs that cleaning drops: too long, too different in length, empty on one side.
            if position == 5:
                line = "word " * 176
            if position == 6 and lang == "de":
                line += " und so weiter" * 9
            if position == 7 and lang == "en":
                line = ""
            lines.append(line)
    return lines


def set_talks(lang: str, number: int) -> list[str]:
    """A development or test set: its kind of root does not matter to the script."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", '<refset setid="any">']
    lines += [f'<doc docid="{number}" genre="lectures">', *talk_facts(lang, number)]
    sentences = demo_lines("test", lang)[10 * number :][:10]
    sentences[0] += " It\u2019s 5 &amp; 6."
    lines += [f'<seg id="{i}"> {text} </seg>' for i, text in enumerate(sentences, start=1)]
    return [*lines, "</doc>", "</refset>", "</mteval>"]


def ted_archive() -> bytes:
    members = {"de-en/README": b"Talks\n", "de-en/train.en": b"more\n"}
    for lang in ("de", "en"):
        members[f"de-en/train.tags.de-en.{lang}"] = plain(training_talks(lang))
        for number, name in enumerate(TED_SETS):
            path = f"de-en/IWSLT14.{name}.de-en.{lang}.xml"
            members[path] = plain(set_talks(lang, number))
    return tarred(members, "gz")


def tokens_of(lines: list[str], lang: str) -> list[str]:
    """The lines as tokenizer.perl and lowercase.perl write them, without spaces at their ends."""
    tokenizer = MosesTokenizer(lang)
    return [" ".join(tokenizer.tokenize(line, return_str=True).lower().split()) for line in lines]


def prepared_talks() -> tuple[list[tuple[str, str]], list[int]]:
    """The clean training pairs as prepare-iwslt14.sh leaves them, and their places in the text."""
    raw = {}
    for lang in ("de", "en"):
        lines = []
        for line in training_talks(lang):
            if not re.search("<url>|<talkid>|<keywords>", line):
                lines.append(re.sub("</?(title|description)>", "", line))
        raw[lang] = lines
    pairs = []
    places = []
    sides = zip(tokens_of(raw["de"], "de"), tokens_of(raw["en"], "en"), strict=True)
    for place, (de, en) in enumerate(sides):
        shorter, longer = sorted((len(de.split()), len(en.split())))
        if shorter >= 1 and longer <= 175 and longer <= 1.5 * shorter:
            pairs.append((de, en))
            places.append(place)
    return pairs, places


@pytest.fixture
def ted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a catalog whose archive of talks is on a server of this machine."""
    monkeypatch.setattr(catalog, "data_dir", lambda: tmp_path)
    with serving(ted_archive()) as url:
        text = (DEMO.parent / "catalog.toml").read_text(encoding="utf-8")
        address = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
        assert text.count(address) == 1
        text = text.replace(address, url.replace("a.bin", "de-en.tgz"))
        (tmp_path / "catalog.toml").write_text(text, encoding="utf-8")
        catalog._read.cache_clear()
        yield tmp_path
    catalog._read.cache_clear()


@pytest.mark.parametrize(
    "langs", [("de", "en"), pytest.param(("en", "de"), marks=pytest.mark.slow)]
)
def test_iwslt14_equals_fairseqs_steps(langs: tuple[str, str], ted_folder: Path) -> None:
    recipe = f"iwslt14-{'-'.join(langs)}"
    command = ("run", recipe, *overridden(*TINY))
    done(nmtkit(ted_folder, *command))
    stages = {
        stage: next((ted_folder / "runs" / stage).glob("*/manifest.json")).parent
        for stage in STAGES
    }

    # The clean text without every 23rd pair, which is the development set.
    corpus = PreparedCorpus(open_directory(stages["prepare"]))
    subword = load_subword(corpus.artifact)
    pairs, places = prepared_talks()
    train = [pair for number, pair in enumerate(pairs, start=1) if number % DEV_EVERY]
    assert 5 < len(pairs) - len(train) == corpus.counts().sizes["dev"].pairs
    for side, lang in zip(SIDES, langs, strict=True):
        ids = Ids.open(stages["prepare"] / f"train.{side}")
        sentences = [
            subword.decode(ids.ids[ids.offsets[i] : ids.offsets[i + 1]].tolist())
            for i in range(len(ids))
        ]
        assert sentences == [pair[lang == "en"] for pair in train]
        dev = [
            re.sub("</?(title|description)>", "", line)
            for line in training_talks(lang)
            if not re.search("<url>|<talkid>|<keywords>", line)
        ]
        assert corpus.dev_lines(side) == [
            dev[place] for place in places[DEV_EVERY - 1 :: DEV_EVERY]
        ]

    # The test set is that of five files, with entities as they are and straight apostrophes.
    folder = stages["translate"] / "iwslt14-test"
    source, reference = (read_lines(folder / f"{name}.txt") for name in ("source", "reference"))
    assert len(source) == len(reference) == 50
    en = source if langs[0] == "en" else reference
    assert en[0] == f"{demo_lines('test', 'en')[0]} It's 5 &amp; 6."

    # Tokenized BLEU is that of the model's tokens and of the reference, lower-cased as tokens.
    scores = json.loads((stages["score"] / "scores.json").read_text(encoding="utf-8"))
    bleu = scores["iwslt14-test"]["tokenized_bleu"]
    tokens = read_lines(folder / "tokens.txt")
    assert bleu["score"] == multi_bleu(tokens, tokens_of(reference, langs[1]))["score"]
    assert "lower-cased after tokenization" in bleu["how"]

    result = nmtkit(ted_folder, "verify", recipe, "--published", *overridden(*TINY))
    assert "differs from all published ones" in sentence(result)
    assert "git blob of tokens" in result.out


def test_first_archive_is_recorded(ted_folder: Path) -> None:
    prepare = ("prepare", "iwslt14-de-en", *overridden("subword.n_merges=20"))
    done(nmtkit(ted_folder, *prepare))
    [record] = (ted_folder / "runs" / "downloads").rglob("*.sha256")
    archive = record.with_suffix("")
    assert record.read_text() == hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.write_bytes(tarred({"de-en/README": b""}, "gz"))
    other = nmtkit(ted_folder, "prepare", "iwslt14-en-de", "--set", "subword.n_merges=20")
    assert "as recorded when" in sentence(other)


def test_iwslt15_scores_international_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "data_dir", lambda: tmp_path)
    text = (DEMO.parent / "catalog.toml").read_text(encoding="utf-8")
    for split, name, n_lines in (
        ("train", "train", 90),
        ("dev", "tst2012", 11),
        ("test", "tst2013", 7),
    ):
        for side, lang in (("en", "en"), ("de", "vi")):
            tokenizer = MosesTokenizer(side)
            lines = demo_lines(split, side)[:n_lines]
            body = plain([tokenizer.tokenize(line, return_str=True) for line in lines])
            path = f"nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/{name}.{lang}"
            file = tmp_path / "mirror" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
            entry = re.compile(
                rf'("https://{re.escape(path)}"\]\nn_bytes = )[\d_]+(\nsha256 = )"[0-9a-f]+"'
            )
            sha256 = hashlib.sha256(body).hexdigest()
            text, n_entries = entry.subn(rf'\g<1>{len(body)}\g<2>"{sha256}"', text)
            assert n_entries == 1, path
    (tmp_path / "catalog.toml").write_text(text, encoding="utf-8", newline="\n")
    catalog._read.cache_clear()
    command = ("run", "iwslt15-en-vi", "--mirror", "mirror")
    done(nmtkit(tmp_path, *command, *overridden(*TINY, "averaging.n_checkpoints=2")))
    [scores_path] = (tmp_path / "runs").rglob("scores.json")
    scores = json.loads(scores_path.read_text(encoding="utf-8"))["iwslt15-tst2013"]
    assert "tok:intl" in scores["sacrebleu"]["signature"]
    assert scores["test_set"]["lines"] == 7
    catalog._read.cache_clear()


@pytest.mark.skipif(shutil.which("perl") is None, reason="Perl is not installed")
def test_lowercase_equals_perl() -> None:
    line = "Die ÄRZTE aus ΟΔΟΣ, İzmir, Ǆ und ẞ."
    tokens = Tokenization("de", False, False, "moses", False).tokenize(line)
    program = "while (<STDIN>) { print lc($_); }"  # as in lowercase.perl
    perl = subprocess.run(
        ["perl", "-CSD", "-e", program], input=tokens.encode(), stdout=subprocess.PIPE, check=True
    )
    assert (
        Tokenization("de", False, "tokens", "moses", False).tokenize(line) == perl.stdout.decode()
    )
