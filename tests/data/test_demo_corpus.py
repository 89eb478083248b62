"""The demo corpus: reproducible, split without leaks, and grammatical by rules of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
SIZES = {"train": 20_000, "dev": 500, "test": 500}
FILES = [f"{split}.{language}" for split in SIZES for language in ("en", "de")]


def lines(name: str) -> list[str]:
    text = (DEMO / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """All 21,000 pairs: train, then dev, then test."""
    return [
        pair
        for split in SIZES
        for pair in zip(lines(f"{split}.en"), lines(f"{split}.de"), strict=True)
    ]


@pytest.fixture(scope="module")
def german(pairs: list[tuple[str, str]]) -> str:
    return "\n".join(de for _, de in pairs)


def test_the_program_writes_the_committed_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DEMO / "make_corpus.py", tmp_path], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (DEMO / name).read_bytes(), name


@pytest.mark.parametrize("split", SIZES)
def test_each_split_has_its_size_and_its_sides_the_same_number_of_lines(split: str) -> None:
    assert len(lines(f"{split}.en")) == len(lines(f"{split}.de")) == SIZES[split]


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_one_tidy_sentence(name: str) -> None:
    for line in lines(name):
        assert line == " ".join(line.split()), line
        assert re.match(r'["„]?[A-ZÄÖÜ]', line), line
        assert line[-1] in ".?", line
        assert not re.search(r",[,.?]| [,.?]|\.\.", line), line
        assert 3 <= len(line.split()) <= 25, line


def test_no_sentence_occurs_twice_on_either_side(pairs: list[tuple[str, str]]) -> None:
    for side in zip(*pairs, strict=True):
        assert len(set(side)) == len(side) == sum(SIZES.values())


def test_the_committed_text_stays_under_3_mb() -> None:
    assert sum((DEMO / name).stat().st_size for name in FILES) < 3_000_000


NAME = r"[A-ZÄÖÜ][\wäöüé]*(?:-[A-ZÄÖÜ][\wäöüé]*)?"


NOT_NAMES = {"April", "August", "September", "November", "Dr", "Hotel", "Museum", "Park"}


def names_shared(en: str, de: str) -> set[str]:
    """Return the capitalized words that both sides spell alike, which made-up names do."""
    genitives = {word[:-1] for word in re.findall(NAME, de) if word.endswith("s")}
    return (set(re.findall(NAME, en)) & (set(re.findall(NAME, de)) | genitives)) - NOT_NAMES


def test_the_same_english_frame_always_has_the_same_german_frame(
    pairs: list[tuple[str, str]],
) -> None:
    """With names and numerals masked the mapping must still be a function, and be tested often."""
    frames: dict[str, str] = {}
    repeated = 0
    for en, de in pairs:
        names = {name: str(i) for i, name in enumerate(sorted(names_shared(en, de), key=en.index))}
        names |= {f"{name}s": f"{i}s" for name, i in names.items()}
        en_frame, de_frame = (
            re.sub(NAME, lambda found: names.get(found[0], found[0]), re.sub(r"\d", "0", side))  # noqa: B023
            for side in (en, de)
        )
        repeated += en_frame in frames
        assert frames.setdefault(en_frame, de_frame) == de_frame, (en, de)
    assert repeated > 500


def test_a_third_of_the_names_of_the_test_set_are_not_in_the_training_set() -> None:
    train_words = set(re.findall(r"\w+", "\n".join(lines("train.en"))))
    test_names = {
        part
        for en, de in zip(lines("test.en"), lines("test.de"), strict=True)
        for name in names_shared(en, de)
        for part in name.split("-")
    }
    unseen = test_names - train_words
    assert len(test_names) > 250
    assert len(unseen) / len(test_names) > 1 / 3


# The article (or ein-word) and the ending of an adjective after it, by gender, singular only.
EIN = "(?:k?ein|mein|sein|ihr|unser)"
AGREEMENT = {
    "m": rf"der \w+e|den \w+en|dem \w+en|des \w+en|{EIN} \w+er|{EIN}en \w+en|{EIN}em \w+en",
    "f": rf"die \w+e|der \w+en|{EIN}e \w+e|{EIN}er \w+en",
    "n": rf"das \w+e|dem \w+en|des \w+en|{EIN} \w+es|{EIN}em \w+en",
}
DETERMINER = rf"(?:der|die|das|den|dem|des|{EIN}(?:e|en|em|er|es)?)"
# Nouns whose plural looks different, so that the form shows that it is singular.
SINGULAR = {
    "m": "tisch stuhl arzt mantel apfel brief garten hund vertrag rock hut zug roman koch",
    "f": "lampe tür küche schule jacke suppe tasche katze uhr kirche kuh stadt flasche prüfung",
    "n": "buch haus hotel auto kleid hemd dorf museum bild pferd schiff geschenk schloss kind",
}


@pytest.mark.parametrize("gender", SINGULAR)
def test_article_adjective_and_noun_agree(german: str, gender: str) -> None:
    nouns = "|".join(SINGULAR[gender].split())
    adjective = rf"(?!{DETERMINER}\b|unser|dies|jed)[a-zäöüß]+e[nrs]?"
    found = re.findall(rf"\b((?i:{DETERMINER}) {adjective}) \w*(?i:{nouns})\b", german)
    wrong = [each for each in found if not re.fullmatch(AGREEMENT[gender], each, re.IGNORECASE)]
    assert len(found) > 500
    assert not wrong


@pytest.mark.parametrize("gender", SINGULAR)
def test_article_and_noun_agree(german: str, gender: str) -> None:
    allowed = {
        "m": rf"der|den|dem|{EIN}(?:en|em)?",
        "f": rf"die|der|{EIN}(?:e|er)",
        "n": rf"das|dem|{EIN}(?:em)?",
    }[gender]
    nouns = "|".join(SINGULAR[gender].split())
    found = re.findall(rf"\b({DETERMINER}) \w*(?:{nouns})\b", german, re.IGNORECASE)
    assert len(found) > 1000
    assert not [each for each in found if not re.fullmatch(allowed, each, re.IGNORECASE)]


def test_prepositions_govern_their_case(german: str) -> None:
    assert not re.search(r"\b(?:von|mit|zu|bei) (?:das|die|ein|eine|einen|mein|meine)\b", german)
    assert not re.search(r"\büber (?:dem|einem|\w+em \w+e[nrs])\b", german)
    assert not re.search(
        r"(?<!, )\b(?:in dem|in das|zu dem|zu der|von dem|an dem) [A-ZÄÖÜ]", german
    )


def test_subordinate_clauses_end_in_a_verb(german: str) -> None:
    clause = r", (?:weil|dass|ob|obwohl|wenn|als) ([^,]*?)(?:,|[.?]$)"
    clauses = re.findall(clause, german, re.MULTILINE)
    assert len(clauses) > 2500
    verb = r"[a-zäöüß]+(?:t|te|ten|en)|bin|war|will|kann|muss|darf|weiß|[a-zäöüß]{2,}"
    assert not [each for each in clauses if not re.fullmatch(verb, each.split()[-1])]


def test_the_finite_verb_is_second_after_a_fronted_time(german: str) -> None:
    times = r"^(?:Gestern|Heute Abend|Morgen früh|Nächste Woche|Letzten Monat|Jeden Tag) (\w+)"
    verbs = re.findall(times, german, re.MULTILINE)
    assert len(verbs) > 200
    determiners = {"der", "die", "das", "ein", "eine", "mein", "sein", "ihr", "er", "sie", "ich"}
    nouns = {verb for verb in verbs if verb[0].isupper()} - {"Abend", "Morgen"}
    assert not nouns
    assert not determiners & set(verbs)


def test_numbers_are_the_same_in_the_writing_of_each_language(
    pairs: list[tuple[str, str]],
) -> None:
    german_signs = str.maketrans({",": ".", ".": ",", ":": "."})
    for en, de in pairs:
        english_numbers = re.findall(r"\d+(?:[,.:]\d+)*", en)
        expected = sorted(number.translate(german_signs) for number in english_numbers)
        assert sorted(re.findall(r"\d+(?:[,.]\d+)*", de)) == expected, (en, de)


@pytest.mark.parametrize(
    ("construction", "pattern", "at_least"),
    [
        (
            "separable verb apart",
            r"\b(?:macht|schaltet|räumt|holt)\w* .*\b(?:auf|zu|ein|ab)[.,]",
            200,
        ),
        ("separable participle", r"\b(?:auf|zu|ein|aus|ab|an|vor|mit)ge\w+(?:t|en)\b", 200),
        ("zu inside the verb", r"\b(?:auf|zu|ein|aus|ab|an|vor|mit|teil|nach)zu\w+en\b", 100),
        ("perfect with haben", r"\b(?:hat|haben|habe) .*(?:t|en)[.,?]", 1000),
        ("perfect with sein", r"\b(?:ist|sind|bin) .*(?:gefahren|gegangen|gereist|gelaufen)", 150),
        ("modal verb", r"\b(?:kann|können|muss|müssen|darf|dürfen|will|wollen|sollte)\b", 1500),
        ("future", r"\b(?:wird|werden) .*en[.,?]", 1500),
        ("clause in front", r"^(?:Wenn|Als|Obwohl) [^,]*, [a-zäöüß]+ ", 800),
        ("because", r", weil ", 1000),
        ("indirect question", r", ob ", 200),
        ("reported speech", r", dass ", 500),
        ("relative clause", r", (?:der|die|das|den|dem|denen) [^,]*,", 800),
        ("relative clause with a preposition", r", (?:in|auf|von|um|an) (?:der|dem|den|die) ", 200),
        ("infinitive of purpose", r", um .*zu", 400),
        ("genitive", r"\b(?:des|der) \w+s\b", 300),
        ("genitive of a name", r"\b[A-Z]\w+s (?:\w+ )?[A-Z]\w+", 500),
        ("compound", r"\b(?:Küchen|Geschichts|Zitronen|Schul)[a-zäöüß]{4,}", 1000),
        ("kein", r"\bkeine?[nmr]?\b", 150),
        ("nicht", r"\bnicht\b", 500),
        ("question", r"\?$", 1500),
        ("polite request", r"^Bitte \w+en Sie ", 400),
        ("comparison", r"(?:er als|so \w+ wie) ", 400),
        ("quotation", r"^„.*“, sagt", 500),
        ("parenthesis", r"\(.*\)", 150),
        ("clock time", r"um \d+\.\d\d Uhr", 300),
        ("price", r"\d Euro\.", 300),
        ("age with a hyphen", r"-jährigen? ", 100),
        ("title", r"\b(?:Herrn?|Frau|Dr\.) [A-Z]", 1500),
    ],
)
def test_each_construction_is_there_often(
    german: str, construction: str, pattern: str, at_least: int
) -> None:
    found = sum(bool(re.search(pattern, line)) for line in german.split("\n"))
    assert found >= at_least, construction
