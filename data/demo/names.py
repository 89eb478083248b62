"""Invented names of people and towns, built from syllables.

There are so many names that more than a third of those in the test set do not occur in the training
text: a model can only copy them, subword by subword. No name ends in an s, z or similar sound, so
that all have the regular German genitive: Belonas Haus.
"""

from dice import Dice
from meaning import Name

ONSETS = "b br d dr f fl g gr j k kl l m n p r s sch st t tr v w"
VOWELS = "a a e e i o u"
RARE_VOWELS = "ä ö ü é"
CODAS = "l n r m nd rn"
GIVEN_ENDINGS = "la na ra mira lina ria dan rin mon tor bert"
FAMILY_ENDINGS = "wick mann berg feld ner ler hoff kamp son ling rell dahl"
TOWN_ENDINGS = "heim ford burg vik mora tal dorf stadt wald brück hafen stein"


def stem(dice: Dice) -> str:
    """Make the syllable that comes before an ending."""
    vowel = dice.pick((RARE_VOWELS if dice.chance(4) else VOWELS).split())
    coda = dice.pick(CODAS.split()) if dice.chance(40) else ""
    return dice.pick(ONSETS.split()) + vowel + coda


def given_name(dice: Dice) -> str:
    return (stem(dice) + dice.pick(GIVEN_ENDINGS.split())).capitalize()


def family_name(dice: Dice) -> str:
    """Make Tarkamp, now and then Tarkamp-Bolberg."""
    name = (stem(dice) + dice.pick(FAMILY_ENDINGS.split())).capitalize()
    return f"{name}-{family_name(dice)}" if dice.chance(5) else name


def person_name(dice: Dice) -> Name:
    """Name somebody: Belona, Belona Tarkamp, Mr. Tarkamp, Dr. Tarkamp."""
    form = dice.weigh([(55, "given"), (20, "full"), (9, "Mr."), (9, "Mrs."), (7, "Dr.")])
    if form == "given":
        return Name(given_name(dice))
    if form == "full":
        return Name(f"{given_name(dice)} {family_name(dice)}")
    return Name(family_name(dice), title=form)


def town_name(dice: Dice) -> str:
    return (stem(dice) + dice.pick(TOWN_ENDINGS.split())).capitalize()
