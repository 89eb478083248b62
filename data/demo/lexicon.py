"""The words, in tables laid out as in a learner's dictionary, and the few rules to read them.

Every English word has exactly one German translation and vice versa, so that no translation is
ambiguous.
Columns are separated by two or more spaces.
"""

# ruff: noqa: E501  (a table reads best with one entry a line)

import re
from dataclasses import replace

from english import add_ed, add_er, add_s
from meaning import Adjective, Case, Modal, Noun, Pair, Person, Pronoun, Verb

# English, then German with article and plural. A noun without plural is a mass noun.
NOUNS = """
[person]
teacher         der Lehrer, Lehrer
doctor          der Arzt, Ärzte
student         der Student, Studenten
neighbor        der Nachbar, Nachbarn
boy             der Junge, Jungen
man             der Mann, Männer
woman           die Frau, Frauen
child           das Kind, Kinder
baker           der Bäcker, Bäcker
farmer          der Bauer, Bauern
gardener        der Gärtner, Gärtner
judge           der Richter, Richter
mayor           der Bürgermeister, Bürgermeister
painter         der Maler, Maler
singer          der Sänger, Sänger
tourist         der Tourist, Touristen
journalist      der Journalist, Journalisten
pilot           der Pilot, Piloten
colleague       der Kollege, Kollegen
customer        der Kunde, Kunden
guest           der Gast, Gäste
cook            der Koch, Köche
lawyer          der Anwalt, Anwälte
engineer        der Ingenieur, Ingenieure
craftsman       der Handwerker, Handwerker
visitor         der Besucher, Besucher
police officer  der Polizist, Polizisten
nurse           die Krankenschwester, Krankenschwestern
father          der Vater, Väter
mother          die Mutter, Mütter
brother         der Bruder, Brüder
sister          die Schwester, Schwestern
son             der Sohn, Söhne
daughter        die Tochter, Töchter
uncle           der Onkel, Onkel
aunt            die Tante, Tanten
grandfather     der Großvater, Großväter
grandmother     die Großmutter, Großmütter
[animal]
dog             der Hund, Hunde
cat             die Katze, Katzen
horse           das Pferd, Pferde
bird            der Vogel, Vögel
cow             die Kuh, Kühe
sheep           das Schaf, Schafe
rabbit          das Kaninchen, Kaninchen
bear            der Bär, Bären
duck            die Ente, Enten
donkey          der Esel, Esel
[food]
apple           der Apfel, Äpfel
pear            die Birne, Birnen
cherry          die Kirsche, Kirschen
tomato          die Tomate, Tomaten
potato          die Kartoffel, Kartoffeln
egg             das Ei, Eier
cake            der Kuchen, Kuchen
soup            die Suppe, Suppen
salad           der Salat, Salate
sausage         die Wurst, Würste
bread           das Brot
cheese          der Käse
fish            der Fisch
[drink]
water           das Wasser
milk            die Milch
tea             der Tee
coffee          der Kaffee
juice           der Saft
beer            das Bier
wine            der Wein
[reading]
book            das Buch, Bücher
newspaper       die Zeitung, Zeitungen
letter          der Brief, Briefe
novel           der Roman, Romane
poem            das Gedicht, Gedichte
report          der Bericht, Berichte
contract        der Vertrag, Verträge
recipe          das Rezept, Rezepte
[clothing]
coat            der Mantel, Mäntel
dress           das Kleid, Kleider
shirt           das Hemd, Hemden
jacket          die Jacke, Jacken
hat             der Hut, Hüte
skirt           der Rock, Röcke
scarf           der Schal, Schals
shoe            der Schuh, Schuhe
[vehicle]
car             das Auto, Autos
bicycle         das Fahrrad, Fahrräder
bus             der Bus, Busse
ship            das Schiff, Schiffe
boat            das Boot, Boote
train           der Zug, Züge
truck           der Lastwagen, Lastwagen
[furniture]
table           der Tisch, Tische
chair           der Stuhl, Stühle
bed             das Bett, Betten
cupboard        der Schrank, Schränke
shelf           das Regal, Regale
sofa            das Sofa, Sofas
[device]
lamp            die Lampe, Lampen
computer        der Computer, Computer
radio           das Radio, Radios
camera          die Kamera, Kameras
machine         die Maschine, Maschinen
printer         der Drucker, Drucker
oven            der Ofen, Öfen
[object]
clock           die Uhr, Uhren
key             der Schlüssel, Schlüssel
bottle          die Flasche, Flaschen
cup             die Tasse, Tassen
plate           der Teller, Teller
knife           das Messer, Messer
picture         das Bild, Bilder
ball            der Ball, Bälle
umbrella        der Regenschirm, Regenschirme
vase            die Vase, Vasen
mirror          der Spiegel, Spiegel
bag             die Tasche, Taschen
box             die Kiste, Kisten
suitcase        der Koffer, Koffer
flower          die Blume, Blumen
gift            das Geschenk, Geschenke
[instrument]
piano           das Klavier, Klaviere
violin          die Geige, Geigen
guitar          die Gitarre, Gitarren
flute           die Flöte, Flöten
[part]
window          das Fenster, Fenster
door            die Tür, Türen
[structure]
wall            die Wand, Wände
roof            das Dach, Dächer
floor           der Boden, Böden
[room]
kitchen         die Küche, Küchen
bathroom        das Badezimmer, Badezimmer
bedroom         das Schlafzimmer, Schlafzimmer
cellar          der Keller, Keller
office          das Büro, Büros
garage          die Garage, Garagen
[building]
house           das Haus, Häuser
school          die Schule, Schulen
hotel           das Hotel, Hotels
museum          das Museum, Museen
library         die Bibliothek, Bibliotheken
church          die Kirche, Kirchen
restaurant      das Restaurant, Restaurants
castle          das Schloss, Schlösser
factory         die Fabrik, Fabriken
bakery          die Bäckerei, Bäckereien
theater         das Theater, Theater
hospital        das Krankenhaus, Krankenhäuser
pharmacy        die Apotheke, Apotheken
[area]
garden          der Garten, Gärten
park            der Park, Parks
village         das Dorf, Dörfer
city            die Stadt, Städte
forest          der Wald, Wälder
valley          das Tal, Täler
[event]
concert         das Konzert, Konzerte
party           die Feier, Feiern
meeting         die Sitzung, Sitzungen
exam            die Prüfung, Prüfungen
trip            die Reise, Reisen
lesson          die Stunde, Stunden
[topic]
problem         das Problem, Probleme
idea            die Idee, Ideen
plan            der Plan, Pläne
question        die Frage, Fragen
journey         die Fahrt, Fahrten
price           der Preis, Preise
"""

