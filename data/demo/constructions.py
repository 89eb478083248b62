"""The kinds of sentences of the corpus. A function generates one kind in both languages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import english
import german
from dice import Dice
from german import Order
from lexicon import (
    ADVERB,
    ALL_ADJECTIVES,
    ALL_MODALS,
    ALL_NOUNS,
    ALL_VERBS,
    COPULA,
    COST,
    HAVE,
    LIVE,
    MONTH,
    NUMBER_WORD,
    PRONOUN,
    TIME,
)
from meaning import (
    Adjective,
    Case,
    Clause,
    Name,
    Noun,
    NounPhrase,
    Pair,
    Person,
    Phrase,
    Pronoun,
    Tense,
    Verb,
    finish,
)
from names import person_name, town_name

POSSESSIVES = ("my", "his", "her", "our", "their")
SURFACES = ("table", "chair", "shelf", "bed", "sofa")
POSITIONS = (
    Pair("on", "auf"),
    Pair("under", "unter"),
    Pair("next to", "neben"),
    Pair("behind", "hinter"),
    Pair("in front of", "vor"),
)
THINGS = ("clothing", "vehicle", "furniture", "device", "object", "instrument", "reading")
GENDERED = {"m": PRONOUN["he"], "f": PRONOUN["she"]}
IT = {
    "m": Pronoun("it", "it", ("er", "ihn", "ihm"), Person.ONE),
    "f": Pronoun("it", "it", ("sie", "sie", "ihr"), Person.ONE),
    "n": Pronoun("it", "it", ("es", "es", "ihm"), Person.ONE),
}
WEATHER_NOW = (
    Pair("it is raining", "es regnet"),
    Pair("it is snowing", "es schneit"),
    Pair("it is very cold", "es sehr kalt ist"),
    Pair("the sun is shining", "die Sonne scheint"),
)
WEATHER_THEN = (
    Pair("it was raining", "es regnete"),
    Pair("it was snowing", "es schneite"),
    Pair("it was very cold", "es sehr kalt war"),
    Pair("the sun was shining", "die Sonne schien"),
)

Forms = Sequence[tuple[int, str]]
ANY_FORM: Forms = ((28, "done"), (24, "now"), (22, "future"), (12, "habit"), (18, "modal"))
OPEN: Forms = ((1, "now"), (1, "modal"))  # what a condition may be
RESULT: Forms = ((2, "future"), (1, "modal"))  # what may follow from it
RELATIVES = "father mother brother sister son daughter uncle aunt grandfather grandmother"
UNOWNED = ("man", "woman")  # whose Mann and Frau would be husband and wife
OPPOSITES = ("alt neu", "teuer billig", "groß klein", "kurz lang", "interessant langweilig")
PRICES = {"clothing": (15, 400), "object": (10, 300), "vehicle": (400, 39999)}  # whole euros


# Phrases


@cache
def nouns_of(kinds: tuple[str, ...]) -> list[Noun]:
    """Return the nouns of some kinds; a kind may also name a noun, and so its compounds."""
    return [noun for noun in ALL_NOUNS if any(sense in kinds for sense in noun.senses)]


@cache
def adjectives_of(senses: tuple[str, str], *, graded: bool) -> list[Adjective]:
    """Return the adjectives that make sense of a noun; colors have no degrees."""
    fitting = [entry for entry in ALL_ADJECTIVES if any(sense in entry.kinds for sense in senses)]
    return [entry for entry in fitting if entry.de_comparative] if graded else fitting


def adjective_for(dice: Dice, noun: Noun, *, graded: bool = False) -> Adjective | None:
    """Pick an adjective for a noun, if there is one."""
    fitting = adjectives_of(noun.senses, graded=graded)
    return dice.pick(fitting) if fitting else None


def number(value: int) -> Pair:
    """Group thousands with a comma in English and a period in German."""
    return Pair(f"{value:,}", f"{value:,}".replace(",", "."))


def count(dice: Dice) -> Pair:
    """Count in words up to twelve, in digits beyond."""
    return dice.pick(NUMBER_WORD) if dice.chance(50) else number(dice.between(13, 99))


def thing(dice: Dice, kinds: tuple[str, ...]) -> NounPhrase:
    """Describe a thing (or a person, as an object) of some kinds."""
    noun = dice.pick(nouns_of(kinds))
    adjective = adjective_for(dice, noun) if dice.chance(35) else None
    if noun.is_mass:
        return NounPhrase(noun, dice.pick(("the", "", "my", "")), adjective)
    form = dice.weigh(
        [(42, "the"), (22, "a"), (5, "this"), (10, "my"), (6, "name"), (3, "owner"), (12, "many")]
    )
    if noun.en in RELATIVES.split() and form in {"a", "this", "many"}:
        form = "my"
    if noun.en in UNOWNED and form != "a":
        form = "the"
    match form:
        case "my":
            return NounPhrase(noun, dice.pick(POSSESSIVES), adjective)
        case "name":
            return NounPhrase(noun, "", adjective, owner=person_name(dice))
        case "owner":
            owner = NounPhrase(dice.pick(nouns_of(("person",))))
            return NounPhrase(noun, "the", adjective, owner=owner)
        case "many":
            return several(dice, noun, adjective)
    return NounPhrase(noun, form, adjective)


def several(dice: Dice, noun: Noun, adjective: Adjective | None) -> NounPhrase:
    """Put a noun in the plural: the, these, my, bare, or counted."""
    form = dice.pick(("the", "the", "these", "my", "", "count", "count"))
    if form == "count":
        return NounPhrase(noun, "", adjective, plural=True, count=count(dice))
    determiner = dice.pick(POSSESSIVES) if form == "my" else form
    return NounPhrase(noun, determiner, adjective, plural=True)


def somebody(dice: Dice) -> Phrase:
    """Choose who acts: a name, a pronoun, or a person described."""
    form = dice.weigh([(34, "name"), (16, "pronoun"), (40, "one"), (10, "many")])
    if form == "name":
        return person_name(dice)
    if form == "pronoun":
        return dice.pick(list(PRONOUN.values()))
    return described(dice, plural=form == "many")


def described(dice: Dice, *, plural: bool = False) -> NounPhrase:
    """Describe a person who acts."""
    noun = dice.pick(nouns_of(("person",)))
    adjective = adjective_for(dice, noun) if dice.chance(25) else None
    determiner = dice.weigh([(7, "the"), (3, dice.pick(POSSESSIVES))])
    if noun.en in UNOWNED:
        determiner = "the"
    if plural:
        return NounPhrase(noun, determiner, adjective, plural=True)
    if noun.en in RELATIVES.split():
        return NounPhrase(noun, dice.pick(("the", *POSSESSIVES)), adjective)
    form = dice.weigh([(84, determiner), (6, "a"), (4, "every"), (6, "age")])
    if form == "age":
        grown = noun.en not in {"boy", "child"}
        return NounPhrase(noun, age=dice.between(19, 64) if grown else dice.between(5, 17))
    return NounPhrase(noun, form, adjective)


def anaphor(what: Phrase) -> Phrase | None:
    """Return the pronoun that refers back to a person, where English and German agree on it.

    Nothing refers back to a bare name or to a child (das Kind), whose pronouns differ.
    """
    match what:
        case Pronoun():
            return what
        case Name():
            return {"Mr.": PRONOUN["he"], "Mrs.": PRONOUN["she"]}.get(what.title)
        case NounPhrase():
            return PRONOUN["they"] if what.plural else GENDERED.get(what.noun.gender)


def receiver(dice: Dice, subject: Phrase) -> Phrase:
    """Choose a person other than the subject, as object or receiver."""
    if not isinstance(subject, Pronoun) and dice.chance(20):
        return PRONOUN[dice.pick(("I", "he", "she", "we", "they"))]
    if dice.chance(30):
        return person_name(dice)
    while True:
        other = thing(dice, ("person",))
        if not isinstance(subject, NounPhrase) or other.noun != subject.noun:
            return other


# Circumstances


def at(preposition: Pair, case: Case, what: NounPhrase) -> Pair:
    """Put a phrase behind a preposition in both languages."""
    en = f"{preposition.en} {english.phrase(what)}"
    return Pair(en, german.prepositional(preposition.de, case, what))


def simple_place(dice: Dice, kinds: tuple[str, ...]) -> NounPhrase:
    noun = dice.pick(nouns_of(kinds))
    adjective = adjective_for(dice, noun) if dice.chance(25) else None
    return NounPhrase(noun, "a" if dice.chance(10) else "the", adjective)


def place(dice: Dice) -> Pair:
    """Say where something happens."""
    if dice.chance(35):
        town = town_name(dice)
        return Pair(f"in {town}", f"in {town}")
    kinds = ("building", "area") if dice.chance(60) else ("kitchen", "office", "cellar")
    return at(Pair("in", "in"), Case.DATIVE, simple_place(dice, kinds))


def direction(dice: Dice, verb: Verb) -> Pair:
    """Say where somebody goes: to a town nach, to anything else zu."""
    if verb.en in {"fly", "travel"} or dice.chance(35):
        town = town_name(dice)
        return Pair(f"to {town}", f"nach {town}")
    return at(Pair("to", "zu"), Case.DATIVE, simple_place(dice, ("building", "park", "village")))


def clock(dice: Dice) -> Pair:
    hour, minute = dice.between(1, 12), 5 * dice.below(12)
    return Pair(f"at {hour}:{minute:02}", f"um {hour}.{minute:02} Uhr")


def date(dice: Dice) -> Pair:
    month, day = dice.pick(MONTH), dice.between(1, 28)
    return Pair(f"on {month.en} {day}", f"am {day}. {month.de}")


def year(dice: Dice) -> Pair:
    value = dice.between(1920, 2024)
    return Pair(f"in {value}", f"im Jahr {value}")


def past_time(dice: Dice) -> Pair:
    precise = dice.weigh([(7, None), (1, clock), (1, date), (1, year)])
    return precise(dice) if precise else dice.pick(TIME["p"])


def future_time(dice: Dice) -> Pair:
    precise = dice.weigh([(8, None), (1, clock), (1, date)])
    return precise(dice) if precise else dice.pick(TIME["f"])


# Events


def framed(dice: Dice, subject: Phrase) -> Clause:
    """Choose a verb with everything that it requires, as yet without tense."""
    frame = dice.weigh([(60, "act"), (12, "give"), (9, "be busy"), (11, "go"), (5, "put")])
    verb = dice.pick(ALL_VERBS[frame])
    bare = Clause(subject, verb, Tense.PRESENT)
    match frame:
        case "act":
            takes_person = "person" in verb.kinds and (len(verb.kinds) == 1 or dice.chance(40))
            target = receiver(dice, subject) if takes_person else thing(dice, without(verb.kinds))
            return replace(bare, object=target)
        case "give":
            gift = thing(dice, verb.kinds)
            return replace(bare, indirect=receiver(dice, subject), object=gift)
        case "go":
            return replace(bare, direction=direction(dice, verb))
        case "put":
            surface = NounPhrase(dice.pick(nouns_of(SURFACES)))
            where = at(dice.pick(POSITIONS), Case.ACCUSATIVE, surface)
            return replace(bare, object=thing(dice, verb.kinds), direction=where)
    return bare


def without(kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if kind != "person")


def event(
    dice: Dice,
    subject: Phrase | None = None,
    *,
    is_past: bool | None = None,
    forms: Forms = ANY_FORM,
) -> Clause:
    """Tell an event: a framed verb with a tense, circumstances and perhaps a negation."""
    what = framed(dice, subject or somebody(dice))
    if is_past is None:
        is_past = dice.chance(35)
    what = told_before(dice, what) if is_past else told_now(dice, what, forms)
    what = located(dice, what)
    if dice.chance(12) and can_be_negated(what):
        what = replace(what, negated=True)
    return what


def told_before(dice: Dice, what: Clause) -> Clause:
    time = past_time(dice) if dice.chance(60) else None
    if dice.chance(12):
        modal = dice.pick([entry for entry in ALL_MODALS if entry.past and entry.lexical])
        return replace(what, modal=modal, time=time)
    return replace(what, tense=Tense.PAST, time=time)


def told_now(dice: Dice, what: Clause, forms: Forms = ANY_FORM) -> Clause:
    """Choose among the perfect, the present, habits, plans and modals."""
    form = dice.weigh(forms)
    if form == "habit" and what.verb.en == what.verb.en_past:  # they read: now or then?
        form = "now"
    match form:
        case "done":
            adverb = dice.pick(ADVERB["perfect"]) if dice.chance(60) else None
            return replace(what, tense=Tense.PERFECT, adverb=adverb)
        case "now":
            time = dice.pick(TIME["n"]) if dice.chance(60) else None
            return replace(what, tense=Tense.PROGRESSIVE, time=time)
        case "future":
            time = future_time(dice) if dice.chance(70) else None
            return replace(what, tense=Tense.FUTURE, time=time)
        case "habit" if dice.chance(50):
            return replace(what, adverb=dice.pick(ADVERB["h"]))
        case "habit":
            return replace(what, time=dice.pick(TIME["h"]))
    modal = dice.pick([entry for entry in ALL_MODALS if not (entry.past and entry.lexical)])
    return replace(what, modal=modal, time=future_time(dice) if dice.chance(35) else None)


def located(dice: Dice, what: Clause) -> Clause:
    """Add a place, and perhaps say the time first."""
    target = what.object.noun.kind if isinstance(what.object, NounPhrase) else ""
    is_placed = what.direction is not None or target in {"room", "building", "area", "structure"}
    if not is_placed and dice.chance(25):
        what = replace(what, place=place(dice))
    return replace(what, time_first=what.time is not None and dice.chance(40))


def can_be_negated(what: Clause) -> bool:
    """Tell whether `not` would mean one thing only, and stand in one place only."""
    counted = isinstance(what.object, NounPhrase) and what.object.count is not None
    new_receiver = isinstance(what.indirect, NounPhrase) and not what.indirect.is_definite
    every = isinstance(what.subject, NounPhrase) and what.subject.determiner == "every"
    modal = what.modal is None or what.modal.en in {"can", "should"}
    return modal and not (counted or new_receiver or every or what.place or what.adverb)


def plain(what: Clause) -> Clause:
    """Take a time out of the front, as in subordinate clauses and questions."""
    return replace(what, time_first=False)


def being(dice: Dice, subject: Phrase, noun: Noun, *, is_past: bool) -> Clause:
    """Say what somebody or something is like."""
    adjective = adjective_for(dice, noun, graded=True)
    assert adjective is not None
    very = Pair("very ", "sehr ") if dice.chance(30) else Pair("", "")
    predicate = Pair(very.en + adjective.en, very.de + adjective.de)
    tense = Tense.PAST if is_past else Tense.PRESENT
    every = isinstance(subject, NounPhrase) and subject.determiner == "every"
    negated = not very.en and not every and dice.chance(15)
    return Clause(subject, COPULA, tense, predicate=predicate, negated=negated)


def main_clause(what: Clause) -> Pair:
    return Pair(english.clause(what), german.clause(what, Order.SECOND))


def subordinate(conjunction: Pair, what: Clause) -> Pair:
    what = plain(what)
    en = f"{conjunction.en} {english.clause(what)}"
    return Pair(en, f"{conjunction.de} {german.clause(what, Order.LAST)}")


def sentence(en: str, de: str, mark: str = ".") -> Pair:
    en = en.replace("can not", "cannot")
    return Pair(finish(en, mark), finish(de, mark))


# Constructions


def statement(dice: Dice) -> Pair:
    """The teacher closed the window yesterday."""
    said = main_clause(event(dice))
    return sentence(said.en, said.de)


def feeling(dice: Dice) -> Pair:
    """My sister knows the old hotel."""
    verb, subject = dice.pick(ALL_VERBS["feel"]), somebody(dice)
    is_person = "person" in verb.kinds and dice.chance(50)
    target = receiver(dice, subject) if is_person else None
    if target is None and not without(verb.kinds):
        target = receiver(dice, subject)
    target = target or thing(dice, without(verb.kinds))
    what = Clause(subject, verb, dice.pick((Tense.PRESENT, Tense.PAST)), object=target)
    negated = dice.chance(25) and can_be_negated(what)
    said = main_clause(replace(what, negated=negated))
    return sentence(said.en, said.de)


def lying(dice: Dice) -> Pair:
    """The key is lying under the newspaper; the vase stood on a shelf."""
    verb = dice.pick((*ALL_VERBS["lie"], *ALL_VERBS["stand"]))
    noun = dice.pick(nouns_of(verb.kinds))
    surface = NounPhrase(dice.pick(nouns_of(SURFACES)), dice.pick(("the", "a", "my", "her")))
    where = at(dice.pick(POSITIONS), Case.DATIVE, surface)
    adjective = adjective_for(dice, noun) if dice.chance(40) else None
    subject = NounPhrase(noun, dice.pick(("the", "a", *POSSESSIVES)), adjective)
    tense = dice.pick((Tense.PROGRESSIVE, Tense.PAST))
    said = main_clause(Clause(subject, verb, tense, direction=where))
    return sentence(said.en, said.de)


def reason(dice: Dice, subject: Phrase, *, is_past: bool) -> Pair:
    """Give a reason: the weather, a state of the subject, or somebody else's doing."""
    back = anaphor(subject)
    if dice.chance(20):
        weather = dice.pick(WEATHER_THEN if is_past else WEATHER_NOW)
        return Pair(f"because {weather.en}", f"weil {weather.de}")
    because = Pair("because", "weil")
    if back is not None and dice.chance(45):
        noun = dice.pick(nouns_of(("person",)))
        return subordinate(because, being(dice, back, noun, is_past=is_past))
    return subordinate(because, event(dice, back, is_past=is_past))


