"""The companion in JupyterLab and Notebook 7: the open notebook as the agent's, Fix at errors,
requests that look like text, the panel at the side, the status bar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ipyagent.practice.replies import text, tool

from .lab import PANEL, REPOSITORY, THEMES, Page, stored, until, write_notebook
from .product import HELD, Product
from .test_accessible import bring_axe, faults

SETUP = "%load_ext ipyagent\n%config IPyAgent.extraction = False\n%config IPyAgent.layer_notes = False"
ASK = f"{SETUP}\n%config IPyAgent.mode = 'ask'"
RESTART = f"async () => {{ {PANEL} await p.context.sessionContext.session.kernel.restart() }}"
RTC = os.environ.get("IPYAGENT_COLLABORATION", "")
OURS = ".ipyagent-diff, #ipyagent-side, .ipyagent-fix, .ipyagent-status"
MENU = ".lm-Menu-item[data-command^='ipyagent:']"
HURT = "<img src=x onerror=\"window.hurt = 1\">"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product(tmp_path_factory.mktemp("companion"), companion=True) as made:
        yield made


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product(tmp_path_factory.mktemp("companion7"), "notebook", companion=True) as made:
        yield made


def opened(product: Product, page: Page, name: str, cells: list[str]) -> list[str]:
    """The notebook with these cells, open, its first cell run, known to the companion; its cells' ids."""
    write_notebook(product.root, name, cells)
    page.open(name)
    page.run(0)
    page.page.wait_for_selector(".ipyagent-on", state="attached")
    return [cell["id"] for cell in stored(product.root, name)]


def asked(product: Product, number: int = -1) -> str:
    """The last message that the model got in a request."""
    return json.dumps(product.bodies[number]["messages"][-1], ensure_ascii=False)


def select(page: Page, cell: int) -> None:
    """Choose a cell, in command mode."""
    page.cell(cell).locator(".jp-InputArea-prompt").first.click()
    page.page.wait_for_selector(".jp-Notebook.jp-mod-commandMode")


def test_three_cells_into_an_unsaved_notebook_one_rejected_one_undone(either: Product) -> None:
    app = either.jupyter.app
    with Page(either.jupyter, width=1400) as page:
        ids = opened(either, page, "three.ipynb", [ASK, "%%agent\nadd three", "x = 1", "'mine'"])
        page.write(3, "'mine, not saved'")
        before = (either.root / "three.ipynb").read_bytes()
        cells = [{"source": "a = 1"}, {"source": f"b = '{HURT}'"}, {"source": "# c", "cell_type": "markdown"}]
        insert = {"action": "insert", "after": ids[2], "cells": cells}
        either.script(tool("notebook", {"action": "read"}), tool("notebook", insert), text("Two are in."))
        page.run(1, wait=False)
        diffs = page.cell(2).locator(".ipyagent-diff")
        expect(diffs).to_have_count(3)
        assert "'mine, not saved'" in asked(either)  # what the model reads is what stands in the page
        assert HURT in diffs.nth(1).inner_text()
        page.cell(2).scroll_into_view_if_needed()
        page.shot(f"companion_three_{app}")
        # what a script of the page presses is no consent
        page.page.evaluate("() => document.querySelector('.ipyagent-accept-all').click()")
        time.sleep(0.3)
        assert diffs.locator(".ipyagent-accept").count() == 3
        diffs.nth(1).locator(".ipyagent-reject").click()
        expect(diffs.nth(1)).to_contain_text("rejected")
        diffs.nth(0).locator(".ipyagent-accept-all").click()
        page.wait_done(1)
        expect(page.page.locator(".ipyagent-diff")).to_have_count(0)
        page.shows([ASK, "%%agent\nadd three", "x = 1", "a = 1", "# c", "'mine, not saved'"])
        assert "the user rejected 1 of 3 cells" in asked(either)
        assert (either.root / "three.ipynb").read_bytes() == before  # one way only: the page
        page.shot(f"companion_inserted_{app}")
        select(page, 5)
        page.page.wait_for_selector(".jp-Notebook.ipyagent-undo")
        page.page.keyboard.press("Control+z")
        page.shows([ASK, "%%agent\nadd three", "x = 1", "a = 1", "'mine, not saved'"])
        page.save()
        saved = [cell["source"] for cell in stored(either.root, "three.ipynb")]
        assert saved[2:] == ["x = 1", "a = 1", "'mine, not saved'"]
        assert page.page.evaluate("() => window.hurt") is None
        assert page.errors == []
        page.shut_down()


