"""How much of a sentence stands close together in another text: by the words that say what it is about."""

from __future__ import annotations

from collections.abc import Sequence

from ipyagent.memory.words import STOP, STOP_PAIRS, is_paired, words

# Words that memories are written with, whoever said what: they tell nothing of where it comes from.
_OWN_WORDS = frozenset(
    found
    for word in """
user users prefer preference preferred always never remember memory memorize note feedback why apply how seem
appear apparently likely probably inferred infer conclude evidence said says ask asked request reference project
quoted please must should
""".split()  # noqa: SIM905 - a list of words reads better as text
    for found in words(word)
)


def weighty(text: str) -> list[str]:
    """The words that say what a text is about, in order. Of unspaced scripts only pairs of characters."""
    found = [word for word in words(text) if word not in STOP and word not in STOP_PAIRS and word not in _OWN_WORDS]
    pairs = [word for word in found if not is_paired(word) or len(word) > 1]
    return pairs or found


def bare(sentence: str) -> str:
    """A sentence's words, to tell whether two are the same."""
    return " ".join(words(sentence))


def closest(wanted: list[str], texts: Sequence[list[str]]) -> int:
    """How many of the wanted words (each counts once) stand together at most, in a stretch of any of the texts
    that is about twice as long as the sentence."""
    goal = set(wanted)
    span = max(2 * len(wanted), 8)
    best = 0
    for text in texts:
        if len(goal) <= best:
            break
        if not goal.intersection(text):
            continue
        places = [(at, word) for at, word in enumerate(text) if word in goal]
        counts: dict[str, int] = {}
        start = 0
        for at, word in places:
            counts[word] = counts.get(word, 0) + 1
            while at - places[start][0] >= span:
                left = places[start][1]
                counts[left] -= 1
                if not counts[left]:
                    del counts[left]
                start += 1
            best = max(best, len(counts))
    return best