def because(dice: Dice) -> Pair:
    """The nurse is cooking a soup because she is hungry."""
    is_past = dice.chance(45)
    what = event(dice, is_past=is_past)
    why = reason(dice, what.subject, is_past=is_past)
    said = main_clause(what)
    return sentence(f"{said.en} {why.en}", f"{said.de}, {why.de}")


def condition(dice: Dice) -> Pair:
    """If it is raining, the teacher will close the window. (The clause fills the Vorfeld.)"""
    is_past = dice.chance(30)
    if_ = Pair("when", "als") if is_past else Pair("if", "wenn")
    if dice.chance(35):
        weather = dice.pick(WEATHER_THEN if is_past else WEATHER_NOW)
        first = Pair(f"{if_.en} {weather.en}", f"{if_.de} {weather.de}")
    else:
        first = subordinate(if_, replace(event(dice, is_past=is_past, forms=OPEN), time=None))
    return joined(dice, first, plain(event(dice, is_past=is_past, forms=RESULT)))


def although(dice: Dice) -> Pair:
    """Although the doctor was tired, he answered the letter."""
    is_past = dice.chance(50)
    subject = replace(described(dice, plural=dice.chance(25)), adjective=None)
    back = anaphor(subject) or subject
    tired = being(dice, subject, subject.noun, is_past=is_past)
    first = subordinate(Pair("although", "obwohl"), tired)
    return joined(dice, first, plain(event(dice, back, is_past=is_past)), may_turn=back is subject)


