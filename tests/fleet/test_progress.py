"""What a person sees while many tasks work, in a real kernel."""

from __future__ import annotations

from pathlib import Path

from rooms import plain, room

CODE = "import ipyagent\nrows = ipyagent.agent_map(['hello', 'hello again'], model='practice')"


def test_a_bar_for_a_person_and_nothing_without_also_for_worker_processes(tmp_path: Path) -> None:
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
        # from a kernel with settings of its own only settings go to worker processes
        place.ok("%load_ext ipyagent")
        place.ok("%agent mode auto\nfrom ipyagent import agent_map\nimport multiprocessing, concurrent.futures")
        place.ok("pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn'))")
        said = place.ok("for row in agent_map(['hello'], pool): print(row['status'], row['error'])", timeout=60).streams
        place.ok("pool.shutdown()")
    assert said.splitlines()[-1].split() == ["finished"]
