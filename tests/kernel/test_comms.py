"""Clicks arrive while the cell runs, blocked or not, with or without a subshell; forged ones never."""

from __future__ import annotations

import time

import pytest
from kernels import Kernel
from pace import within

BUSY = "s = scripted.Scripted(ip, ('code', 'print(\"ready\")\\nwhile True: pass')).button()\nawait s.awaited()"


def test_the_newest_kernel_still_has_both_private_names(kernel: Kernel) -> None:
    comm = "__import__('comm').create_comm(target_name='t')"
    names = f"[hasattr(ip.kernel, 'shell_channel_thread_main'), hasattr({comm}, '_reply_subshell_for')]"
    assert kernel.eval(names) == [True, True]


@pytest.mark.paced
@pytest.mark.parametrize("subshell", [False, True])
def test_a_click_ends_a_busy_loop(kernel: Kernel, subshell: bool) -> None:
    if subshell:
        kernel.make_subshell()
    try:
        cell = kernel.run(BUSY, when="LIVE ready", act=lambda k: k.click({"kind": "stop"}))
    finally:
        kernel.subshell = None
    assert cell.value["why"] == "button"
    assert cell.latency < within(1, 20)


@pytest.mark.parametrize("code", ["while True: pass", "import asyncio\\nawait asyncio.sleep(60)"])
def test_a_cell_in_a_subshell_can_be_stopped_too(kernel: Kernel, code: str) -> None:
    kernel.make_subshell()
    source = f"s = scripted.Scripted(ip, ('code', 'print(\"ready\")\\n{code}')).button()\nawait s.awaited()"
    try:
        cell = kernel.run(source, when="LIVE ready", in_subshell=True, act=stop_over_the_main_shell)
    finally:
        kernel.subshell = None
    assert cell.value["why"] == "button"
    assert cell.errors == []


def stop_over_the_main_shell(kernel: Kernel) -> None:
    kernel.subshell = None
    kernel.click({"kind": "stop"})


def test_a_forged_click_is_not_taken(kernel: Kernel) -> None:
    def forge(kernel: Kernel) -> None:
        kernel.click({"kind": "stop"}, key=b"not the kernel's")
        time.sleep(0.3)
        kernel.interrupt()

    cell = kernel.run(BUSY, when="LIVE ready", act=forge)
    assert cell.value["why"] == "interrupt"
    assert kernel.eval("len(s.clicks)") == 0


def test_after_the_undo_nothing_is_routed_any_more(kernel: Kernel) -> None:
    code = (
        "import comm, time\nfrom ipyagent.kernel.frontend import route_clicks\nseen = []\n"
        "c = comm.create_comm(target_name='t')\nundo = route_clicks(ip.kernel, c, seen.append)\n"
        "undo(); undo()\nprint('LIVE ready', flush=True)\ntime.sleep(0.3)\n"
        "print('VALUE', len(seen) + len(ip.kernel._ipyagent_peek.callbacks))"
    )
    assert kernel.run(code, when="LIVE ready", act=lambda k: k.click({"kind": "stop"})).value == 0
    assert kernel.eval("'_reply_subshell_for' in vars(c)") is False
