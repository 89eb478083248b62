"""German: declension, conjugation, and the topological fields of the clause.

A German clause is a frame made of verbs. The left bracket holds the finite verb (or, in a
subordinate clause, the conjunction), the right bracket the rest of the verbs, and one field lies
before, one between:

    Vorfeld       left    Mittelfeld                     right
    Morgen        macht   der Lehrer das Fenster         auf.
    Der Lehrer    hat     das Fenster gestern            aufgemacht.
                  weil    der Lehrer das Fenster         aufmachen will

In the Mittelfeld, known things precede new ones: definite objects are before adverbials, indefinite
ones after them. German grammar also allows other orders; this rule makes the order unique.
"""

from dataclasses import replace
from enum import Enum

from meaning import (
    Case,
    Clause,
    Modal,
    Name,
    Noun,
    NounPhrase,
    Person,
    Phrase,
    Pronoun,
    Tense,
    Verb,
    moved,
    person,
)


class Order(Enum):
    """Where the finite verb stands."""

    SECOND = "Heute liest er."
    FIRST = "Liest er heute?"
    LAST = "weil er heute liest"


# Endings by case; the columns are masculine, feminine, neuter, plural ("-" is no ending).
GENDERS = "mfnp"
ARTICLE = ("der die das die", "den die das die", "dem der dem den", "des der des der")
DIESER = ("er e es e", "en e es e", "em er em en", "es er es er")
EIN = ("- e - e", "en e - e", "em er em en", "es er es er")
WEAK = ("e e e en", "en e e en", "en en en en", "en en en en")  # after der, dieser, jeder
MIXED = ("er e es en", "en e es en", "en en en en", "en en en en")  # after ein, kein, mein
STRONG = ("er e es e", "en e es e", "em er em en", "en er en er")  # after nothing that declines

EIN_WORDS = {
    "a": "ein",
    "no": "kein",
    "my": "mein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
}
DER_WORDS = {"this": "dies", "every": "jed", "these": "dies"}
CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}
TITLES = {"": "", "Mr.": "Herr ", "Mrs.": "Frau ", "Dr.": "Dr. "}

HABEN = Verb("", "", "", "haben", "hat", "hatte", "gehabt", "", False, ())
SEIN = Verb("", "", "", "sein", "ist", "war", "gewesen", "", True, ())
WERDEN = Verb("", "", "", "werden", "wird", "wurde", "geworden", "", True, ())


def ending(table: tuple[str, ...], case: Case, column: str) -> str:
    """Look an ending up by case and by gender or plural (`column` is one of m, f, n, p)."""
    return table[case.value].split()[GENDERS.index(column)].replace("-", "")


def determiner(word: str, case: Case, column: str) -> tuple[str, tuple[str, ...]]:
    """Return the German determiner and the adjective endings that follow it."""
    if word == "the":
        return ending(ARTICLE, case, column), WEAK
    if word in DER_WORDS:
        return DER_WORDS[word] + ending(DIESER, case, column), WEAK
    if word in EIN_WORDS:
        return EIN_WORDS[word] + ending(EIN, case, column), MIXED
    return "", STRONG


def noun_form(noun: Noun, case: Case, *, plural: bool) -> str:
    """Decline a noun: only weak nouns, genitives and dative plurals show their case."""
    if plural:
        takes_n = case is Case.DATIVE and not noun.de_plural.endswith(("n", "s"))
        return noun.de_plural + "n" * takes_n
    forms = (noun.de, noun.de_oblique, noun.de_oblique, noun.de_genitive)
    return forms[case.value]


def phrase(what: Phrase, case: Case) -> str:
    """Decline any phrase."""
    match what:
        case Pronoun():
            return what.de[case.value]
        case Name():
            title = TITLES[what.title]
            if title == "Herr " and case is not Case.NOMINATIVE:
                title = "Herrn "
            return title + what.text + "s" * (case is Case.GENITIVE)
        case NounPhrase():
            return noun_phrase(what, case)


def noun_phrase(what: NounPhrase, case: Case) -> str:
    """Decline determiner, adjective and noun together."""
    column = "p" if what.plural else what.noun.gender
    article, adjective_endings = determiner(what.determiner, case, column)
    if isinstance(what.owner, Name):
        article, adjective_endings = phrase(what.owner, Case.GENITIVE), STRONG
    elif what.count is not None:
        article, adjective_endings = what.count.de, STRONG
    words = [article]
    if what.age is not None:
        words.append(f"{what.age}-jährig{ending(adjective_endings, case, column)}")
    if what.adjective is not None:
        words.append(what.adjective.de_stem + ending(adjective_endings, case, column))
    words.append(noun_form(what.noun, case, plural=what.plural))
    if isinstance(what.owner, NounPhrase):
        words.append(noun_phrase(what.owner, Case.GENITIVE))
    text = " ".join(filter(None, words))
    if what.relative is not None:
        text += f", {clause(what.relative, Order.LAST)},"
    return text


def prepositional(preposition: str, case: Case, what: Phrase) -> str:
    """Put a preposition before its phrase; with `the` it may melt: in dem -> im."""
    text = f"{preposition} {phrase(what, case)}"
    if isinstance(what, NounPhrase) and what.determiner == "the":
        first_two = " ".join(text.split(" ")[:2])
        melted = CONTRACTIONS.get(first_two, first_two)
        return melted + text[len(first_two) :]
    return text


def present(verb: Verb, who: Person) -> str:
    """Conjugate in the present."""
    if who is Person.ONE:
        return verb.de_third
    if verb is SEIN or verb.de == "sein":
        return "bin" if who is Person.I else "sind"
    if who is Person.MANY:
        return verb.de
    if not verb.de_third.endswith(("t", "d")):  # kann, muss, will, weiß: first = third person
        return verb.de_third
    return verb.de.removesuffix("n").removesuffix("e") + "e"


