"""Results that are looked at once and then only cost: a part of the table in every turn."""

from __future__ import annotations

from ipyagent.practice.model.lessons import Lesson, Scene, python

_PARTS = (
    ("Adelie", "Torgersen"), ("Adelie", "Biscoe"), ("Adelie", "Dream"), ("Chinstrap", "Dream"), ("Gentoo", "Biscoe"),
)  # fmt: skip


def _part(species: str, island: str, sex: str) -> Scene:
    rows = f'penguins[(penguins["species"] == "{species}") & (penguins["island"] == "{island}")'
    return Scene(
        f"Show the {sex} {species} penguins of {island} and their mean body mass.",
        (
            python(
                f'part = {rows} & (penguins["sex"] == "{sex}")]\nprint(part.to_string())\n'
                'print(round(part["body_mass_g"].mean(), 2))'
            ),
        ),
        f"The {sex} {species} penguins of {island} weigh **{{1}}** g on average.",
    )


lesson = Lesson(
    name="clearing",
    shows="Old results are cleared when that is cheaper than carrying them along.",
    scenes=(
        Scene(
            "Load the penguins.",
            (
                python(
                    "from palmerpenguins import load_penguins\n\npenguins = load_penguins()\nprint(penguins.shape[0])"
                ),
            ),
            "`penguins` has **{1}** rows.",
        ),
        *(_part(species, island, sex) for species, island in _PARTS for sex in ("female", "male")),
    ),
)