IRREGULAR_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "craftsman": "craftsmen",
    "sheep": "sheep",
    "tomato": "tomatoes",
    "potato": "potatoes",
    "scarf": "scarves",
    "shelf": "shelves",
    "knife": "knives",
}

# Compounds: each first part (with its linking element) joins each head, whose gender, plural and
# declension rule the whole: kitchen window, das Küchenfenster, die Küchenfenster.
COMPOUNDS = """
kitchen Küchen-, school Schul-, hotel Hotel-, office Büro-                + window door lamp table chair clock
garden Garten-, bedroom Schlafzimmer-                                     + chair table lamp door
car Auto-, house Haus-, garage Garagen-, hotel Hotel-, cellar Keller-     + key door
apple Apfel-, cherry Kirsch-, plum Pflaumen-, nut Nuss-, lemon Zitronen-  + cake
tomato Tomaten-, potato Kartoffel-, onion Zwiebel-, vegetable Gemüse-     + soup salad
apple Apfel-, cherry Kirsch-, orange Orangen-, tomato Tomaten-            + juice
winter Winter-, summer Sommer-                                            + coat dress jacket shoe hat
leather Leder-, wool Woll-                                                + jacket coat hat
silk Seiden-, cotton Baumwoll-                                            + dress shirt skirt scarf
history Geschichts-, music Musik-, art Kunst-, biology Biologie-          + teacher student book exam lesson
village Dorf-, city Stadt-                                                + school church library park
village Dorf-                                                             + doctor teacher baker
mountain Berg-, island Insel-, forest Wald-, beach Strand-, harbor Hafen- + hotel restaurant
mountain Berg-, fishing Fischer-, island Insel-                           + village
wine Wein-, milk Milch-, beer Bier-, water Wasser-                        + bottle
travel Reise-, school Schul-, sports Sport-                               + bag
animal Tier-, eye Augen-                                                  + doctor
city Stadt-, art Kunst-, toy Spielzeug-, film Film-                       + museum
"""