def joined(dice: Dice, first: Pair, main: Clause, *, may_turn: bool = True) -> Pair:
    """Put a subordinate clause before its main clause, or after it."""
    if may_turn and dice.chance(35):
        said = main_clause(main)
        return sentence(f"{said.en} {first.en}", f"{said.de}, {first.de}")
    en = f"{first.en}, {english.clause(main)}"
    de = german.clause(main, Order.SECOND, front=first.de + ",")
    return sentence(en, de)


def reported(dice: Dice) -> Pair:
    """Belona believes that the village doctor will sell his house."""
    asks = dice.chance(30)
    verb = dice.pick(ALL_VERBS["ask" if asks else "say"])
    link = Pair("whether", "ob") if asks else Pair("that", "dass")
    is_past = dice.chance(40)
    tense = Tense.PAST if is_past else Tense.PRESENT
    said = main_clause(Clause(somebody(dice), verb, tense))
    content = subordinate(link, event(dice, is_past=is_past or None))
    return sentence(f"{said.en} {content.en}", f"{said.de}, {content.de}")


def relative_to(noun: Noun, *, plural: bool, is_subject: bool) -> Pronoun:
    """Make the relative pronoun for a noun: who, whom or that; der, die, das, dem ..."""
    who, whom = ("who", "whom") if noun.kind == "person" else ("that", "that")
    forms = german.relative_pronoun(noun, plural=plural)
    number_of = Person.MANY if plural else Person.ONE
    return Pronoun(who if is_subject else whom, whom, forms, number_of, moves=True)


