"""Words for another agent, when a request names whom they are for: a sub-agent, `parent`, all, another session.

`Send a message to lab.ipynb: the table is cleaned.` `Tell all sub-agents: stop at 100 rows.`
`给 lab.ipynb 发消息：表已清洗`
"""

from __future__ import annotations

import re

from .recipe import Ending, Recipe, Task

_TO = r"[`\"'“]?(?P<to>[\w.*/-]+)[`\"'”]?"
_ALL = r"(?P<all>(?:all|every)(?: (?:the )?(?:running )?(?:sub-?)?agents?)?|everybody|everyone|\*)"
_WHO = rf"(?:the (?:sub-?agent|session|notebook|kernel)s? )?(?:{_ALL}|{_TO})"
_SAID = r"\s*(?:[:：]|,? that\b)\s*(?P<said>\S.*)"
_ENGLISH = (
    re.compile(rf"^(?:please )?(?:send|write|leave)(?: a)?(?: message| note)? to {_WHO}{_SAID}", re.I | re.S),
    re.compile(rf"^(?:please )?(?:message|notify|tell) {_WHO}{_SAID}", re.I | re.S),
)
_WER = r"(?:(?P<all>所有(?:的)?(?:子代理|代理|人)|全体|大家)|(?:子代理|会话|笔记本)?\s*[`“\"]?(?P<to>[\w.*/-]+)[`”\"]?)"
_CHINESE = (
    re.compile(
        rf"^请?(?:给|向)\s*{_WER}\s*(?:发|写|留)(?:送)?(?:一?条|个)?(?:消息|信息|留言|信)\s*[:：，,]\s*(?P<said>\S.*)",
        re.S,
    ),
    re.compile(rf"^请?(?:告诉|通知)\s*{_WER}\s*[:：，,]\s*(?P<said>\S.*)", re.S),
)
_SHUT = re.compile(
    r"^(?:please )?shut down (?:the )?sub-?agents? [`\"']?(?P<down>[\w.*-]+)[`\"']?\W*$"
    r"|^(?:please )?ask (?:the )?(?:sub-?agent )?[`\"']?(?P<ask>[\w.*-]+)[`\"']? to (?:shut down|end)\b.*$"
    r"|^请?(?:关闭|结束)\s*子代理\s*[`“\"]?(?P<zh>[\w.*-]+)[`”\"]?\W*$",
    re.I,
)
_CAME = re.compile(
    r"\b(?:any|new|what|which|read|show)\b.*\b(?:messages?|mail)\b|(?:有|读|看|收到).*(?:消息|留言)", re.I
)
_FILE = re.compile(r"\.(?!ipynb$)[a-z]{2,7}$", re.I)
_END = re.compile(r'<message from="[^"\n]*" kind="shutdown_request">')
_PEOPLE = ("me", "us", "him", "her", "them", "you")


def wanted(task: Task) -> tuple[str, str, str] | None:
    """Whom a request wants written to, what, and its kind; None for other requests."""
    asked = task.conversation.turn.words.strip()
    for pattern in (*_ENGLISH, *_CHINESE):
        found = pattern.match(asked)
        if found is not None and (to := "*" if found["all"] else found["to"]).lower() not in _PEOPLE:
            if _FILE.search(to):
                return None  # a file is to be written
            return to, found["said"].strip(), "text"
    found = _SHUT.match(asked)
    if found is not None:
        to = found["down"] or found["ask"] or found["zh"]
        return ("*" if to.lower() in ("all", "everybody") else to), "Please end your work now.", "shutdown_request"
    return None


def send(task: Task, to: str, said: str, kind: str) -> Recipe:
    """Sends it and says what became of it."""
    given = {"to": to, "message": said} | ({"kind": kind} if kind != "text" else {})
    step = yield from task.call("send_message", given, f"The user wants {to} to be written to.")
    answer = step.text.strip()
    if step.failed:
        raise Ending(task.say(f"The message was not sent: {answer[:400]}", f"消息没有发出：{answer[:400]}"))
    return task.say(f"Sent. {answer[:400]}", f"已发出。{answer[:400]}")


def came(task: Task) -> str:
    """What other agents wrote, when the request asks for it or tells to end; "" when nobody did or it does not."""
    extras = task.conversation.turn.extras
    if any(_END.match(extra) for extra in extras):
        return task.say("I end my work here, as asked.", "应要求就此结束。")
    if not _CAME.search(task.conversation.turn.words):
        return ""
    found = [re.match(r"<message from=\"([^\"\n]*)\"[^>\n]*>\n(.*)\n</message>$", extra, re.S) for extra in extras]
    lines = [f"> **{each[1]}**: {' '.join(each[2].split())[:400]}" for each in found if each is not None]
    if not lines:
        return ""
    return task.say("Messages that came:", "收到的消息：") + "\n\n" + "\n>\n".join(lines)