def test_what_is_too_long_to_be_seen_in_its_cell_can_be_rejected_there_and_not_accepted(product: Product) -> None:
    with Page(product.jupyter) as page:
        ids = opened(product, page, "long.ipynb", [ASK, "%%agent\nadd two", "x = 1"])
        long = "\n".join(f"value_{n} = {n}" for n in range(2_000))
        insert = {"action": "insert", "after": ids[2], "cells": [{"source": long}, {"source": "short = 1"}]}
        product.script(tool("notebook", {"action": "read"}), tool("notebook", insert), text("One is in."))
        page.run(1, wait=False)
        diffs = page.cell(2).locator(".ipyagent-diff")
        expect(diffs).to_have_count(2)
        expect(diffs.nth(0)).to_contain_text("Too long to accept here")
        expect(diffs.nth(0)).to_contain_text("more characters")
        expect(diffs.nth(0).locator(".ipyagent-accept")).to_have_count(0)
        expect(page.page.locator(".ipyagent-accept-all")).to_have_count(0)
        diffs.nth(0).scroll_into_view_if_needed()
        page.shot("companion_cut_lab")
        diffs.nth(1).locator(".ipyagent-accept").click()
        expect(diffs.nth(0).locator(".ipyagent-accept")).to_have_count(0)
        diffs.nth(0).locator(".ipyagent-reject").click()
        page.wait_done(1)
        page.shows([ASK, "%%agent\nadd two", "x = 1", "short = 1"])
        assert "the user rejected 1 of 2 cells" in asked(product)
        assert page.errors == []
        page.shut_down()


def test_every_edit_is_made_in_the_open_page_and_is_one_step_back(product: Product) -> None:
    cells = [SETUP, "%%agent\nwork", "x = 1", "y = 2", "z = 3"]
    with Page(product.jupyter) as page:
        (product.root / "other").mkdir()
        write_notebook(product.root / "other", "edits.ipynb", ["'another of this name'"])
        ids = opened(product, page, "edits.ipynb", cells)
        page.write(2, "x = 40")
        product.script(
            tool("notebook", {"action": "read", "path": "other/edits.ipynb"}),
            tool("notebook", {"action": "read"}),
            tool("notebook", {"action": "replace", "cell": ids[2], "source": "x = 42\nprint('there', x)"}),
            tool("notebook", {"action": "run", "cell": ids[2]}),
            tool("notebook", {"action": "move", "cell": ids[4], "after": ids[1]}),
            tool("notebook", {"action": "delete", "cell": ids[3]}),
            text("Done."),
        )
        page.run(1)
        assert "another of this name" in json.dumps(product.bodies[-1]["messages"][:3])
        new = "x = 42\nprint('there', x)"
        page.shows([SETUP, "%%agent\nwork", "z = 3", new])
        assert page.outputs(3)[0]["text"].strip() == "there 42"
        select(page, 0)
        for after in (["z = 3", new, "y = 2"], [new, "y = 2", "z = 3"]):
            page.page.wait_for_selector(".jp-Notebook.ipyagent-undo")
            page.page.keyboard.press("Control+z")
            page.shows([SETUP, "%%agent\nwork", *after])
        page.page.wait_for_selector(".jp-Notebook.ipyagent-undo")
        page.page.keyboard.press("Control+z")
        page.shows([SETUP, "%%agent\nwork", "x = 40", "y = 2", "z = 3"])
        # a cell that the user changes meanwhile is theirs
        product.script(
            tool("notebook", {"action": "read"}),
            tool("python", {"code": HELD}),
            tool("notebook", {"action": "replace", "cell": ids[3], "source": "y = 'agent'"}),
            text("Left alone."),
        )
        page.write(1, "%%agent\nmore")
        page.run(1, wait=False)
        page.cell(1).get_by_text("running python").first.wait_for()
        page.write(3, "y = 'user'")
        product.let_go()
        page.wait_done(1)
        assert "was changed in the open page since it was read" in asked(product)
        assert page.sources()[3] == "y = 'user'"
        assert page.errors == []
        page.shut_down()