def who_does(dice: Dice) -> Pair:
    """The man who is repairing the old lamp is my neighbor's brother."""
    plural = dice.chance(25)
    someone = NounPhrase(dice.pick(nouns_of(("person",))), plural=plural)
    who = relative_to(someone.noun, plural=plural, is_subject=True)
    subject = replace(someone, relative=plain(event(dice, who)))
    is_past = dice.chance(30)
    if dice.chance(50):
        said = main_clause(being(dice, subject, subject.noun, is_past=is_past))
    else:
        said = main_clause(plain(event(dice, subject, is_past=is_past)))
    return sentence(said.en, said.de)


def that_is_done(dice: Dice) -> Pair:
    """The cake that the baker recommended was very expensive."""
    verb = dice.pick([entry for entry in ALL_VERBS["act"] if entry.prefix == ""])
    fitting = [entry for entry in nouns_of(verb.kinds) if adjectives_of(entry.senses, graded=True)]
    if not fitting:
        return that_is_done(dice)
    noun = dice.pick(fitting)
    plural = dice.chance(25) and not noun.is_mass
    gap = relative_to(noun, plural=plural, is_subject=False)
    inner = Clause(somebody(dice), verb, Tense.PAST, object=gap)
    if dice.chance(40):
        inner = replace(inner, time=past_time(dice))
    subject = NounPhrase(noun, "the", plural=plural, relative=inner)
    said = main_clause(being(dice, subject, noun, is_past=dice.chance(30)))
    return sentence(said.en, said.de)


