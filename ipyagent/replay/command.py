"""`python -m ipyagent replay FILE`: a recorded session through a set of layers, and its figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ipyagent.config import IPyAgent, setting_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    traits: dict[str, Any] = IPyAgent.class_traits()
    engines, policies = traits["engine"].values, traits["clear_policy"].values
    parser.add_argument("file", type=Path, help="a transcript of ipyagent (or its folder), pi or Claude Code")
    parser.add_argument(
        "--layers",
        default="default",
        help="layers, separated by commas; or `all`, `none`, `default` (what the settings say)",
    )
    parser.add_argument(
        "--window", type=int, default=200_000, help="size of the context window in tokens (%(default)s)"
    )
    parser.add_argument("--engine", choices=engines, default="client", help="who compacts the context (%(default)s)")
    parser.add_argument(
        "--policy", choices=policies, default="economic", help="when to clear tool results (%(default)s)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting, as JSON or text"
    )
    parser.add_argument(
        "--facts", type=Path, metavar="FILE",
        help="facts to look for, one JSON object a line (token, place, forms, standing); else names that stand once",
    )  # fmt: skip
    parser.add_argument(
        "--own-words", action="store_true", help="of a transcript of ours: its own head, and the summaries and notes "
        "that its model wrote"
    )  # fmt: skip
    parser.add_argument("--turns", action="store_true", help="print a line for every turn")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    """Replay and print; returns 1 when a request was refused. Raises UsageError, SettingError."""
    from ipyagent.replay.importers import read_recording
    from ipyagent.replay.metrics import distinctive, read_facts
    from ipyagent.replay.replaying import chosen_layers, replay, settings_for

    recording = read_recording(chosen.file)
    given = {"window": chosen.window, "engine": chosen.engine, "clear_policy": chosen.policy}
    given |= dict(_setting(text) for text in chosen.set)
    settings = settings_for(layers=chosen_layers(chosen.layers), **given)
    facts = read_facts(chosen.facts) if chosen.facts is not None else distinctive(recording)
    measured = replay(recording, settings, facts, own_words=chosen.own_words)
    if chosen.json:
        print(json.dumps({**measured.json(), "problems": recording.problems}, ensure_ascii=False, indent=1))
    else:
        print(measured.table(turns=chosen.turns))
        for problem in recording.problems:
            print(f"not read: {problem}", file=sys.stderr)
    return 1 if measured.refused else 0


def _setting(text: str) -> tuple[str, Any]:
    from ipyagent.errors import UsageError
    from ipyagent.replay.replaying import FIXED

    name, sign, value = text.partition("=")
    if not sign or name not in setting_names():
        raise UsageError(f"--set {text!r}: write NAME=VALUE with the name of a setting")
    if name in FIXED:
        raise UsageError(f"--set {name}: not available in a replay, where the practice model answers as recorded")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
