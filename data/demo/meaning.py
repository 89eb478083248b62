"""The meaning of a sentence, from which both languages are generated.

A clause is a verb with its arguments and circumstances. `english.py` and `german.py` turn the same
clause into words. Everything that concerns only one language (gender, endings, do-support, word
order) is decided there, so that both sides have the same meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    """The four cases; English sees only the difference between NOMINATIVE and the rest."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Person(Enum):
    """The verb forms needed: `you` is always the polite Sie, which is plural in German."""

    I = "first singular"  # noqa: E741
    ONE = "third singular"
    MANY = "plural"


class Tense(Enum):
    """One English form and one German form a tense, so that the English fixes the German.

    PRESENT      he reads         er liest
    PROGRESSIVE  he is reading    er liest
    PAST         he read          er las
    PERFECT      he has read      er hat gelesen
    FUTURE       he will read     er wird lesen
    """

    PRESENT = 0
    PROGRESSIVE = 1
    PAST = 2
    PERFECT = 3
    FUTURE = 4


@dataclass(frozen=True)
class Pair:
    """The same words in both languages: an adverb, a finished phrase, a finished sentence."""

    en: str
    de: str


@dataclass(frozen=True)
class Noun:
    """A noun with every form that cannot be derived from the phrase around it."""

    en: str
    en_plural: str
    gender: str  # "m", "f" or "n"
    de: str
    de_oblique: str  # accusative and dative singular: differs for weak nouns (den Studenten)
    de_genitive: str
    de_plural: str  # "" for a mass noun (Milch)
    kind: str

    @property
    def is_mass(self) -> bool:
        return not self.de_plural

    @property
    def senses(self) -> tuple[str, str]:
        """What a table may call it by: its kind, or its own name (of a compound, the head's)."""
        return self.kind, self.en.rpartition(" ")[2]


@dataclass(frozen=True)
class Adjective:
    en: str
    en_comparative: str
    de: str
    de_stem: str  # before an ending: teuer, but teur-e
    de_comparative: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    en: str  # with its particle or preposition: "turn on", "wait for"
    en_past: str
    en_participle: str
    de: str  # infinitive without the separable prefix
    de_third: str
    de_past: str
    de_participle: str  # without the separable prefix
    prefix: str  # separable prefix, or ""
    with_sein: bool  # the perfect is built with sein, not haben
    kinds: tuple[str, ...]  # kinds of noun that the verb takes as its object
    preposition: str = ""  # German preposition of its object: "auf" in "warten auf"
    case: Case = Case.ACCUSATIVE  # case of its object


@dataclass(frozen=True)
class Modal:
    """A modal verb form. A lexical one ("wants to") behaves in English like a full verb."""

    en_third: str
    en: str
    de: Verb
    past: bool
    lexical: bool


@dataclass(frozen=True)
class Name:
    """A made-up proper name, alike in both languages but for its title."""

    text: str
    title: str = ""  # "Mr.", "Mrs.", "Dr." or ""


@dataclass(frozen=True)
class Pronoun:
    """A pronoun; one that moves (relative or interrogative) goes to the front of its clause."""

    en: str
    en_object: str
    de: tuple[str, str, str]  # nominative, accusative, dative
    person: Person
    moves: bool = False


@dataclass(frozen=True)
class NounPhrase:
    """Determiner, adjective and noun, with an owner or a relative clause if it has one.

    `determiner` is the English word ("" before bare plurals and mass nouns); `count` stands in
    its place; a Name as owner too ("Belona's old house"); another phrase follows in the genitive.
    """

    noun: Noun
    determiner: str = "the"
    adjective: Adjective | None = None
    plural: bool = False
    count: Pair | None = None
    age: int | None = None  # "the 34-year-old teacher"
    owner: Name | NounPhrase | None = None
    relative: Clause | None = None

    @property
    def is_definite(self) -> bool:
        return self.owner is not None or (
            self.determiner not in {"a", "no", ""} and self.count is None
        )


Phrase = NounPhrase | Name | Pronoun


@dataclass(frozen=True)
class Clause:
    """One event or state. At most one of `time` and `adverb` is set, by convention."""

    subject: Phrase
    verb: Verb
    tense: Tense
    modal: Modal | None = None
    indirect: Phrase | None = None  # the receiver of a giving: dative
    object: Phrase | None = None  # its case is the verb's
    predicate: Pair | None = None  # after a copula: "very old" / "sehr alt"
    place: Pair | None = None
    direction: Pair | None = None  # where to, or any place that completes the verb
    time: Pair | None = None
    adverb: Pair | None = None  # beside the English verb: "often" / "oft"
    negated: bool = False
    time_first: bool = False


def person(phrase: Phrase) -> Person:
    """Return the verb form that a subject calls for."""
    match phrase:
        case Pronoun():
            return phrase.person
        case Name():
            return Person.ONE
        case NounPhrase():
            return Person.MANY if phrase.plural else Person.ONE


def moved(clause: Clause) -> Phrase | None:
    """Return the relative or interrogative pronoun that opens the clause, if there is one."""
    for phrase in (clause.subject, clause.indirect, clause.object):
        if isinstance(phrase, Pronoun) and phrase.moves:
            return phrase
    return None


def finish(text: str, mark: str) -> str:
    """Make a sentence: commas that meet another comma or the end vanish, the first letter grows."""
    text = f"{text}{mark}"
    while ",," in text:
        text = text.replace(",,", ",")
    for end in ".?!":
        text = text.replace(f",{end}", end)
    start = next(i for i, letter in enumerate(text) if letter.isalnum())
    return text[:start] + text[start].upper() + text[start + 1 :]