def knowing_who(dice: Dice) -> Pair:
    """I know the woman who sold the castle."""
    verb = dice.pick([entry for entry in ALL_VERBS["feel"] if "person" in entry.kinds])
    plural = dice.chance(25)
    someone = NounPhrase(dice.pick(nouns_of(("person",))), plural=plural)
    who = relative_to(someone.noun, plural=plural, is_subject=True)
    target = replace(someone, relative=plain(event(dice, who)))
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    subject = somebody(dice)
    if isinstance(subject, NounPhrase) and subject.noun == someone.noun:
        return knowing_who(dice)
    said = main_clause(Clause(subject, verb, tense, object=target))
    return sentence(said.en, said.de)


def referring_back(dice: Dice) -> Pair:
    """The woman bought the lamp because it was cheap. (Weil sie billig war.)"""
    verb = dice.pick([entry for entry in ALL_VERBS["act"] if not entry.preposition])
    kinds = tuple(kind for kind in verb.kinds if kind not in {"person", "animal"})
    fitting = [entry for entry in nouns_of(kinds) if adjectives_of(entry.senses, graded=True)]
    if not fitting or verb.en in {"build", "write", "lose", "find"}:
        return referring_back(dice)
    noun = dice.pick(fitting)
    target = NounPhrase(noun, dice.pick(("the", "a", "this") if noun.de_plural else ("the",)))
    what = Clause(somebody(dice), verb, Tense.PAST, object=target)
    if dice.chance(30):
        what = replace(what, time=past_time(dice), time_first=dice.chance(50))
    because_ = dice.pick((Pair(" because", "weil"), Pair(", although", "obwohl")))
    why = subordinate(because_, being(dice, IT[noun.gender], noun, is_past=True))
    said = main_clause(what)
    return sentence(f"{said.en}{why.en}", f"{said.de}, {why.de}")