def past(verb: Verb, who: Person) -> str:
    """Conjugate in the simple past (Präteritum), where first and third person agree."""
    if who is not Person.MANY:
        return verb.de_past
    return verb.de_past + ("n" if verb.de_past.endswith("e") else "en")


def brackets(what: Clause) -> tuple[str, str]:
    """Return the finite verb, and what the right bracket holds in a main clause."""
    verb, who = what.verb, person(what.subject)
    infinitive = verb.prefix + verb.de
    if what.modal is not None:
        return modal_form(what.modal, who), infinitive
    match what.tense:
        case Tense.PRESENT | Tense.PROGRESSIVE:
            return present(verb, who), verb.prefix
        case Tense.PAST:
            return past(verb, who), verb.prefix
        case Tense.PERFECT:
            auxiliary = SEIN if verb.with_sein else HABEN
            return present(auxiliary, who), verb.prefix + verb.de_participle
        case Tense.FUTURE:
            return present(WERDEN, who), infinitive


def modal_form(modal: Modal, who: Person) -> str:
    return past(modal.de, who) if modal.past else present(modal.de, who)


def known_first(objects: list[tuple[Phrase, str]]) -> tuple[list[str], list[str]]:
    """Split objects into those before the adverbials (pronouns lead) and those after."""
    pronouns = [text for what, text in objects if isinstance(what, Pronoun)]
    known = [text for what, text in objects if isinstance(what, Name) or is_known(what)]
    new = [text for what, text in objects if isinstance(what, NounPhrase) and not is_known(what)]
    return pronouns + known, new


def is_known(what: Phrase) -> bool:
    return isinstance(what, NounPhrase) and what.is_definite


def middle_field(what: Clause, opening: Phrase | None) -> list[str]:
    """Order everything between the brackets, apart from what opens the clause."""
    objects = []
    if what.indirect is not None and what.indirect is not opening:
        objects.append((what.indirect, phrase(what.indirect, Case.DATIVE)))
    needs_nicht = what.negated
    completion = [what.predicate.de] if what.predicate else []
    if what.object is not None and what.object is not opening:
        target = what.object
        if what.verb.preposition:
            completion.append(prepositional(what.verb.preposition, what.verb.case, target))
        else:
            if what.negated and isinstance(target, NounPhrase) and not target.is_definite:
                target, needs_nicht = with_kein(target), False
            objects.append((target, phrase(target, what.verb.case)))
    known, new = known_first(objects)
    subject = [] if what.subject is opening else [phrase(what.subject, Case.NOMINATIVE)]
    time = [what.time.de] if what.time else []
    adverb = [what.adverb.de] if what.adverb else []
    place = [what.place.de] if what.place else []
    direction = [what.direction.de] if what.direction else []
    negation = ["nicht"] if needs_nicht else []
    return subject + known + time + adverb + place + new + negation + completion + direction


def with_kein(what: NounPhrase) -> NounPhrase:
    """Negate an indefinite phrase: ein Buch -> kein Buch, Bücher -> keine Bücher."""
    return NounPhrase(what.noun, "no", what.adjective, plural=what.plural)


def clause(what: Clause, order: Order, front: str = "") -> str:
    """Lay a clause out in its fields; `front` fills the Vorfeld if the clause leaves it free."""
    finite, right = brackets(what)
    opening = moved(what)
    if opening is not None:
        front = opening_form(what, opening)
    elif what.time_first and what.time is not None:
        front, what = what.time.de, replace(what, time=None)
    elif order is Order.SECOND and not front:
        opening, front = what.subject, phrase(what.subject, Case.NOMINATIVE)
    middle = middle_field(what, opening)
    if order is not Order.LAST:
        words = [front, finite, *middle, right.strip()]
    elif right == what.verb.prefix:
        words = [front, *middle, right + finite]  # the bracket closes: aufmacht
    else:
        words = [front, *middle, right, finite]
    return " ".join(filter(None, words))


def opening_form(what: Clause, opening: Phrase) -> str:
    """Decline the pronoun that opens a relative clause or a question."""
    if opening is what.subject:
        return phrase(opening, Case.NOMINATIVE)
    if opening is what.indirect:
        return phrase(opening, Case.DATIVE)
    case = what.verb.case
    if what.verb.preposition:
        return f"{what.verb.preposition} {phrase(opening, case)}"
    return phrase(opening, case)


def infinitive_clause(what: Clause) -> str:
    """Say a clause without its subject, with zu before (or inside) the infinitive."""
    middle = middle_field(what, what.subject)
    verb = what.verb
    is_one_word = verb.prefix and not verb.prefix.endswith(" ")  # aufzumachen, spazieren zu gehen
    infinitive = f"{verb.prefix}zu{'' if is_one_word else ' '}{verb.de}"
    return " ".join([*middle, infinitive])


def imperative(what: Clause) -> str:
    """Ask politely: Bitte machen Sie das Fenster auf."""
    return f"bitte {clause(what, Order.FIRST)}"


def relative_pronoun(noun: Noun, *, plural: bool) -> tuple[str, str, str]:
    """Return der, die, das ... in nominative, accusative and dative."""
    column = "p" if plural else noun.gender
    dative = "denen" if plural else ending(ARTICLE, Case.DATIVE, column)
    nominative = ending(ARTICLE, Case.NOMINATIVE, column)
    return nominative, ending(ARTICLE, Case.ACCUSATIVE, column), dative
