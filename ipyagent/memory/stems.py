"""English inflections folded: Porter's algorithm (1980), and irregular forms, spellings and short forms that it
cannot know."""

from __future__ import annotations

import re
from functools import lru_cache

_FORMS = """
be: was were been being am is are
buy: bought
bring: brought
think: thought
teach: taught
catch: caught
seek: sought
fight: fought
go: went gone goes
do: did done does
have: had has
make: made
say: said
take: took taken
give: gave given
get: got gotten
come: came
become: became
see: saw seen
know: knew known
grow: grew grown
throw: threw thrown
draw: drew drawn
fly: flew flown
run: ran
begin: began begun
swim: swam swum
sing: sang sung
drink: drank drunk
write: wrote written
drive: drove driven
ride: rode ridden
rise: rose risen
speak: spoke spoken
break: broke broken
choose: chose chosen
steal: stole stolen
wear: wore worn
tear: tore torn
eat: ate eaten
fall: fell fallen
forget: forgot forgotten
hide: hid hidden
bite: bit bitten
find: found
hold: held
tell: told
sell: sold
leave: left
lose: lost
meet: met
feel: felt
keep: kept
sleep: slept
sweep: swept
mean: meant
send: sent
spend: spent
build: built
lend: lent
hear: heard
pay: paid
read: reading reads
lead: led
feed: fed
sit: sat
stand: stood
understand: understood
win: won
shoot: shot
hang: hung
stick: stuck
dig: dug
child: children kid kids
person: people persons
man: men
woman: women
foot: feet
tooth: teeth
mouse: mice
wife: wives
mother: mom mum mommy mama
father: dad daddy papa
photo: photograph photographs pic pics picture pictures
favourite: favorite favorites favourites
colour: color colors colours
centre: center centers centres
analyse: analyze analyzes analyzed analyzing analyses analysis
organise: organize organizes organized organizing
dataframe: dataframes df
database: db databases
config: configuration configurations configure configured
repo: repository repositories
directory: directories dir folder folders
function: func functions
"""
_KNOWN = {form: line.partition(":")[0] for line in _FORMS.split("\n") for form in line.partition(":")[2].split()}

_V = "[aeiou]|(?<![aeiou])y"
_CONSONANT = r"(?:[^aeiouy]|(?:(?<=[aeiou])|^)y)"
_VOWEL = r"(?:[aeiou]|(?<=[^aeiou])y)"
_MEASURE = re.compile(rf"{_VOWEL}+{_CONSONANT}+")
_HAS_VOWEL = re.compile(_VOWEL)
_SHORT = re.compile(rf"^{_CONSONANT}*{_VOWEL}[^aeiouwxy]$")

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic", "ou",
)  # fmt: skip
"""Longest first."""


LONGEST = 64
"""Letters; what is longer is no word, and would take time with the square of them."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of one lower-case word; what is no plain English word stays as it is."""
    if not 3 <= len(word) <= LONGEST or not word.isascii() or not word.isalpha():
        return word
    word = _past(_plural(_KNOWN.get(word, word)))
    if word.endswith("y") and _HAS_VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    word = _suffix(word, _STEP_2, 0)
    word = _suffix(word, _STEP_3, 0)
    for end in _STEP_4:
        if word.endswith(end):
            rest = word[: -len(end)]
            if _measure(rest) > 1 and (end != "ion" or rest.endswith(("s", "t"))):
                word = rest
            break
    if word.endswith("e"):
        rest, many = word[:-1], _measure(word[:-1])
        if many > 1 or (many == 1 and not _SHORT.search(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _measure(word: str) -> int:
    return len(_MEASURE.findall(word))


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-2]
    if word.endswith("ss") or not word.endswith("s"):
        return word
    return word[:-1]


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for end in ("ed", "ing"):
        if word.endswith(end) and _HAS_VOWEL.search(word[: -len(end)]):
            rest = word[: -len(end)]
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if len(rest) > 1 and rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
                return rest[:-1]
            if _measure(rest) == 1 and _SHORT.search(rest):
                return rest + "e"
            return rest
    return word


def _suffix(word: str, table: tuple[tuple[str, str], ...], least: int) -> str:
    best = max((pair for pair in table if word.endswith(pair[0])), key=lambda pair: len(pair[0]), default=None)
    if best is None:
        return word
    rest = word[: -len(best[0])]
    return rest + best[1] if _measure(rest) > least else word