def but_it_is(dice: Dice) -> Pair:
    """This coat is old, but it is warm."""
    noun = dice.pick([entry for entry in nouns_of(THINGS) if not entry.is_mass])
    adjective = dice.pick(adjectives_of(noun.senses, graded=False))
    subject = NounPhrase(noun, dice.pick(("the", "this", *POSSESSIVES)))
    predicate = Pair(adjective.en, adjective.de)
    first = main_clause(Clause(subject, COPULA, Tense.PRESENT, predicate=predicate))
    second = main_clause(being(dice, IT[noun.gender], noun, is_past=False))
    other = second.de.split()[-1]
    if other == adjective.de or any({other, adjective.de} == set(p.split()) for p in OPPOSITES):
        return but_it_is(dice)
    return sentence(f"{first.en}, but {second.en}", f"{first.de}, aber {second.de}")


def comparison(dice: Dice) -> Pair:
    """The kitchen table is more expensive than the lamp; Belona is as polite as her sister."""
    kinds = dice.pick((("person",), THINGS, ("building",), ("animal",), ("room",)))
    first, second = thing(dice, kinds), thing(dice, kinds)
    adjective = adjective_for(dice, first.noun, graded=True)
    is_fair = adjective in adjectives_of(second.noun.senses, graded=True)
    are_known = first.is_definite and second.is_definite and first.noun != second.noun
    if adjective is None or not is_fair or not are_known:
        return comparison(dice)
    en_other, de_other = english.phrase(second), german.phrase(second, Case.NOMINATIVE)
    if dice.chance(60):
        en, de = f"{adjective.en_comparative} than", f"{adjective.de_comparative} als"
    else:
        en, de = f"as {adjective.en} as", f"so {adjective.de} wie"
    predicate = Pair(f"{en} {en_other}", f"{de} {de_other}")
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    said = main_clause(Clause(first, COPULA, tense, predicate=predicate))
    return sentence(said.en, said.de)


def of_a_thing(dice: Dice) -> Pair:
    """The roof of the old church is red. (A genitive.)"""
    part = dice.pick(nouns_of(("window", "door", "wall", "roof", "floor")))
    whole = thing(dice, ("building", "room"))
    if whole.determiner not in {"the", "this", "our"} or whole.owner or " " in part.en:
        return of_a_thing(dice)
    plural = dice.chance(30) and part.en != "roof"
    subject = NounPhrase(part, plural=plural, owner=whole)
    color = dice.pick([entry for entry in ALL_ADJECTIVES if not entry.de_comparative])
    predicate = dice.pick((Pair(color.en, color.de), Pair("old", "alt"), Pair("new", "neu")))
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    said = main_clause(Clause(subject, COPULA, tense, predicate=predicate))
    return sentence(said.en, said.de)


def price(dice: Dice) -> Pair:
    """The old sofa costs 1,250 euros; the apple cake costs 3.50 euros."""
    subject = thing(dice, (*THINGS, "cake", "soup", "salad"))
    if not subject.is_definite or subject.plural:
        return price(dice)
    if subject.noun.kind in {"food", "reading"}:
        value, cents = dice.between(2, 40), dice.pick((25, 50, 75, 90))
        amount = Pair(f"{value}.{cents}", f"{value},{cents}")
    else:
        amount = number(dice.between(*PRICES.get(subject.noun.kind, (20, 1999))))
    euros = Pair(f"{amount.en} euros", f"{amount.de} Euro")
    said = main_clause(Clause(subject, COST, Tense.PRESENT, direction=euros))
    return sentence(said.en, said.de)


def there_are(dice: Dice) -> Pair:
    """There are 4,300 books in the city library; Telmora has 12,400 inhabitants."""
    if dice.chance(50):
        amount, town = number(dice.between(150, 99999)), town_name(dice)
        return sentence(f"{town} has {amount.en} inhabitants", f"{town} hat {amount.de} Einwohner")
    noun = dice.pick([entry for entry in nouns_of(THINGS) if not entry.is_mass])
    many = NounPhrase(noun, "", plural=True, count=number(dice.between(13, 4999)))
    where = place(dice)
    en = f"there are {english.phrase(many)} {where.en}"
    return sentence(en, f"es gibt {where.de} {german.phrase(many, Case.ACCUSATIVE)}")


