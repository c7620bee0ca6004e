"""More work than the window holds: each year's birds of each species, printed and summed up."""

from __future__ import annotations

from ipyagent.practice.model.lessons import Lesson, Scene, python


def _year(species: str, year: int) -> Scene:
    return Scene(
        f"Print the {species} penguins of {year} and count them.",
        (
            python(
                f'seen = penguins[(penguins["species"] == "{species}") & (penguins["year"] == {year})]\n'
                f'counts["{species} {year}"] = len(seen)\nprint(seen.to_string())\nprint(len(seen))'
            ),
        ),
        f"There are **{{1}}** {species} penguins of {year}.",
    )


lesson = Lesson(
    name="small_window",
    shows="A session that is several times as long as its window goes through it.",
    scenes=(
        Scene(
            "Load the penguins and begin a tally.",
            (
                python(
                    "from palmerpenguins import load_penguins\n\n"
                    "penguins = load_penguins()\ncounts = {}\nprint(penguins.shape[0])"
                ),
            ),
            "`penguins` has **{1}** rows, `counts` is empty.",
        ),
        *(_year(species, year) for species in ("Adelie", "Gentoo", "Chinstrap") for year in (2007, 2008, 2009)),
        Scene(
            "How many penguins have we counted in all?",
            (python("print(sum(counts.values()))"),),
            "**{1}** penguins in all.",
        ),
    ),
)
