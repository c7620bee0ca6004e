"""`agent_map(batch=True)`: half the price, nothing paid twice, nothing lost, whoever ends in between."""

from __future__ import annotations

import ast
import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from kernels import Kernel
from rooms import KEY, MODEL

from ipyagent import IPyAgent, agent_map
from ipyagent.errors import Busy, ModelError, UsageError
from ipyagent.fleet.batch import SKEW, BatchFolder, BatchItem, BatchRunner, SubmittedBatch, candidates, system
from ipyagent.journal.events import TurnEnded, UsageReported, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.budget import spent_today
from ipyagent.model.batches import BatchStatus
from ipyagent.model.prices import cost_of
from ipyagent.practice.replies import Reply, fault, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.project import Project, user_folder

if TYPE_CHECKING:
    from conftest import Interrupted, Office


class Gateway:
    """Passes requests on to a server; the first batch is taken there, and answered with 504 here."""

    def __init__(self, server: PracticeServer) -> None:
        given_up: list[str] = []

        class Passing(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                port = int(server.url.rsplit(":", 1)[1])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                status, sent = answer.status, answer.read()
                if self.command == "POST" and not given_up:
                    given_up.append(self.path)
                    status, sent = 504, b'{"type": "error", "error": {"type": "timeout_error", "message": "gave up"}}'
                self.send_response(status)
                self.send_header("content-type", answer.getheader("content-type") or "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_POST = pass_on  # noqa: N815 - the names of http.server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Gateway:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def created(server: PracticeServer) -> int:
    """Batches that the server has taken."""
    return len(server.batches.page(100))


def shelf(project: Path) -> BatchFolder:
    return BatchFolder(project / ".ipyagent" / "sessions" / "map", user_folder())


def on_disk(project: Path) -> list[SubmittedBatch]:
    return shelf(project).all()


def echo(body: dict[str, Any]) -> Reply:
    return text("about " + body["messages"][-1]["content"][0]["text"])


def held(go: threading.Event) -> Callable[[dict[str, Any]], Reply]:
    """`echo`, once it may go."""
    return lambda body: (go.wait(30), echo(body))[1]


def theirs(server: PracticeServer) -> Any:
    """A batch of somebody else with the same key, of one question."""
    params = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]}
    return server.batches.create({"requests": [{"custom_id": "theirs", "params": params}]}, frozenset())