def biography(dice: Dice) -> Pair:
    """Belona is 34 years old and lives in Karvik; she was born there in 1987."""
    name, town, years = person_name(dice).text, town_name(dice), dice.between(5, 99)
    if dice.chance(50):
        born = year(dice)
        en = f"{name} was born in {town} {born.en}"
        return sentence(en, f"{name} wurde {born.de} in {town} geboren")
    en = f"{name} is {years} years old and lives in {town}"
    return sentence(en, f"{name} ist {years} Jahre alt und wohnt in {town}")


def home(dice: Dice) -> Pair:
    """The house in which Mr. Tarkamp lived is very old."""
    noun = dice.pick(nouns_of(("house", "hotel", "castle", "village", "city")))
    who, is_past = somebody(dice), dice.chance(50)
    living = plain(Clause(who, LIVE, Tense.PAST if is_past else Tense.PRESENT))
    dative = german.relative_pronoun(noun, plural=False)[Case.DATIVE.value]
    state = being(dice, NounPhrase(noun), noun, is_past=False)
    assert state.predicate is not None
    negation = Pair("not ", "nicht ") if state.negated else Pair("", "")
    en = f"the {noun.en} in which {english.clause(living)} is {negation.en}{state.predicate.en}"
    subject = german.phrase(NounPhrase(noun), Case.NOMINATIVE)
    inner = german.clause(living, Order.LAST)
    de = f"{subject}, in {dative} {inner}, ist {negation.de}{state.predicate.de}"
    return sentence(en, de)


def yes_or_no(dice: Dice) -> Pair:
    """Did you close the kitchen window?"""
    what = plain(event(dice))
    if what.modal and (what.modal.lexical or what.modal.en == "should"):
        return yes_or_no(dice)
    return sentence(english.clause(what, inverted=True), german.clause(what, Order.FIRST), "?")


def when_where_why(dice: Dice) -> Pair:
    """When will the singer come to Karvik?"""
    word = dice.pick((Pair("when", "wann"), Pair("why", "warum"), Pair("where", "wo")))
    what = replace(plain(event(dice)), place=None, negated=False)
    if what.modal and what.modal.lexical:
        return when_where_why(dice)
    if word.en != "why":
        what = replace(what, time=None, adverb=None)
    if (word.en == "where" and what.direction) or (word.en == "when" and is_timeless(what)):
        return when_where_why(dice)
    en = english.clause(what, word.en, inverted=True)
    return sentence(en, german.clause(what, Order.SECOND, front=word.de), "?")


def is_timeless(what: Clause) -> bool:
    return what.tense in {Tense.PROGRESSIVE, Tense.PERFECT}


def who_or_what(dice: Dice) -> Pair:
    """Who bought the violin? What is the judge reading?"""
    if dice.chance(50):
        who = Pronoun("who", "who", ("wer", "wen", "wem"), Person.ONE, moves=True)
        what = plain(event(dice, who))
    else:
        verbs = [v for v in ALL_VERBS["act"] if not v.preposition and "person" not in v.kinds]
        which = Pronoun("what", "what", ("was", "was", ""), Person.ONE, moves=True)
        what = Clause(somebody(dice), dice.pick(verbs), Tense.PRESENT, object=which)
        what = plain(told_before(dice, what) if dice.chance(40) else told_now(dice, what))
    if what.modal and what.modal.lexical:
        return who_or_what(dice)
    return sentence(english.clause(what, inverted=True), german.clause(what, Order.SECOND), "?")


def request(dice: Dice) -> Pair:
    """Please bring my sister a cup."""
    what = framed(dice, PRONOUN["you"])
    if what.verb.en in {"come", "dream of", "laugh at", "lose", "find", "see"}:
        return request(dice)
    if dice.chance(40) and not what.direction:
        what = replace(what, time=dice.pick((Pair("today", "heute"), Pair("now", "jetzt"))))
    return sentence(f"please {english.predicate(what)}", german.imperative(what))