# English, then German, its comparative, and the kinds of noun that can be so.
ADJECTIVES = """
old          alt, älter                  person animal place thing reading
young        jung, jünger                person animal
new          neu, neuer                  thing place reading
big          groß, größer                animal place thing
small        klein, kleiner              animal place thing
friendly     freundlich, freundlicher    person animal
polite       höflich, höflicher          person
tired        müde müd-, müder            person animal
curious      neugierig, neugieriger      person animal
famous       berühmt, berühmter          person building
patient      geduldig, geduldiger        person
brave        mutig, mutiger              person animal
lazy         faul, fauler                person animal
rich         reich, reicher              person
beautiful    schön, schöner              place thing
expensive    teuer teur-, teurer         thing drink food hotel restaurant
cheap        billig, billiger            thing drink food hotel restaurant
heavy        schwer, schwerer            furniture suitcase box bag
practical    praktisch, praktischer      furniture device clothing bag
modern       modern, moderner            place device furniture
dark         dunkel dunkl-, dunkler      clothing room
bright       hell, heller                room
quiet        ruhig, ruhiger              place
interesting  interessant, interessanter  reading event topic
boring       langweilig, langweiliger    reading event
important    wichtig, wichtiger          reading event topic
long         lang, länger                reading event
short        kurz, kürzer                reading event
difficult    schwierig, schwieriger      topic
fresh        frisch, frischer            food milk juice
warm         warm, wärmer                clothing soup milk tea coffee
cold         kalt, kälter                drink
healthy      gesund, gesünder            salad soup apple tomato animal
happy        glücklich, glücklicher      person
sad          traurig, trauriger          person
hungry       hungrig, hungriger          animal
red          rot                         thing
blue         blau                        thing
green        grün                        thing
black        schwarz                     thing animal
white        weiß                        thing animal
"""

KINDS_OF = {
    "thing": ("clothing", "vehicle", "furniture", "device", "object", "instrument", "part"),
    "place": ("room", "building", "area"),
}