def test_an_edit_whose_page_closes_meanwhile_is_made_nowhere(product: Product) -> None:
    cells = [SETUP, "%%agent\nwork", "x = 1"]
    with Page(product.jupyter) as page:
        ids = opened(product, page, "closes.ipynb", cells)
        page.save()
        before = (product.root / "closes.ipynb").read_bytes()
        product.script(
            tool("notebook", {"action": "read"}),
            tool("python", {"code": HELD}),
            tool("notebook", {"action": "replace", "cell": ids[2], "source": "x = 'agent'"}),
            tool("notebook", {"action": "read"}),
            text("Nothing was changed."),
        )
        sent = len(product.bodies)
        page.run(1, wait=False)
        until(lambda: len(product.bodies) == sent + 2, "a call of python")
        page.page.goto("about:blank")
        product.let_go()
        until(lambda: len(product.bodies) == sent + 5, "the last request")
        told = asked(product, sent + 3)
        assert "was not read in this session" in told or "no longer answers" in told
        assert "as it stands in the user's open page" not in asked(product, sent + 4)
        assert (product.root / "closes.ipynb").read_bytes() == before


def test_fix_asks_with_the_cell_and_its_error(either: Product) -> None:
    app = either.jupyter.app
    with Page(either.jupyter, width=1400) as page:
        opened(either, page, "fix.ipynb", [SETUP, "def f(x):\n    return 1 / x", "f(0)", "'last'"])
        page.run(1)
        page.run(2)
        fix = page.cell(2).locator(".ipyagent-fix")
        expect(fix).to_be_visible()
        page.page.evaluate("() => document.querySelector('.ipyagent-fix').click()")
        time.sleep(0.3)
        assert len(page.sources()) == 4
        either.script(text("Zero has no reciprocal."))
        fix.click()
        request = "%%agent\nFind out why @cell:3 failed and fix it."
        page.shows([SETUP, "def f(x):\n    return 1 / x", "f(0)", request, "'last'"])
        page.wait_done(3)
        request = asked(either)
        assert "it ended in an error" in request
        assert "return 1 / x" in request  # the traceback, with the line of the other cell
        page.shot(f"companion_fix_{app}")
        assert page.cell(3).locator(".ipyagent-fix").count() == 0
        if app == "lab":  # the same from the cell's own menu, of a cell that changed since it ran
            page.write(2, "f(0.0)")
            either.script(text("The same."))
            page.cell(2).locator(".jp-InputArea-prompt").first.click(button="right")
            page.page.locator(".lm-Menu-itemLabel", has_text="Fix with Agent").click()
            until(lambda: len(either.bodies[-1]["messages"]) == 3, "a second request")
            assert "f(0.0)" in asked(either)
            assert "ZeroDivisionError" in asked(either)
        assert page.errors == []
        page.shut_down()


def test_a_request_runs_in_its_own_notebook_whichever_is_in_front_by_then(product: Product) -> None:
    write_notebook(product.root, "aside.ipynb", ["open('ran_aside', 'w').close()"])
    with Page(product.jupyter, width=1400) as page:
        opened(product, page, "asks.ipynb", [SETUP, "y = 1"])
        page.run(1)
        page.command("docmanager:open", {"path": "aside.ipynb"})
        page.page.wait_for_function(f"() => {{ {PANEL} return p.context.path === 'aside.ipynb' }}")
        page.command("docmanager:open", {"path": "asks.ipynb"})
        page.page.wait_for_function(f"() => {{ {PANEL} return p.context.path === 'asks.ipynb' }}")
        select(page, 1)
        product.script(text("It is one."))
        page.page.evaluate(
            f"() => {{ {PANEL} app.commands.execute('ipyagent:explain');"
            " for (const w of app.shell.widgets('main'))"
            " if (w.context?.path === 'aside.ipynb') app.shell.activateById(w.id); }"
        )
        until(lambda: product.bodies and "Explain @cell:" in asked(product), "the request")
        page.command("docmanager:open", {"path": "asks.ipynb"})
        page.wait_done(2)
        assert not (product.root / "ran_aside").exists()
        page.shut_down()