def quotation(dice: Dice) -> Pair:
    """ "I don't know the hotel," said Belona. The commas stand on different sides."""
    speaker = person_name(dice)
    first = PRONOUN[dice.pick(("I", "we"))]
    said = main_clause(plain(event(dice, first if dice.chance(60) else None)))
    is_past = dice.chance(60)
    verb = Pair("said", "sagte") if is_past else Pair("says", "sagt")
    who = german.phrase(speaker, Case.NOMINATIVE)
    en = f'"{english.contracted(said.en)}," {verb.en} {english.phrase(speaker)}'
    return sentence(en, f"\u201e{capital(said.de)}\u201c, {verb.de} {who}")


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def intention(dice: Dice) -> Pair:
    """Belona is trying to open the suitcase. (Den Koffer aufzumachen.)"""
    subject = somebody(dice)
    verb = dice.pick(ALL_VERBS["intend"])
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    inner = framed(dice, subject)
    if dice.chance(35) and inner.direction is None:
        inner = replace(inner, place=place(dice))
    said = main_clause(Clause(subject, verb, tense))
    en = f"{said.en} to {english.predicate(inner)}"
    return sentence(en, f"{said.de}, {german.infinitive_clause(inner)}")


def purpose(dice: Dice) -> Pair:
    """My uncle is driving to the city in order to buy a coat."""
    subject = somebody(dice)
    verb = dice.pick(ALL_VERBS["go"])
    going = Clause(subject, verb, Tense.PRESENT, direction=direction(dice, verb))
    going = told_before(dice, going) if dice.chance(45) else told_now(dice, going)
    inner = framed(dice, subject)
    if inner.verb in ALL_VERBS["go"]:
        return purpose(dice)
    said = main_clause(plain(going))
    en = f"{said.en} in order to {english.predicate(inner)}"
    return sentence(en, f"{said.de}, um {german.infinitive_clause(inner)}")


def aside(dice: Dice) -> Pair:
    """The novel (312 pages) is very long."""
    noun = dice.pick(nouns_of(("reading", "hotel", "hospital", "castle", "school")))
    is_book = noun.kind == "reading"
    unit = Pair("pages", "Seiten") if is_book else Pair("rooms", "Zimmer")
    amount = number(dice.between(12, 1400 if is_book else 180))
    what = NounPhrase(noun, dice.pick(("the", "this", *POSSESSIVES)))
    state = being(dice, what, noun, is_past=dice.chance(30))
    added = Pair(f"({amount.en} {unit.en})", f"({amount.de} {unit.de})")
    en_subject, de_subject = english.phrase(what), german.phrase(what, Case.NOMINATIVE)
    said = main_clause(state)
    en = said.en.replace(en_subject, f"{en_subject} {added.en}", 1)
    return sentence(en, said.de.replace(de_subject, f"{de_subject} {added.de}", 1))


def possession(dice: Dice) -> Pair:
    """Mrs. Tarkamp has two dogs and a cat."""
    kinds = dice.pick((("animal",), THINGS))
    first, second = thing(dice, kinds), thing(dice, kinds)
    if first.is_definite or second.is_definite or first.noun == second.noun:
        return possession(dice)
    subject, is_past = somebody(dice), dice.chance(30)
    tense = Tense.PAST if is_past else Tense.PRESENT
    said = main_clause(Clause(subject, HAVE, tense, object=first))
    de_second = german.phrase(second, Case.ACCUSATIVE)
    return sentence(f"{said.en} and {english.phrase(second)}", f"{said.de} und {de_second}")


def coordination(dice: Dice) -> Pair:
    """The farmer is working in the garden, and his son is sleeping."""
    is_past = dice.chance(40)
    link = dice.pick((Pair(", and", " und"), Pair(", but", ", aber")))
    first, second = (main_clause(plain(event(dice, is_past=is_past))) for _ in range(2))
    return sentence(f"{first.en}{link.en} {second.en}", f"{first.de}{link.de} {second.de}")


def beginning(dice: Dice) -> Pair:
    """The music lesson begins at 7:45."""
    what = thing(dice, ("event",))
    if not what.is_definite or what.plural:
        return beginning(dice)
    when = clock(dice) if dice.chance(60) else date(dice)
    en, de = english.phrase(what), german.phrase(what, Case.NOMINATIVE)
    if dice.chance(50):
        return sentence(f"{en} begins {when.en}", f"{de} beginnt {when.de}")
    return sentence(f"{en} began {when.en}", f"{de} begann {when.de}")


Construction = Callable[[Dice], Pair]

CONSTRUCTIONS: tuple[tuple[int, Construction], ...] = (
    (300, statement),
    (30, feeling),
    (20, lying),
    (60, because),
    (60, condition),
    (30, although),
    (55, reported),
    (35, who_does),
    (25, that_is_done),
    (25, knowing_who),
    (30, referring_back),
    (20, but_it_is),
    (30, comparison),
    (20, of_a_thing),
    (25, price),
    (25, there_are),
    (25, biography),
    (12, home),
    (45, yes_or_no),
    (25, when_where_why),
    (25, who_or_what),
    (30, request),
    (40, quotation),
    (35, intention),
    (35, purpose),
    (12, aside),
    (20, possession),
    (35, coordination),
    (15, beginning),
)