# English (with past and participle where irregular), German infinitive with its prefix, third
# person, past, participle ("ist" where sein builds the perfect), then object kinds. A prefix before
# "|" separates. A word in brackets is the preposition or case that the German object takes.
VERBS = """
[act]
buy bought bought        kaufen, kauft, kaufte, gekauft                               food clothing vehicle furniture device object instrument reading
sell sold sold           verkaufen, verkauft, verkaufte, verkauft                     food clothing vehicle furniture device object instrument animal
order                    bestellen, bestellt, bestellte, bestellt                     food drink furniture device
eat ate eaten            essen, isst, aß, gegessen                                    food
try                      probieren, probiert, probierte, probiert                     food drink
drink drank drunk        trinken, trinkt, trank, getrunken                            drink
read read read           lesen, liest, las, gelesen                                   reading
write wrote written      schreiben, schreibt, schrieb, geschrieben                    letter novel poem report recipe book
translate                übersetzen, übersetzt, übersetzte, übersetzt                 reading
sign                     unterschreiben, unterschreibt, unterschrieb, unterschrieben  contract report letter
repair                   reparieren, repariert, reparierte, repariert                 vehicle furniture device instrument part roof
clean                    putzen, putzt, putzte, geputzt                               room window door floor shoe mirror
paint                    malen, malt, malte, gemalt                                   animal flower castle church picture
build built built        bauen, baut, baute, gebaut                                   house boat ship bed table school
open                     auf|machen, macht, machte, gemacht                           part bottle box suitcase umbrella gift
close                    zu|machen, macht, machte, gemacht                            part box suitcase umbrella bag
lock                     ab|schließen, schließt, schloss, geschlossen                 door cupboard car bicycle house suitcase
turn on                  ein|schalten, schaltet, schaltete, geschaltet                device
turn off                 aus|schalten, schaltet, schaltete, geschaltet                device
pick up                  ab|holen, holt, holte, geholt                                person
invite                   ein|laden, lädt, lud, geladen                                person
tidy up                  auf|räumen, räumt, räumte, geräumt                           room
bring along              mit|bringen, bringt, brachte, gebracht                       food drink instrument object reading
prepare                  vor|bereiten, bereitet, bereitete, bereitet                  food event
call                     an|rufen, ruft, rief, gerufen                                person
put on                   an|ziehen, zieht, zog, gezogen                               coat dress shirt jacket skirt shoe
visit                    besuchen, besucht, besuchte, besucht                         person building village city
see saw seen             sehen, sieht, sah, gesehen                                   person animal vehicle building
photograph               fotografieren, fotografiert, fotografierte, fotografiert     animal building person village
look for                 suchen, sucht, suchte, gesucht                               object person animal clothing
find found found         finden, findet, fand, gefunden                               object animal clothing
lose lost lost           verlieren, verliert, verlor, verloren                        key bag umbrella ball hat scarf suitcase
carry                    tragen, trägt, trug, getragen                                suitcase box bag chair
use                      benutzen, benutzt, benutzte, benutzt                         device vehicle object
wash                     waschen, wäscht, wusch, gewaschen                            car dress shirt skirt scarf plate cup
draw drew drawn          zeichnen, zeichnet, zeichnete, gezeichnet                    animal flower castle church
greet                    begrüßen, begrüßt, begrüßte, begrüßt                         person
wait for                 warten, wartet, wartete, gewartet (auf+acc)                  person bus train
talk about               sprechen, spricht, sprach, gesprochen (über+acc)             topic event person reading
think about              nach|denken, denkt, dachte, gedacht (über+acc)               topic
laugh at                 lachen, lacht, lachte, gelacht (über+acc)                    animal clothing idea question picture
dream of                 träumen, träumt, träumte, geträumt (von+dat)                 building trip concert animal
ask for                  bitten, bittet, bat, gebeten (um+acc)                        drink food object
take part in             teil|nehmen, nimmt, nahm, genommen (an+dat)                  event
start with               an|fangen, fängt, fing, gefangen (mit+dat)                   lesson trip party
help                     helfen, hilft, half, geholfen (dat)                          person
thank                    danken, dankt, dankte, gedankt (dat)                         person
answer                   antworten, antwortet, antwortete, geantwortet (dat)          person
congratulate             gratulieren, gratuliert, gratulierte, gratuliert (dat)       person
listen to                zu|hören, hört, hörte, gehört (dat)                          person
follow                   folgen, folgt, folgte, ist gefolgt (dat)                     person animal
[give]
give gave given          geben, gibt, gab, gegeben                                    object reading clothing drink food
show showed shown        zeigen, zeigt, zeigte, gezeigt                               object reading clothing building vehicle
send sent sent           schicken, schickt, schickte, geschickt                       object reading clothing
lend lent lent           leihen, leiht, lieh, geliehen                                object vehicle instrument book
explain                  erklären, erklärt, erklärte, erklärt                         plan problem contract recipe
recommend                empfehlen, empfiehlt, empfahl, empfohlen                     hotel restaurant book novel museum
bring brought brought    bringen, bringt, brachte, gebracht                           drink food object reading
[be busy]
work                     arbeiten, arbeitet, arbeitete, gearbeitet
sleep slept slept        schlafen, schläft, schlief, geschlafen
dance                    tanzen, tanzt, tanzte, getanzt
sing sang sung           singen, singt, sang, gesungen
learn                    lernen, lernt, lernte, gelernt
cook                     kochen, kocht, kochte, gekocht
celebrate                feiern, feiert, feierte, gefeiert
shop                     ein|kaufen, kauft, kaufte, gekauft
go for a walk            spazieren |gehen, geht, ging, ist gegangen
[go]
drive drove driven       fahren, fährt, fuhr, ist gefahren
walk                     gehen, geht, ging, ist gegangen
travel                   reisen, reist, reiste, ist gereist
run ran run              laufen, läuft, lief, ist gelaufen
come came come           kommen, kommt, kam, ist gekommen
fly flew flown           fliegen, fliegt, flog, ist geflogen
[feel]
love                     lieben, liebt, liebte, geliebt                               person animal
know knew known          kennen, kennt, kannte, gekannt                               person hotel restaurant museum village book poem recipe
need                     brauchen, braucht, brauchte, gebraucht                       object device furniture vehicle clothing
own                      besitzen, besitzt, besaß, besessen                           house hotel restaurant factory boat castle
hate                     hassen, hasst, hasste, gehasst                               exam meeting lesson
admire                   bewundern, bewundert, bewunderte, bewundert                  person
[put]
put put put              legen, legt, legte, gelegt                                   key letter book newspaper knife scarf gift
place                    stellen, stellt, stellte, gestellt                           bottle cup vase lamp box plate
[lie]
lie lay lain             liegen, liegt, lag, gelegen                                  key letter book newspaper knife scarf gift
[stand]
stand stood stood        stehen, steht, stand, gestanden                              bottle cup vase lamp box plate
[say]
say said said            sagen, sagt, sagte, gesagt
know knew known          wissen, weiß, wusste, gewusst
believe                  glauben, glaubt, glaubte, geglaubt
hope                     hoffen, hofft, hoffte, gehofft
write wrote written      schreiben, schreibt, schrieb, geschrieben
[ask]
ask                      fragen, fragt, fragte, gefragt
[intend]
try                      versuchen, versucht, versuchte, versucht
hope                     hoffen, hofft, hoffte, gehofft
promise                  versprechen, verspricht, versprach, versprochen
forget forgot forgotten  vergessen, vergisst, vergaß, vergessen
plan                     planen, plant, plante, geplant
[copula]
be was been              sein, ist, war, ist gewesen
[state]
live                     wohnen, wohnt, wohnte, gewohnt
cost cost cost           kosten, kostet, kostete, gekostet
have had had             haben, hat, hatte, gehabt
"""