@pytest.fixture
def keyed(project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings beside the address of a server."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return {"model": MODEL, "max_retries": 0}


def test_rows_are_in_order_at_half_the_price_with_a_transcript_each(office: Office, project: Path) -> None:
    office.server.brain = echo
    rows = agent_map(["one", "two", "three"], prompt="Say {item}", batch=True, settings=office.settings)
    assert [(row["input"], row["status"], row["text"], row["tries"]) for row in rows] == [
        (word, "finished", f"about Say {word}", 1) for word in ("one", "two", "three")
    ]
    assert created(office.server) == 1
    assert len({row["session"] for row in rows}) == 3
    for row in rows:
        events = list(read_events(project / row["session"] / TRANSCRIPT))
        assert [event.text for event in events if isinstance(event, UserMessage)] == [f"Say {row['input']}"]
        (usage,) = [event for event in events if isinstance(event, UsageReported)]
        whole = cost_of(MODEL, usage.usage)
        assert whole
        assert row["cost"] == usage.cost == pytest.approx(whole / 2)
        assert row["tokens"] == usage.usage.total > 0
        assert isinstance(events[-1], TurnEnded)
    spent = spent_today(project.parent / "home" / "spend.json")
    assert spent == pytest.approx(sum(row["cost"] for row in rows), abs=1e-5)
    (exchange,) = [one for one in office.server.log if one.method == "POST"]
    asked = [one["params"] for one in (exchange.body or {})["requests"]]
    assert all(params["system"][0]["text"] == system() and "tools" not in params for params in asked)
    assert on_disk(project) == []


def test_a_rerun_asks_for_what_is_new_and_an_agents_answers_are_others(office: Office) -> None:
    office.server.brain = echo
    agent_map(["one", "two"], batch=True, settings=office.settings)
    rows = agent_map(["one", "two", "three"], batch=True, settings=office.settings)
    assert [row["tries"] for row in rows] == [0, 0, 1]
    assert agent_map(["one"], batch=True, again=True, settings=office.settings)[0]["tries"] == 1
    office.server.brain = lambda body: text("by an agent")
    assert agent_map(["one"], settings=office.settings)[0]["text"] == "by an agent"


def test_what_the_server_fails_at_is_sent_again_and_a_bad_request_is_not(office: Office) -> None:
    seen: list[str] = []

    def brain(body: dict[str, Any]) -> Any:
        words = body["messages"][-1]["content"][0]["text"]
        seen.append(words)
        if words == "busy" and seen.count("busy") == 1:
            return fault(529)
        if words == "empty":
            return text("")
        return fault(400, message="no such thing") if words == "bad" else text("good")

    office.server.brain = brain
    rows = agent_map(["good", "busy", "bad", "empty"], batch=True, retries=2, settings=office.settings)
    assert [(row["status"], row["tries"]) for row in rows] == [
        ("finished", 1), ("finished", 2), ("failed", 1), ("failed", 3),
    ]  # fmt: skip
    assert "no such thing" in rows[2]["error"]
    assert "empty" in rows[3]["error"]
    assert created(office.server) == 3


def test_how_an_answer_ended_at_the_server_is_told_as_such(office: Office) -> None:
    # a refusal and an answer that was cut off are told as such
    long = Reply(({"type": "text", "text": "half of"},), "max_tokens")
    office.server.script(Reply(({"type": "text", "text": "no"},), "refusal"), long)
    rows = agent_map(["a", "b"], batch=True, settings=office.settings)
    assert [row["status"] for row in rows] == ["refused", "limit"]
    assert "max_output" in rows[1]["error"]
    assert rows[1]["text"] == "half of"
    # what was cancelled or expired at the server
    batches = office.server.batches

    def brain(body: dict[str, Any]) -> Reply:
        if "cancel" in str(body["messages"]):
            for batch in batches.page(1):
                batches.cancel(batch.id)
        return echo(body)

    office.server.brain = brain
    rows = agent_map(["cancel", "after it"], batch=True, settings=office.settings)
    assert [row["status"] for row in rows] == ["finished", "stopped"]
    assert "cancelled" in rows[1]["error"]


def test_what_expired_is_handed_in_anew(keyed: dict[str, Any]) -> None:
    now = [0.0]

    def brain(body: dict[str, Any]) -> Reply:
        now[0] += 90_000.0
        return echo(body)

    with PracticeServer(brain, clock=lambda: now[0]) as server:
        settings = {**keyed, "base_url": server.url}
        rows = agent_map(["one", "two"], batch=True, settings=settings)
        assert [(row["status"], row["tries"]) for row in rows] == [("finished", 1), ("finished", 2)]
        rows = agent_map(["three", "four"], batch=True, retries=0, settings=settings)
        assert [row["status"] for row in rows] == ["finished", "failed"]
        assert "24 hours" in rows[1]["error"]


@pytest.mark.paced
def test_an_interrupt_returns_at_once_and_the_next_call_fetches_the_answers(
    office: Office, project: Path, interrupted: Interrupted
) -> None:
    go, begun = threading.Event(), threading.Event()

    def brain(body: dict[str, Any]) -> Reply:
        begun.set()
        go.wait(30)
        return echo(body)

    office.server.brain = brain
    with interrupted(begun.is_set, real=False):
        agent_map(["one", "two"], batch=True, settings=office.settings)  # the work takes 20 s
    assert [len(batch.prompts) for batch in on_disk(project)] == [2]
    go.set()
    rows = agent_map(["two", "one", "three"], batch=True, settings=office.settings)
    assert [(row["status"], row["text"]) for row in rows] == [
        ("finished", "about two"), ("finished", "about one"), ("finished", "about three"),
    ]  # fmt: skip
    assert created(office.server) == 2, "the first two were not asked for again"
    assert on_disk(project) == []


class CallElsewhere:
    """A call in a kernel of its own; `texts` waits for it."""

    def __init__(self, office: Office, prompts: list[str]) -> None:
        self._kernel = Kernel(cwd=Path.cwd())
        call = f"ipyagent.agent_map({prompts!r}, batch=True, settings={office.settings!r})"
        self._message = self._kernel.client.execute(
            f"import ipyagent\nrows = {call}", user_expressions={"texts": "[row['text'] for row in rows]"}
        )

    @property
    def runs(self) -> bool:
        return bool(self._kernel.manager.is_alive())

    def kill(self) -> None:
        self._kernel.close()  # by SIGKILL

    def texts(self) -> list[str]:
        while (got := self._kernel.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != self._message:
            pass
        self._kernel.close()
        return list(ast.literal_eval(got["content"]["user_expressions"]["texts"]["data"]["text/plain"]))


@pytest.mark.parametrize("where", ["waiting", "sending", "taking in"])
def test_a_kill_at_any_place_loses_nothing_and_pays_for_nothing_twice(
    office: Office, project: Path, where: str
) -> None:
    prompts = [f"number {number}" for number in range(40)]
    asked: list[str] = []
    go = threading.Event()

    def brain(body: dict[str, Any]) -> Reply:
        asked.append(body["messages"][-1]["content"][0]["text"])
        if where != "taking in":
            go.wait(30)
        return echo(body)

    office.server.brain = brain
    elsewhere = CallElsewhere(office, prompts)
    done = project / ".ipyagent" / "sessions" / "map" / "done"
    until = time.monotonic() + 30
    ready = {"waiting": lambda: asked and on_disk(project), "sending": lambda: created(office.server)}
    while not ready.get(where, lambda: len(list(done.glob("*.json"))) > 5)():
        assert time.monotonic() < until
        assert elsewhere.runs
        time.sleep(0.002)
    elsewhere.kill()
    if where == "sending":  # as if the kill had come before the answer was read
        for batch in on_disk(project):
            shelf(project).put(msgspec.structs.replace(batch, id=""))
    go.set()
    rows = agent_map(prompts, batch=True, settings=office.settings)
    assert [row["text"] for row in rows] == [f"about {prompt}" for prompt in prompts]
    assert sorted(asked) == sorted(prompts)
    assert created(office.server) == 1
    assert on_disk(project) == []


def test_two_calls_at_once_on_one_folder_hand_nothing_in_twice(office: Office) -> None:
    go = threading.Event()
    office.server.brain = held(go)
    prompts = ["one", "two", "three"]
    first, second = CallElsewhere(office, prompts), CallElsewhere(office, prompts)
    while not created(office.server):
        time.sleep(0.02)
    time.sleep(0.5)
    go.set()
    for call in (first, second):
        assert call.texts() == ["about one", "about two", "about three"]
    assert created(office.server) == 1


def test_a_batch_that_the_server_does_not_know_is_given_up_only_when_told_to(
    project: Path, keyed: dict[str, Any]
) -> None:
    with PracticeServer(echo) as server:
        settings = {**keyed, "base_url": server.url}
        agent_map(["zero"], batch=True, settings=settings)
        key = server.batches.page(1)[0].requests[0]["custom_id"]
        (project / ".ipyagent" / "sessions" / "map" / "done" / f"{key}.json").unlink()
        lost = SubmittedBatch("lost", server.url, MODEL, {key: "zero"}, 1, time.time(), "msgbatch_forgotten")
        old = SubmittedBatch("old", server.url, MODEL, {"k": "x"}, 1, time.time() - 30 * 86_400, "msgbatch_old")
        elsewhere = SubmittedBatch("other", "http://127.0.0.1:9", MODEL, {"k1": "x"}, 1, time.time(), "msgbatch_other")
        never = SubmittedBatch("never", server.url, MODEL, {"k2": "never arrived", "k3": "x"}, 1, time.time())
        never = msgspec.structs.replace(never, prompts={**never.prompts, key: "zero"})
        old = msgspec.structs.replace(old, prompts={**old.prompts, key: "zero"})
        for batch in (lost, old, elsewhere, never):
            shelf(project).put(batch)
        with pytest.raises(ModelError, match=r"does not know msgbatch_forgotten \(1 question, .* again=True"):
            agent_map(["zero", "one"], batch=True, settings=settings)
        assert lost in on_disk(project)
        rows = agent_map(["zero", "one"], batch=True, again=True, settings=settings)
        assert [row["text"] for row in rows] == ["about zero", "about one"]
    assert on_disk(project) == [elsewhere], "of a server that was not asked"


def test_the_batches_that_may_be_one_nobody_saw_the_answer_for_have_its_size_and_time() -> None:
    mine = SubmittedBatch("a", "s", MODEL, {"x": "1", "y": "2"}, 1, 10_000.0)
    old, small = BatchStatus("old", False, 2, 10_000.0 - SKEW - 1), BatchStatus("small", False, 1, 10_001.0)
    other, right = BatchStatus("other", False, 2, 10_000.5), BatchStatus("right", True, 2, 10_001.0)
    later = BatchStatus("later", False, 2, 10_500.0)
    assert candidates(mine, [later, right, other, small, old], {"other"}) == [right, later]
    assert candidates(mine, [small, old], set()) == []


def test_no_more_is_handed_in_than_the_money_could_have_to_pay_for(office: Office) -> None:
    # no more is handed in than the money could have to pay for
    office.server.brain = echo
    prompts = [f"number {number}" for number in range(6)]
    settings = {**office.settings, "max_output": 1_000}
    tokens = int(1.3 * (estimate_text(system()) + estimate_text(prompts[0])))
    most = (tokens * 2.0 + 1_000 * 10.0) / 1e6 / 2
    rows = agent_map(prompts, batch=True, max_cost=2.5 * most, settings=settings)
    assert [row["status"] for row in rows] == ["finished"] * 6, "what was not used up is used for the next"
    assert created(office.server) >= 3
    assert sum(row["cost"] for row in rows) < 2.5 * most
    rows = agent_map(["too dear"], batch=True, max_cost=0.5 * most, settings=settings)
    assert rows[0]["status"] == "limit"
    assert "max_cost" in rows[0]["error"]
    rows = agent_map(["for the day"], batch=True, settings={**settings, "max_cost_per_day": 0.5 * most})
    assert rows[0]["status"] == "limit"
    # a limit holds where no price is known
    office.server.brain = echo
    settings = {**office.settings, "model": "claude-opus-5", "max_output": 1_000}
    (row,) = agent_map(["unknown"], batch=True, max_cost=0.001, settings=settings)
    assert row["status"] == "limit"
    assert "no price is known for claude-opus-5" in row["error"]
    rows = agent_map(["unknown", "and more", "yet more"], max_cost=0.001, at_once=1, retries=0, settings=settings)
    assert [row["status"] for row in rows] == ["finished", "limit", "limit"]
    assert [row["cost"] for row in rows] == [None, 0.0, 0.0]


def test_what_looks_like_a_secret_does_not_leave(office: Office, project: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    settings = {**office.settings, "redact_secrets": True}
    office.server.brain = echo
    (row,) = agent_map([f"check {secret}"], batch=True, settings=settings)
    assert "[secret" in row["text"]
    assert secret not in str([exchange.body for exchange in office.server.log])
    said = "xai-" + secret[4:]
    office.server.brain = lambda body: text(f"the key is {said}")
    (row,) = agent_map(["one"], batch=True, settings=settings)
    assert row["text"] == "the key is [secret: API key, 40 characters]"
    kept = "".join(path.read_text() for path in project.rglob("*") if path.is_file())
    assert secret not in kept
    assert said not in kept
    assert KEY not in "".join(path.read_text() for path in project.rglob("*.json*"))


def test_many_are_handed_in_in_several_batches(office: Office, project: Path) -> None:
    office.server.brain = echo
    into, settings = project / "into", IPyAgent(environ={}, **office.settings)
    into.mkdir()
    place = Project(project, project.parent / "home")
    clerk = BatchRunner(place, into, settings, retries=0, max_cost=0.0, again=False, most=40)
    found: dict[str, str] = {}
    jobs = [BatchItem(f"key-{number}", f"number {number}") for number in range(100)]
    clerk.work(jobs, lambda outcome: found.update({outcome.key: outcome.text}), lambda line: None)
    assert found == {f"key-{number}": f"about number {number}" for number in range(100)}
    assert created(office.server) == 3


def test_a_call_does_not_wait_for_the_batches_of_another(office: Office, project: Path) -> None:
    go = threading.Event()

    def brain(body: dict[str, Any]) -> Reply:
        return held(go)(body) if "slow" in str(body["messages"]) else echo(body)

    office.server.brain = brain
    slow = CallElsewhere(office, ["slow"])
    while not on_disk(project) or not on_disk(project)[0].id:
        time.sleep(0.02)
    slow.kill()
    assert [row["text"] for row in agent_map(["quick"], batch=True, settings=office.settings)] == ["about quick"]
    assert len(on_disk(project)) == 1
    go.set()
    assert agent_map(["slow"], batch=True, settings=office.settings)[0]["text"] == "about slow"
    assert created(office.server) == 2


def test_after_an_answer_that_says_nothing_certain_the_next_call_looks(project: Path, keyed: dict[str, Any]) -> None:
    """A gateway gave up (504) although the server behind it took the batch."""
    with PracticeServer(echo) as server, Gateway(server) as gateway:
        settings = {**keyed, "base_url": gateway.url, "max_retries": 2, "max_retry_wait": 0.01}
        with pytest.raises(Busy):
            agent_map(["one"], batch=True, settings=settings)
        assert created(server) == 1, "it may have been taken, so that it is not sent again"
        (row,) = agent_map(["one"], batch=True, settings=settings)
        assert row["text"] == "about one"
        assert created(server) == 1
    assert on_disk(project) == []


def test_a_foreign_batch_of_the_same_size_is_never_taken_for_ours(project: Path, keyed: dict[str, Any]) -> None:
    """A colleague with the same key hands one in at the same time; only the keys in the results tell them apart."""
    with PracticeServer(echo) as server, Gateway(server) as gateway:
        settings = {**keyed, "base_url": gateway.url}
        server.batches.begin(theirs(server))
        with pytest.raises(Busy):
            agent_map(["one"], batch=True, settings=settings)
        (row,) = agent_map(["one"], batch=True, retries=0, settings=settings)
        assert (row["status"], row["text"]) == ("finished", "about one")
        assert created(server) == 2, "ours was found, nothing was handed in again"
    assert on_disk(project) == []


def test_when_no_batch_is_ours_the_questions_are_handed_in(project: Path, keyed: dict[str, Any]) -> None:
    """Foreign ones are waited for to their end, for only then is it known what is in them."""
    with PracticeServer(echo) as server, Gateway(server) as gateway:
        settings = {**keyed, "base_url": gateway.url}
        with pytest.raises(Busy):
            agent_map(["one"], batch=True, settings=settings)
        server.batches._kept.clear()  # as if the gateway had not passed it on
        threading.Timer(0.5, server.batches.begin, (theirs(server),)).start()
        (row,) = agent_map(["one"], batch=True, retries=0, settings=settings)
        assert (row["status"], row["text"]) == ("finished", "about one")
        assert created(server) == 2
    assert on_disk(project) == []


def test_a_server_without_batches_is_one_line(project: Path, keyed: dict[str, Any]) -> None:
    with PracticeServer(without=("batches",)) as server:
        settings = {**keyed, "base_url": server.url}
        with pytest.raises(ModelError, match="takes no message batches"):
            agent_map(["one"], batch=True, settings=settings)
    assert on_disk(project) == []


def test_a_server_that_is_down_for_a_while_is_asked_again(office: Office) -> None:
    go = threading.Event()
    office.server.brain = held(go)
    port = int(office.server.url.rsplit(":", 1)[1])

    def bounce() -> None:
        while not created(office.server):
            time.sleep(0.02)
        time.sleep(0.3)
        batches = office.server.batches
        kept = dict(batches._kept)
        office.server.stop()
        time.sleep(0.5)
        office.server.start(port)
        assert batches._kept == kept
        go.set()

    threading.Thread(target=bounce, daemon=True).start()
    rows = agent_map(["one"], batch=True, settings=office.settings)
    assert rows[0]["status"] == "finished"


def test_what_a_batch_cannot_do_is_said_and_the_practice_model_can(project: Path) -> None:
    # what makes no sense in a batch is said
    for given in ({"data": "x"}, {"mode": "auto"}, {"max_turns": 3}, {"at_once": 2}):
        with pytest.raises(UsageError, match=f"leave out {next(iter(given))}"):
            agent_map(["a"], batch=True, **given)  # type: ignore[arg-type]
    assert agent_map([], batch=True, settings={"model": "practice"}) == []
    # the practice model answers batches too
    (row,) = agent_map(["hello"], batch=True, settings={"model": "practice"})
    assert row["status"] == "finished"
    assert row["cost"] == 0.0


def test_the_data_of_a_task_is_kept_without_its_secrets(office: Office, project: Path) -> None:
    secret = "xai-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    code = f"found = {{'key': 'xai-' + '{secret[4:]}', 'rows': 3, 'x': [1.5, 'ok']}}"
    office.server.brain = lambda body: text("ok") if len(body["messages"]) > 1 else tool("python", {"code": code})
    (row,) = agent_map(["one"], data="found", settings={**office.settings, "redact_secrets": True})
    assert row["data"] == {"key": "[secret: API key, 40 characters]", "rows": 3, "x": [1.5, "ok"]}
    assert all(secret not in path.read_text() for path in project.rglob("*.json"))
