"""A result that is too large for the context: its file, its preview, and the object behind it."""

from __future__ import annotations

from ipyagent.practice.model.lessons import Lesson, Scene, python

lesson = Lesson(
    name="storing",
    shows="A large result goes to a file and stays alive as an object; the context holds a preview.",
    scenes=(
        Scene(
            "Load the penguins and print every row.",
            (
                python(
                    "from palmerpenguins import load_penguins\n\n"
                    "penguins = load_penguins()\nprint(penguins.to_string())\npenguins"
                ),
            ),
            "Printed. The table is too long for the context: I see a preview, its file and the object itself.",
        ),
        Scene(
            "How many of these rows are Gentoo penguins?",
            (python('print(({handle}["species"] == "Gentoo").sum())'),),
            "**{1}** rows are Gentoo penguins, counted on the stored object; nothing was read again.",
        ),
        Scene(
            "Show me the heaviest penguin as it was printed.",
            (("grep", {"pattern": r"\b6300\.0\b", "path": "{path}"}),),
            "This line of the stored file:\n\n```text\n{1}\n```",
        ),
    ),
)