# English third person, plural, German infinitive with its third person and past.
MODALS = """
can        can        können kann konnte  -
must       must       müssen muss musste  -
may        may        dürfen darf durfte  -
should     should     sollen soll sollte  past
wants to   want to    wollen will wollte  lexical
wanted to  wanted to  wollen will wollte  lexical past
had to     had to     müssen muss musste  lexical past
"""

# English, German, and the tenses they go with (h habit, n now, p past, f future).
TIMES = """
yesterday          gestern          p
yesterday morning  gestern Morgen   p
yesterday evening  gestern Abend    p
last week          letzte Woche     p
last month         letzten Monat    p
last year          letztes Jahr     p
last summer        letzten Sommer   p
two days ago       vor zwei Tagen   p
three weeks ago    vor drei Wochen  p
five years ago     vor fünf Jahren  p
tomorrow           morgen           f n
tomorrow morning   morgen früh      f n
tomorrow evening   morgen Abend     f n
next week          nächste Woche    f n
next month         nächsten Monat   f n
next year          nächstes Jahr    f
next summer        nächsten Sommer  f
in three days      in drei Tagen    f
in two weeks       in zwei Wochen   f
soon               bald             f
now                jetzt            n
today              heute            n p f
this evening       heute Abend      n f
at the moment      im Moment        n
on Monday          am Montag        p f
on Wednesday       am Mittwoch      p f
on Friday          am Freitag       p f
on Saturday        am Samstag       p f
at noon            am Mittag        p f
at midnight        um Mitternacht   p f
in the morning     am Morgen        p h
in the evening     am Abend         p h
every day          jeden Tag        h
every morning      jeden Morgen     h
every evening      jeden Abend      h
every week         jede Woche       h
on Sundays         sonntags         h
in winter          im Winter        h p
in summer          im Sommer        h p
"""