def test_keys_menus_and_the_palette_ask_about_a_cell(product: Product) -> None:
    with Page(product.jupyter) as page:
        opened(product, page, "keys.ipynb", [SETUP, "total = 6 * 7", "'last'"])
        page.run(1)
        select(page, 1)
        page.page.keyboard.press("Control+k")
        page.page.keyboard.press("a")
        page.shows([SETUP, "total = 6 * 7", "%%agent\nAbout @cell:2\n", "'last'"])
        page.page.keyboard.press("Escape")
        select(page, 1)
        product.script(text("It multiplies."))
        page.page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        page.page.locator(".lm-Menu-itemLabel", has_text="Explain Cell with Agent").wait_for()
        page.shot("companion_menu_lab")
        page.page.locator(".lm-Menu-itemLabel", has_text="Explain Cell with Agent").click()
        until(lambda: page.sources()[2] == "%%agent\nExplain @cell:2 step by step.", "a request")
        page.wait_done(2)
        page.page.keyboard.press("Control+Shift+c")
        found = page.page.locator(".lm-CommandPalette-itemLabel")
        page.page.locator(".lm-CommandPalette-input").fill("agent")
        labels = ("Ask Agent About the Selection", "Agent Panel", "Compact the Agent's Context")
        for label in labels:
            expect(found.filter(has_text=label).first).to_be_visible()
        page.shot("companion_palette_lab")
        page.page.keyboard.press("Escape")
        assert page.errors == []
        page.shut_down()


def test_requests_look_like_text_and_complete_while_they_are_typed(product: Product) -> None:
    with Page(product.jupyter) as page:
        opened(product, page, "text.ipynb", [SETUP, "penguins = 1", "%%agent\nplot **this**", "%%agent\n", "# plain"])
        page.run(1)
        mime = f"(i) => {{ {PANEL} return p.content.widgets[i].model.mimeType }}"
        until(lambda: page.page.evaluate(mime, 2) == "text/x-ipythongfm", "Markdown in a request")
        assert page.page.evaluate(mime, 4) != "text/x-ipythongfm"
        hint = "(i) => getComputedStyle(document.querySelectorAll('.jp-Cell')[i].querySelector('.cm-line:last-child'), '::before').content"  # noqa: E501
        until(lambda: "Ask the agent" in page.page.evaluate(hint, 3), "a hint")
        assert "Ask the agent" not in page.page.evaluate(hint, 2)
        page.shot("companion_text_lab")
        page.cell(3).locator(".cm-line").last.click()
        page.page.keyboard.type("show @pen", delay=60)
        items = page.page.locator(".jp-Completer .jp-Completer-item")
        expect(items.filter(has_text="@penguins").first).to_be_visible()
        page.shot("companion_completes_lab")
        page.page.keyboard.press("Escape")
        page.write(3, "%%agent\n")
        page.cell(3).locator(".cm-line").last.click()
        page.page.keyboard.type("/")
        expect(items.filter(has_text="/").first).to_be_visible()
        # a cell that is no request any more is code again
        page.page.keyboard.press("Escape")
        page.write(2, "plot(this)")
        until(lambda: page.page.evaluate(mime, 2) != "text/x-ipythongfm", "code again")
        assert page.errors == []
        page.shut_down()


def test_the_panel_at_the_side_follows_the_kernel_of_the_notebook_in_front(either: Product) -> None:
    app = either.jupyter.app
    with Page(either.jupyter, width=1400) as page:
        opened(either, page, "side.ipynb", [SETUP, "%%agent\nwork", "'last'"])
        page.command("ipyagent:panel")
        side = page.page.locator("#ipyagent-side")
        expect(side.locator(".ia-board")).to_be_visible()
        either.script(tool("python", {"code": HELD}))
        page.run(1, wait=False)
        stop = side.locator(".ipyagent-side-stop")
        expect(stop).to_be_enabled()
        page.shot(f"companion_side_busy_{app}")
        page.page.reload()  # in mid-run, while code blocks the kernel
        page.page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.page.wait_for_function("window.jupyterapp && window.jupyterapp.shell")
        page.page.wait_for_selector(".ipyagent-on", state="attached")
        page.command("ipyagent:panel")
        expect(stop).to_be_enabled()
        stop.click()
        page.wait_idle()
        expect(stop).to_be_disabled()
        expect(side.locator(".ipyagent-side-told")).to_contain_text("$0.0")
        expect(side.locator(".ia-board")).to_be_visible()
        expect(side).to_contain_text("Turn 1")
        page.shot(f"companion_side_{app}")
        # a new kernel has no agent: the page says so there and nowhere else
        page.page.evaluate(RESTART)
        page.wait_idle()
        expect(side).to_contain_text("has no agent")
        expect(page.page.locator(".ipyagent-on")).to_have_count(0)
        page.run(0)
        page.page.wait_for_selector(".ipyagent-on", state="attached")
        expect(side.locator(".ia-board")).to_be_visible()
        assert page.errors == []
        page.shut_down()


