"""English: plurals, verb groups with do-support, and subject-verb-object order."""

from meaning import Clause, Name, NounPhrase, Person, Phrase, Pronoun, Tense, Verb, moved, person

VOWELS = "aeiou"
GIVE_TO = {"explain", "recommend"}  # these say to whom after what: explain the plan to the boy
BE = {
    Person.I: ("am", "was"),
    Person.ONE: ("is", "was"),
    Person.MANY: ("are", "were"),
}
CONTRACTED = {
    "is not": "isn't",
    "are not": "aren't",
    "was not": "wasn't",
    "were not": "weren't",
    "has not": "hasn't",
    "have not": "haven't",
    "do not": "don't",
    "does not": "doesn't",
    "did not": "didn't",
    "will not": "won't",
    "I am ": "I'm ",
}


def add_s(word: str) -> str:
    """Add the s of a plural or of the third person: boxes, ladies, boys; and has."""
    if word == "have":
        return "has"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def is_short(word: str) -> bool:
    """Tell whether the last consonant doubles before -ed and -ing: stop, but not repair."""
    one_syllable = sum(letter in VOWELS for letter in word) == 1
    return one_syllable and word[-1] not in VOWELS + "wxy" and word[-2] in VOWELS


def add_ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ied"
    return word + word[-1] * is_short(word) + "ed"


def add_ing(word: str) -> str:
    if word.endswith("ie"):
        return word[:-2] + "ying"
    if word.endswith("e") and not word.endswith("ee"):
        return word[:-1] + "ing"
    return word + word[-1] * is_short(word) + "ing"


def add_er(word: str) -> str:
    """Form the comparative of a short adjective: older, bigger, heavier."""
    if word.endswith("e"):
        return word + "r"
    if word.endswith("y"):
        return word[:-1] + "ier"
    return word + word[-1] * is_short(word) + "er"


def a_or_an(rest: str) -> str:
    """Choose the article by sound: an hour, a university, an 18-year-old boy."""
    if rest.startswith(("uni", "use", "Eu")):
        return "a"
    sounds_like_vowel = rest[0].lower() in VOWELS or rest.startswith(("8", "11-", "18-", "hour"))
    return "an" if sounds_like_vowel else "a"


def phrase(what: Phrase, *, subject: bool = False) -> str:
    """Say any phrase; only pronouns tell a subject from an object."""
    match what:
        case Pronoun():
            return what.en if subject else what.en_object
        case Name():
            return f"{what.title} {what.text}".strip()
        case NounPhrase():
            return noun_phrase(what)


def possessive(what: Phrase) -> str:
    text = phrase(what)
    is_plural = isinstance(what, NounPhrase) and what.plural
    return text + ("'" if is_plural and text.endswith("s") else "'s")


def noun_phrase(what: NounPhrase) -> str:
    """Say determiner, adjective and noun; a person owns with 's, a thing with `of`."""
    words = [what.noun.en_plural if what.plural else what.noun.en]
    if what.adjective is not None:
        words.insert(0, what.adjective.en)
    if what.age is not None:
        words.insert(0, f"{what.age}-year-old")
    owned_by_thing = isinstance(what.owner, NounPhrase) and what.owner.noun.kind != "person"
    if what.owner is not None and not owned_by_thing:
        words.insert(0, possessive(what.owner))
    elif what.count is not None:
        words.insert(0, what.count.en)
    elif what.determiner == "a":
        words.insert(0, a_or_an(words[0]))
    else:
        words.insert(0, what.determiner)
    if what.owner is not None and owned_by_thing:
        words.append(f"of {phrase(what.owner)}")
    if what.relative is not None:
        words.append(clause(what.relative))
    return " ".join(filter(None, words))


def inflect(verb: Verb, ending: str) -> str:
    """Inflect the first word of a verb, which may have a particle: turn on -> turning on."""
    head, _, particle = verb.en.partition(" ")
    forms = {"s": add_s, "ing": add_ing}
    return f"{forms[ending](head)} {particle}".strip()


def verb_group(what: Clause, *, needs_auxiliary: bool) -> list[str]:
    """Return the verbs, finite one first; negation and questions need an auxiliary (do)."""
    verb, who = what.verb, person(what.subject)
    third = who is Person.ONE
    if what.modal is not None:
        form = what.modal.en_third if third else what.modal.en
        return [f"{form} {verb.en}"] if what.modal.lexical else [form, verb.en]
    match what.tense:
        case Tense.PERFECT:
            group = ["has" if third else "have", verb.en_participle]
        case Tense.FUTURE:
            group = ["will", verb.en]
        case Tense.PROGRESSIVE:
            group = [BE[who][0], inflect(verb, "ing")]
        case Tense.PRESENT | Tense.PAST if verb.en == "be":
            group = [BE[who][what.tense is Tense.PAST]]
        case Tense.PRESENT if needs_auxiliary:
            group = ["does" if third else "do", verb.en]
        case Tense.PRESENT:
            group = [inflect(verb, "s") if third else verb.en]
        case Tense.PAST:
            group = ["did", verb.en] if needs_auxiliary else [verb.en_past]
    return group


def rest_of_clause(what: Clause, opening: Phrase | None) -> list[str]:
    """Say everything that follows the verbs: receiver, object, complements, place, time."""
    objects = [
        phrase(argument)
        for argument in (what.indirect, what.object)
        if argument is not None and argument is not opening
    ]
    if what.indirect is not None and what.verb.en in GIVE_TO:
        objects = [objects[1], f"to {objects[0]}"]
    time_last = None if what.time_first else what.time
    circumstances = (what.predicate, what.direction, what.place, time_last)
    return objects + [circumstance.en for circumstance in circumstances if circumstance]


def clause(what: Clause, question: str = "", *, inverted: bool = False) -> str:
    """Say a clause; a question (`inverted`) may open with a word such as `when`."""
    opening = moved(what)
    inverted = inverted and opening is not what.subject
    verbs = verb_group(what, needs_auxiliary=what.negated or inverted)
    subject = phrase(what.subject, subject=True)
    front = question
    if opening is not None and opening is not what.subject:
        front = phrase(opening)
    elif what.time_first and what.time:
        front = f"{what.time.en},"
    beside_verb = ["not"] * what.negated + ([what.adverb.en] if what.adverb else [])
    if inverted:
        words = [front, verbs[0], subject, *beside_verb, *verbs[1:]]
    elif len(verbs) > 1 or what.verb.en == "be":
        words = [front, subject, verbs[0], *beside_verb, *verbs[1:]]
    else:
        words = [front, subject, *beside_verb, *verbs]
    return " ".join(filter(None, words + rest_of_clause(what, opening)))


def predicate(what: Clause) -> str:
    """Say a clause without subject or tense, as after `to` and in commands."""
    return " ".join([what.verb.en, *rest_of_clause(what, what.subject)])


def contracted(text: str) -> str:
    """Speak as people do between quotation marks: don't, isn't, I'm."""
    for full, short in CONTRACTED.items():
        text = text.replace(full, short)
    return text