# The same, for words beside the verb (h habit, perfect).
ADVERBS = """
often      oft         h
always     immer       h
sometimes  manchmal    h p
usually    meistens    h
never      nie         h
rarely     selten      h
already    schon       perfect
just       gerade      perfect
finally    endlich     perfect
recently   vor Kurzem  perfect
"""

MONTHS = """
January Januar, February Februar, March März, April April, May Mai, June Juni, July Juli,
August August, September September, October Oktober, November November, December Dezember
"""

NUMBER_WORDS = """
two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht, nine neun,
ten zehn, eleven elf, twelve zwölf
"""

# English subject and object, German nominative, accusative, dative.
PRONOUNS = """
I     me    ich  mich  mir    I
he    him   er   ihn   ihm    ONE
she   her   sie  sie   ihr    ONE
we    us    wir  uns   uns    MANY
you   you   Sie  Sie   Ihnen  MANY
they  them  sie  sie   ihnen  MANY
"""


def rows(table: str) -> list[list[str]]:
    """Split a table into rows and cells."""
    return [re.split(r"\s{2,}", line) for line in table.strip().split("\n")]


def sections(table: str) -> dict[str, list[list[str]]]:
    """Split a table with [headings] into its sections."""
    found: dict[str, list[list[str]]] = {}
    for row in rows(table):
        if row[0].startswith("["):
            found[row[0].strip("[]")] = current = []
        else:
            current.append(row)
    return found


def pairs(text: str) -> list[Pair]:
    """Read "two zwei, three drei": one pair of words after another."""
    return [Pair(*entry.split()) for entry in text.replace("\n", " ").split(",")]


def genitive(singular: str, plural: str) -> str:
    """Add -s or -es, for masculine and neuter nouns: des Lehrers, des Hauses, des Parks."""
    syllables = len(re.findall("[aeiouyäöü]+", singular.lower()))
    ends_in_vowel = singular[-1] in "aeiouäöüy"
    is_sibilant = singular.endswith(("s", "ß", "x", "z", "sch"))
    is_loan = plural.endswith("s")
    if is_sibilant or (syllables == 1 and not ends_in_vowel and not is_loan):
        return singular + "es"
    return singular + "s"


def noun(kind: str, english: str, german: str) -> Noun:
    """Read a noun entry. Masculine persons and animals with a plural in -n are weak."""
    singular, _, plural = german.partition(", ")
    article, de = singular.split()
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    is_weak = gender == "m" and kind in {"person", "animal"} and plural in {de + "n", de + "en"}
    oblique = plural if is_weak else de
    de_genitive = plural if is_weak else de if gender == "f" else genitive(de, plural)
    en_plural = IRREGULAR_PLURALS.get(english) or add_s(english)
    return Noun(english, en_plural, gender, de, oblique, de_genitive, plural, kind)


def compound(en_first: str, de_first: str, head: Noun) -> Noun:
    """Join a first part to its head, which keeps all its forms."""
    return replace(
        head,
        en=f"{en_first} {head.en}",
        en_plural=f"{en_first} {head.en_plural}",
        de=de_first + head.de.lower(),
        de_oblique=de_first + head.de_oblique.lower(),
        de_genitive=de_first + head.de_genitive.lower(),
        de_plural="" if head.is_mass else de_first + head.de_plural.lower(),
    )


def compounds(simple: dict[str, Noun]) -> list[Noun]:
    """Read the table of compounds."""
    found = []
    for line in COMPOUNDS.strip().split("\n"):
        firsts, heads = line.split(" + ")
        for first in firsts.split(","):
            english, german = first.split()
            found += [compound(english, german.rstrip("-"), simple[head]) for head in heads.split()]
    return found