def test_a_kernel_without_the_agent_hears_and_shows_nothing(product: Product) -> None:
    write_notebook(product.root, "bare.ipynb", ["1 / 0", "%%agent\nhello"])
    with Page(product.jupyter, anew=True) as page:  # what the extension says when it starts is heard, too
        told: list[str] = []
        page.page.on("console", lambda line: told.append(line.text) if line.type == "error" else None)
        page.open("bare.ipynb")
        page.run(0)
        time.sleep(1)
        assert page.page.locator(".ipyagent-fix").count() == 0
        assert page.page.locator(".ipyagent-status").inner_text() == ""
        enabled = "(id) => window.jupyterapp.commands.isEnabled(id) || window.jupyterapp.commands.isVisible(id)"
        for name in ("ask", "fix", "explain", "stop", "compact"):
            assert page.page.evaluate(enabled, f"ipyagent:{name}") is False
        assert [line for line in told if "omm" in line or "ipyagent" in line] == []
        assert "No such comm" not in product.jupyter.log.read_text()
        page.shut_down()


def test_each_of_two_kernels_works_in_its_own_notebook(product: Product) -> None:
    write_notebook(product.root, "second.ipynb", [SETUP, "'second'"])
    with Page(product.jupyter, width=1400) as page:
        ids = opened(product, page, "first.ipynb", [SETUP, "%%agent\nwork", "'first'"])
        page.command("ipyagent:panel")
        name = page.page.locator(".ipyagent-side-name")
        expect(name).to_have_text("first.ipynb")
        product.script(
            tool("python", {"code": HELD}),
            tool("notebook", {"action": "read"}),
            tool("notebook", {"action": "insert", "after": ids[2], "source": "made = 1"}),
            text("In the first one."),
        )
        page.run(1, wait=False)
        page.command("docmanager:open", {"path": "second.ipynb"})
        expect(name).to_have_text("second.ipynb")
        expect(page.page.locator(".ipyagent-side-told")).to_contain_text("has no agent")
        page.wait_idle()
        page.run(0)
        expect(page.page.locator(".ipyagent-side-told")).to_contain_text("claude")
        page.shot("companion_second_lab")
        product.let_go()
        page.command("docmanager:open", {"path": "first.ipynb"})
        expect(name).to_have_text("first.ipynb")
        page.wait_done(1)
        page.shows([SETUP, "%%agent\nwork", "'first'", "made = 1"])
        page.command("docmanager:open", {"path": "second.ipynb"})
        expect(name).to_have_text("second.ipynb")
        page.shows([SETUP, "'second'"])
        assert page.errors == []
        page.shut_down()


