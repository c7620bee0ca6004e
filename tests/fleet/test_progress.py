"""What a person sees while many tasks work, in a real kernel."""

from __future__ import annotations

from pathlib import Path

from rooms import plain, room

CODE = "import ipyagent\nrows = ipyagent.agent_map(['hello', 'hello again'], model='practice')"


def test_a_bar_for_a_person_and_nothing_without(tmp_path: Path) -> None:
    with room(tmp_path) as place:
        watched = place.run(CODE, headless=False)
        assert watched.errors == []
        assert "0 of 2 tasks" in plain(watched)
        assert "<progress" in watched.data[0]["text/html"]
        assert watched.updates[-1]["text/plain"].startswith("2 of 2 tasks")
        assert "<progress" not in watched.updates[-1]["text/html"]
        silent = place.ok(CODE)
        assert plain(silent) == ""
        place.ok("assert [row['tries'] for row in rows] == [0, 0], rows")