def adjective(english: str, german: str, kinds: str) -> Adjective:
    """Read an adjective entry; colors have no comparative."""
    positive, _, comparative = german.partition(", ")
    de, _, stem = positive.partition(" ")
    is_long = (len(english) > 6 and not english.endswith("y")) or english in {
        "famous",
        "modern",
        "boring",
    }
    en_comparative = f"more {english}" if is_long else add_er(english)
    expanded = [part for kind in kinds.split() for part in KINDS_OF.get(kind, (kind,))]
    stem = stem.rstrip("-") or de
    return Adjective(english, en_comparative, de, stem, comparative, tuple(expanded))


def verb(english: str, german: str, kinds: str = "") -> Verb:
    """Read a verb entry."""
    forms, _, government = german.partition(" (")
    infinitive, third, past, participle = forms.split(", ")
    prefix, _, base = infinitive.rpartition("|")
    de_participle = participle.removeprefix("ist ")
    preposition, _, case = government.rstrip(")").rpartition("+")
    en, en_past, en_participle = english_forms(english)
    return Verb(
        en=en,
        en_past=en_past,
        en_participle=en_participle,
        de=base,
        de_third=third,
        de_past=past,
        de_participle=de_participle,
        prefix=prefix,
        with_sein=participle.startswith("ist "),
        kinds=tuple(kinds.split()),
        preposition=preposition,
        case=Case.DATIVE if case == "dat" else Case.ACCUSATIVE,
    )


def english_forms(entry: str) -> tuple[str, str, str]:
    """Read "buy bought bought", "wait for" (regular) or "put on" (irregular, listed above)."""
    words = entry.split()
    if entry in PHRASAL:
        return entry, *PHRASAL[entry]
    if len(words) == 3 and words[1] not in {"in", "for"}:
        return words[0], words[1], words[2]
    particle = " ".join(["", *words[1:]])
    regular = add_ed(words[0]) + particle
    return entry, regular, regular


PHRASAL = {
    "put on": ("put on", "put on"),
    "bring along": ("brought along", "brought along"),
    "take part in": ("took part in", "taken part in"),
    "go for a walk": ("went for a walk", "gone for a walk"),
    "think about": ("thought about", "thought about"),
}

SIMPLE_NOUNS = [noun(kind, *row) for kind, part in sections(NOUNS).items() for row in part]
SIMPLE = {entry.en: entry for entry in SIMPLE_NOUNS}
ALL_NOUNS = SIMPLE_NOUNS + compounds(SIMPLE)
ALL_ADJECTIVES = [adjective(*row) for row in rows(ADJECTIVES)]
ALL_VERBS = {kind: [verb(*row) for row in part] for kind, part in sections(VERBS).items()}
COPULA = ALL_VERBS["copula"][0]
LIVE, COST, HAVE = ALL_VERBS["state"]


def read_modal(third: str, plural: str, german: str, flags: str) -> Modal:
    """Read a modal entry."""
    infinitive, de_third, de_past = german.split()
    de = Verb("", "", "", infinitive, de_third, de_past, "", "", False, ())
    return Modal(third, plural, de, past="past" in flags, lexical="lexical" in flags)


def read_pronoun(subject: str, other: str, *german_and_person: str) -> Pronoun:
    """Read a pronoun entry."""
    nominative, accusative, dative, who = german_and_person
    return Pronoun(subject, other, (nominative, accusative, dative), Person[who])


def timed(table: str) -> dict[str, list[Pair]]:
    """Group a table of adverbials by the tenses in its last column."""
    found: dict[str, list[Pair]] = {}
    for en, de, tenses in rows(table):
        for tense in tenses.split():
            found.setdefault(tense, []).append(Pair(en, de))
    return found


ALL_MODALS = [read_modal(*row) for row in rows(MODALS)]
PRONOUN = {row[0]: read_pronoun(*row) for row in rows(PRONOUNS)}
TIME = timed(TIMES)
ADVERB = timed(ADVERBS)
MONTH = pairs(MONTHS)
NUMBER_WORD = pairs(NUMBER_WORDS)
