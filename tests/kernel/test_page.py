"""What pages with the companion say reaches the kernel at any moment; a page that is late makes nothing."""

from __future__ import annotations

from kernels import Kernel

LINK = (
    "import asyncio, time\nfrom pathlib import Path\nfrom ipyagent.kernel.page import PageLink, Unanswered\n"
    "link = PageLink(ip.kernel)\nbook = Path('/home/ada/work/a.ipynb')\n"
)
HELLO = {"kind": "hello", "page": "p", "seq": 1, "path": "RTC:work/a.ipynb"}


def hello(kernel: Kernel) -> None:
    kernel.comm = "ipyagent.page"  # no `comm_open` told it
    kernel.click(HELLO)


def test_a_page_is_heard_while_code_blocks_and_counts_for_its_own_notebook(kernel: Kernel) -> None:
    busy = (
        "print('LIVE ready', flush=True)\nend = time.time() + 8\n"
        "while link.page_of(book) is None and time.time() < end: pass\n"
        "other = Path('/home/ada/work/b.ipynb')\n"
        "print('VALUE', str([link.page_of(each) is not None for each in (book, other)]).lower())"
    )
    cell = kernel.run(LINK + busy, when="LIVE ready", act=hello)
    assert cell.value == [True, False]
    assert kernel.eval("(link.close(), 'ipyagent.page' in __import__('comm').get_comm_manager().comms)[1]") is False


def test_a_page_that_does_not_take_an_edit_in_time_is_closed_and_never_told_to_make_it(kernel: Kernel) -> None:
    code = LINK + (
        f"link.hear({HELLO!r})\npage = link.page_of(book)\n"
        "import ipyagent.kernel.page as module\nmodule.PATIENCE = 0.5\n"
        "try:\n    await link.have_done(page, [{'action': 'delete', 'cell': 'c'}])\nexcept Unanswered as problem:\n"
        "    import json; print('VALUE', json.dumps([problem.taken, link.page_of(book) is None]))\nlink.close()"
    )
    cell = kernel.run(code)
    assert cell.value == [False, True]
    assert not cell.errors


def test_of_pages_whose_paths_fit_the_one_with_the_longest_is_meant(kernel: Kernel) -> None:
    said = [("p", "analysis.ipynb"), ("q", "old/analysis.ipynb"), ("r", "old/analysis.ipynb"), ("s", "analysis.ipynb")]
    hellos = [{"kind": "hello", "page": page, "seq": 1, "path": path} for page, path in said]
    code = LINK + (
        f"for each in {hellos!r}: link.hear(each)\n"
        "found = [link.page_of(Path('/home/ada') / each).ident for each in ('old/analysis.ipynb', 'analysis.ipynb')]\n"
        "import json; print('VALUE', json.dumps(found))\nlink.close()"
    )
    assert kernel.run(code).value == ["r", "s"]


def test_a_page_alone_is_not_taken_for_a_notebook_of_the_same_name_in_another_folder(kernel: Kernel) -> None:
    alone = {"kind": "hello", "page": "p", "seq": 1, "path": "analysis.ipynb"}
    code = LINK + (
        f"link.close()\nlink = PageLink(ip.kernel, lambda: Path('/home/ada'))\nlink.hear({alone!r})\n"
        "found = [link.page_of(Path('/home/ada', each)) is None for each in ('old/analysis.ipynb', 'analysis.ipynb')]\n"
        "import json; print('VALUE', json.dumps(found))\nlink.close()"
    )
    assert kernel.run(code).value == [True, False]
