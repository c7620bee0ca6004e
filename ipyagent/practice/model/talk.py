"""Answers that need no tool: about the conversation, about the practice model, summaries, JSON of a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from . import reading
from .conversation import MARK, Conversation, Turn
from .intents import Ask
from .recipe import Task
from .session import instance, word_set


def _own(conversation: Conversation) -> list[Turn]:
    """Earlier turns with words of the user."""
    return [turn for turn in conversation.turns[:-1] if turn.asked]


def _gist(said: str, most: int = 160) -> str:
    """The first line of an answer without the mark of the practice model."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not MARK.search(line)]
    first = re.sub(r"[,，]?\s*[:：]$", "", lines[0]) if lines else ""
    return first if len(first) <= most else first[:most].rstrip() + "…"


def discuss(task: Task, ask: Ask) -> str:
    """What was asked and answered so far, one line each."""
    earlier = _own(task.conversation)
    if not earlier:
        return task.say("This is the first thing you have asked in this conversation.", "这是这段对话里的第一个问题。")
    lines = []
    for number, turn in enumerate(earlier, 1):
        asked = " ".join(turn.asked.replace("*", "").split())
        asked = asked if len(asked) <= 120 else asked[:120] + "…"
        lines.append(f"{number}. **{asked}**  \n   {_gist(turn.said) or task.say('(no answer)', '（没有回答）')}")
    shown = lines if len(lines) <= 15 else [*lines[:5], "…", *lines[-9:]]
    return (
        task.say(f"So far you asked {len(earlier)} things:", f"到目前为止你问了 {len(earlier)} 件事：")
        + "\n\n"
        + "\n".join(shown)
    )


def first_question(task: Task, ask: Ask) -> str:
    """The first or the previous request, word for word."""
    earlier = _own(task.conversation)
    if not earlier:
        return task.say("This is your first question.", "这就是你的第一个问题。")
    last = re.search(r"\b(?:last|previous)\b|上一个|刚才", ask.text, re.I)
    turn = earlier[-1] if last else earlier[0]
    which = task.say("previous" if last else "first", "上一个" if last else "第一个")
    return task.say(f"Your {which} question was: “{turn.asked[:500]}”", f"你的{which}问题是：“{turn.asked[:500]}”")


def greet(task: Task, ask: Ask) -> str:
    """A greeting, with what to try."""
    return task.say(
        "Hello. Try: “load the palmer penguins data set”, then “average body mass by species”.",
        "你好。可以试试：“加载企鹅数据集”，然后 “按物种计算平均体重”。",
    )


def thanks(task: Task, ask: Ask) -> str:
    """Nothing to do."""
    return task.say("You are welcome.", "不客气。")


def unknown(task: Task, ask: Ask) -> str:
    """What this is, what it can do, how to connect a language model."""
    outside = ask.kind != "help"
    return task.say(
        "I am the practice model: fixed rules, not a language model"
        + (", and this request is outside them.\n" if outside else ".\n")
        + "I can: load a file or data set, profile it, find missing values, group, count, filter, plot, compare, "
        "correlate, "
        "fit a line, run your code, list variables and files; in English and Chinese.\n"
        "For example: “average body mass by species and sex”, “plot flipper length by body mass”.\n"
        "For a real model set ANTHROPIC_API_KEY (or ANTHROPIC_BASE_URL for a local server), then `%agent model NAME`.",
        "我是练习模型：只有固定规则，不是语言模型"
        + ("，这个请求超出了规则。\n" if outside else "。\n")
        + "我会：读取文件或数据集、概览、查缺失值、分组、计数、筛选、画图、比较、相关、线性拟合、运行你的代码、"
        "列出变量和文件；中英文都可以。\n"
        "例如：“按物种和性别计算平均体重”，“画体重和鳍长的散点图”。\n"
        "要用真正的模型：设置 ANTHROPIC_API_KEY（或本地服务器的 ANTHROPIC_BASE_URL），然后 `%agent model NAME`。",
    )


_MANIFEST = re.compile(
    r"^\s*[-*]\s*(?:\[(?P<type>\w+)\]\s*)?`?(?P<name>[\w./-]+\.md)`?\s*(?:\([^)]*\))?\s*[:—-]?\s*(?P<about>.*)$", re.M
)


def structured(conversation: Conversation) -> str:
    """A JSON text of the schema that was asked for; lists of names are picked from a manifest by common words."""
    asked = conversation.turn.asked + "\n" + "\n".join(conversation.turn.extras)
    schema: Mapping[str, Any] = conversation.schema or {}
    value = instance(schema)
    manifest = [(found["name"], found["about"]) for found in _MANIFEST.finditer(asked)]
    if manifest and isinstance(value, dict):
        wanted = word_set(_MANIFEST.sub("", asked))
        score = {name: len(wanted & word_set(f"{name} {about}".replace("_", " "))) for name, about in manifest}
        best = sorted((name for name in score if score[name] >= 2), key=lambda name: (-score[name], name))[:5]
        for field, form in reading.fields(schema).items():
            if (
                isinstance(form, dict)
                and form.get("type") == "array"
                and (form.get("items") or {}).get("type") == "string"
            ):
                value[field] = best
                break
    return json.dumps(value, ensure_ascii=False)