def test_the_companion_looks_right_and_has_no_fault_that_axe_knows(either: Product) -> None:
    app = either.jupyter.app
    with Page(either.jupyter, width=1400, height=1000) as page:
        long = "value = " + " + ".join(f"part_{n}" for n in range(30))
        request = "%%agent\nedit **it**" + " and say in a sentence what you have changed" * 4
        ids = opened(either, page, "looks.ipynb", [ASK, "1 / 0", request, long, "%%agent\n"])
        page.run(1)
        either.script(
            tool("notebook", {"action": "read"}),
            tool("notebook", {"action": "replace", "cell": ids[3], "source": long.replace("part_7", "seven")}),
            text("Done."),
        )
        page.run(2, wait=False)
        diff = page.cell(3).locator(".ipyagent-diff")
        expect(diff).to_be_visible()
        page.command("ipyagent:panel")
        expect(page.page.locator("#ipyagent-side .ia-board")).to_be_visible()
        page.page.locator("#ipyagent-side [role=tab]", has_text="Skills").click()
        names = page.page.locator("#ipyagent-side .ia-name")
        expect(names.first).to_be_visible()
        bring_axe(page)
        whole = "(node) => node.scrollWidth <= node.clientWidth + 1"
        dark, light = THEMES
        looks = [(dark, 1400), (dark, 800), (light, 1400), (light, 800)]
        for (theme, suffix), width in looks if app == "lab" else looks[1:3]:
            page.theme(theme)
            page.page.set_viewport_size({"width": width, "height": 1000})
            until(lambda: diff.locator(".ipyagent-diff-text").evaluate(whole), "a diff that is all to be seen")
            until(lambda: page.cell(2).locator(".cm-scroller").evaluate(whole), "a request that is all to be seen")
            assert names.evaluate_all(f"(all) => all.every({whole})"), "names of skills"
            diff.scroll_into_view_if_needed()
            page.shot(f"companion_looks_{app}_{width}_{suffix}")
            page.cell(1).scroll_into_view_if_needed()
            page.shot(f"companion_looks_top_{app}_{width}_{suffix}")
            page.cell(1).locator(".jp-InputArea-prompt").first.click(button="right")
            page.page.locator(MENU).first.wait_for()
            page.shot(f"companion_looks_menu_{app}_{width}_{suffix}")
            found, seen = faults(page, f"{OURS}, {MENU}", least="minor")
            assert "\n".join(found) == "", f"{theme} at {width}"
            assert seen > 10  # it looked at the words
            page.page.keyboard.press("Escape")
        diff.locator(".ipyagent-accept").click()
        page.wait_done(2)
        page.shows([ASK, "1 / 0", request, long.replace("part_7", "seven"), "%%agent\n"])
        assert page.errors == []
        page.shut_down()


@pytest.mark.slow
@pytest.mark.skipif(not RTC, reason="IPYAGENT_COLLABORATION names no folder with jupyter-collaboration (see .ci/run)")
def test_a_shared_document_is_edited_once_and_for_every_page(tmp_path: Path) -> None:
    root, cells = tmp_path / "shared", [SETUP, "%%agent\nwork", "x = 1"]
    root.mkdir()
    places = {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), RTC]),
        "JUPYTER_PATH": f"{RTC}/share/jupyter",
        "JUPYTER_CONFIG_PATH": f"{RTC}/etc/jupyter",
    }
    with (
        Product(root, companion=True, environment=places) as product,
        Page(product.jupyter) as page,
        Page(product.jupyter) as other,
    ):
        ids = opened(product, page, "shared.ipynb", cells)
        assert page.page.evaluate(f"() => {{ {PANEL} return p.context.model.collaborative }}") is True
        other.open("shared.ipynb", kernel=False)
        other.page.wait_for_selector(".ipyagent-on", state="attached")
        page.write(2, "x = 41")
        until(lambda: "x = 41" in other.sources(), "the user's words in the other page")
        product.script(
            tool("notebook", {"action": "read"}),
            tool("notebook", {"action": "replace", "cell": ids[2], "source": "x = 42"}),
            tool("notebook", {"action": "insert", "after": ids[2], "source": "y = 1"}),
            text("Done."),
        )
        page.page.bring_to_front()
        page.run(1)
        page.shows([SETUP, "%%agent\nwork", "x = 42", "y = 1"])
        until(lambda: other.sources() == page.sources(), "the same in the other page")
        assert "x = 41" in json.dumps(product.bodies[1]["messages"])
        answers = [output for output in page.outputs(1) if "ia-static" in str(output.get("data"))]
        assert len(answers) == 1, "two pages, one answer"
        page.shot("companion_shared_lab")
        select(page, 0)
        page.page.wait_for_selector(".jp-Notebook.ipyagent-undo")
        page.page.keyboard.press("Control+z")
        page.shows([SETUP, "%%agent\nwork", "x = 42"])
        until(lambda: [cell["source"] for cell in stored(product.root, "shared.ipynb")][2:] == ["x = 42"], "the file")
        page.shut_down()
