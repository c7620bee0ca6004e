"""Work that notes can hold: a task with a rule of the user, a mistake that is mended, results with numbers."""

from __future__ import annotations

from ipyagent.practice.model.lessons import Lesson, Scene, python

_LOAD = "from palmerpenguins import load_penguins\n\npenguins = load_penguins()\n"

lesson = Lesson(
    name="notes",
    shows="Notes are kept beside the conversation; when the window is full they are its summary, without a call.",
    scenes=(
        Scene(
            "Load the penguins; leave out birds without a body mass, in everything that follows.",
            (python(f'{_LOAD}known = penguins.dropna(subset=["body_mass_g"])\nprint(known.shape[0])'),),
            "`known` holds the **{1}** birds whose body mass is known.",
        ),
        Scene(
            "What is the mean body mass by species?",
            (python('mass = known.groupby("species")["body_mass_g"].mean().round(1)\nprint(mass.to_string())'),),
            "By species, in g; the last: {1}.",
        ),
        Scene(
            "Describe the birds of each island.",
            (python('print(known.groupby("island").describe().T.to_string())\nprint(known["island"].nunique())'),),
            "Described for **{1}** islands.",
        ),
        Scene(
            "How does body mass change with flipper length?",
            (
                python(
                    'slope = round(known["flipper_length_mm"].cov(known["body_mass_g"]) '
                    '/ known["flipper_length_mm"].var(), 2)\nprint(slope)'
                ),
            ),
            "Each mm of flipper goes with **{1}** g of body mass.",
        ),
        Scene(
            "List the birds heavier than 5,500 g.",
            (
                python(
                    'heavy = known[known["body_mass_g"] > 5500].sort_values("body_mass_g")\n'
                    "print(heavy.to_string())\nprint(len(heavy))"
                ),
            ),
            "**{1}** birds are heavier than 5,500 g.",
        ),
        Scene(
            "And the birds lighter than 3,200 g.",
            (
                python(
                    'light = known[known["body_mass_g"] < 3200].sort_values("body_mass_g")\n'
                    "print(light.to_string())\nprint(len(light))"
                ),
            ),
            "**{1}** birds are lighter than 3,200 g.",
        ),
        Scene(
            "Which slope did we find between flipper length and body mass?",
            (python("print(slope)"),),
            "**{1}** g for each mm of flipper.",
        ),
    ),
)
