"""The page in a real browser: Chromium."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from tools.scene import ESCAPES, LONG, MARKUP

from handfast import Handfast
from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests.deep.page.conftest import served

pytestmark = pytest.mark.timeout(300)

VIEWS = ["", "held", "limits", "results", "doctor", "operators", "name/lock/nightly-export", "name/semaphore/gpu"]

WIDTHS = [360, 768, 1024, 1440, 1920]

CONTRASTS = """() => {
  const channel = (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const read = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(read(getComputedStyle(each).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility() || element.closest("svg, .hidden-text, script, noscript")) continue;
    const behind = ground(element);
    const color = over(read(getComputedStyle(element).color), behind);
    const [light, dark] = [luminance(color), luminance(behind)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${element.className} ${node.data.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_each_view_fits_and_is_silent(open_tab, width, theme):
    tab = open_tab(size=(width, 800), theme=theme)
    tab.live()
    for view in VIEWS:
        tab.go(view)
        tab.page.wait_for_timeout(250)
        assert tab.run("document.documentElement.scrollWidth") <= width, view
        assert tab.page.locator("section:not([hidden])").count() == 1


def test_a_phone_shows_why_a_run_failed_and_what_an_operator_did(open_tab):
    tab = open_tab(size=(360, 740))
    for view, text in (("results", "no address for customer 88"), ("operators", "hung after the deploy")):
        tab.go(view)
        cell = tab.page.locator("td", has_text=text)
        cell.wait_for()
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_text_has_contrast(open_tab, theme):
    tab = open_tab(size=(1440, 1000), theme=theme)
    tab.live()
    for view in [*VIEWS, "name/lock/deploy", "name/lock/catalog"]:
        tab.go(view)
        tab.page.wait_for_timeout(1300)
        assert tab.run(CONTRASTS) == [], view
    tab.go("name/lock/nightly-export")
    tab.page.locator("#act-release:not([disabled])").click()
    assert tab.run(CONTRASTS) == []


def test_thousands_of_rows_are_few_elements(open_tab):
    tab = open_tab()
    tab.go("held")
    tab.live()
    tab.wait("#matches", r"^2,0\d\d names$")
    rows = tab.page.locator(".grid-row")
    seen = set()
    for where in ("document.body.scrollHeight", "0"):
        tab.run(f"scrollTo(0, {where})")
        tab.page.wait_for_timeout(300)
        assert 10 < rows.count() < 60
        seen.add(rows.last.get_attribute("aria-rowindex"))
        assert rows.first.is_visible()
    assert len(seen) == 2
    assert int(tab.page.locator("#grid").get_attribute("aria-rowcount")) > 2000


def test_keys_filter_mark_open_and_go_back(open_tab):
    tab = open_tab()
    tab.live()
    tab.page.keyboard.press("/")
    tab.page.wait_for_timeout(100)
    tab.page.keyboard.type("evil")
    tab.wait("#matches", "^1 of ")
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Enter")
    tab.wait("#name-title", "evil")
    tab.page.keyboard.press("Escape")
    assert tab.run("location.hash") == "#/held"
    assert tab.page.input_value("#filter") == "evil"
    tab.page.keyboard.press("Escape")
    assert tab.page.input_value("#filter") == ""
    tab.page.keyboard.press("1")
    tab.wait("#verdict", "stuck")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("j")
    assert tab.page.locator("[data-section=overview] .marked").count() == 1
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_function("location.hash !== '#/'")
    tab.page.keyboard.press("?")
    assert tab.page.locator("#keys").is_visible()
    tab.page.keyboard.press("2")
    assert tab.page.locator("#keys").is_visible()
    tab.page.keyboard.press("Escape")
    assert not tab.page.locator("#keys").is_visible()
    tab.page.keyboard.press("t")
    assert tab.run("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_reaches_all_and_a_row_is_announced(open_tab):
    tab = open_tab()
    tab.live()
    tab.page.keyboard.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    tab.page.keyboard.press("Enter")
    assert tab.run("[document.activeElement.id, location.hash]") == ["main", "#/"]
    tab.go("held")
    tab.page.locator("#grid").focus()
    tab.page.keyboard.press("ArrowDown")
    active = tab.page.locator("#grid").get_attribute("aria-activedescendant")
    row = tab.page.locator(f"#{active}")
    assert row.get_attribute("aria-selected") == "true"
    assert row.get_attribute("role") == "row"
    assert row.locator("[role=gridcell]").count() == 10
    pictures = tab.page.locator("svg[role=img]")
    assert all(tab.run("(all) => all.map((element) => element.getAttribute('aria-label'))", pictures.element_handles()))
    spoken = tab.run(
        "[...document.querySelectorAll('[role=status], [role=alert], [aria-live]')].map((element) => element.id)"
    )
    assert set(spoken) == {"live", "outage-says", "matches-spoken", "ask-error", "toast"}


def test_names_and_labels_of_others_are_text(open_tab):
    tab = open_tab()
    tab.live()
    for view in VIEWS:
        tab.go(view)
        tab.page.wait_for_timeout(200)
        assert tab.page.locator("main script, main img, bdi b").count() == 0
    for name in (MARKUP, LONG, ESCAPES):
        tab.run("(name) => { location.hash = `#/name/lock/${encodeURIComponent(name)}`; }", name)
        tab.wait("#name-says", "^Held by")
    assert tab.text("#name-title") == r"evil\x1b[31mred\x07 \u202egnp.exe"
    assert tab.text("#holders .label").strip() == "<img src=x onerror=alert('label')>"


@pytest.mark.parametrize(
    "name",
    [
        MARKUP,
        ESCAPES,
        "a b",
        "it's",
        "-rf",
        "$(id)",
        "a\nb",
        "tab\there",
        "注文:東京🦊",
        "\\",
        "'\\''",
        "*",
        "~",
        "!x",
        "é\u0301",
    ],
)
def test_a_name_is_one_word_of_the_shell(open_tab, name):
    tab = open_tab()
    word = tab.run("async (name) => (await import('./words.js')).quoted(name)", name)
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name
    assert "\n" not in word


def test_a_frozen_page_stands_still(open_tab):
    tab = open_tab()
    tab.go("held")
    tab.wait("#grid-body", "nightly-export")
    tab.page.keyboard.press("f")
    tab.wait("#live", "^Frozen at")
    before = tab.text("main")
    tab.page.wait_for_timeout(3000)
    assert tab.text("main") == before
    tab.page.keyboard.press("f")
    tab.live()
    tab.page.wait_for_timeout(1500)
    assert tab.text("main") != before


def test_nothing_moves_under_the_pointer(open_tab):
    tab = open_tab()
    tab.go("held")
    tab.wait("#grid-body", "nightly-export")
    tab.page.locator(".grid-row").nth(3).hover()
    names = lambda: tab.run("[...document.querySelectorAll('.grid-row .c-name')].map((element) => element.textContent)")  # noqa: E731
    before = names()
    for _ in range(7):
        tab.page.wait_for_timeout(1000)
        assert names() == before


def test_a_server_that_hangs_is_reported(open_tab, scene):
    tab = open_tab()
    tab.go("name/lock/nightly-export")
    tab.page.locator("#act-release:not([disabled])").wait_for()
    os.kill(scene.pid, signal.SIGSTOP)
    try:
        tab.wait("#live", "^Server gone$", 6)
        tab.wait("#outage-says", "^Redis or Valkey has not answered$", 2)
        tab.wait("#outage-for", r"^for \d+ s.$", 2)
        assert tab.page.locator("#act-release").is_disabled()
        assert tab.page.locator("#act-hold").is_disabled()
        says = tab.text("#name-says")
        tab.page.wait_for_timeout(3000)
        assert tab.text("#name-says") == says
        tab.go("held")
        tab.page.fill("#filter", "gpu")
        tab.wait("#matches", "^1 of ")
        assert tab.run(CONTRASTS) == []
    finally:
        os.kill(scene.pid, signal.SIGCONT)
    tab.wait("#live", "^Live$", 5)
    assert not tab.page.locator("#outage").is_visible()


def test_a_page_server_that_ends_and_comes_back(chromium, scene):
    from tests.deep.page.conftest import Page, Tab

    site = Page(scene.url)
    tab = Tab(chromium, site.url)
    tab.live()
    assert site.end() == 0
    tab.wait("#live", "^No page server$", 6)
    tab.wait("#outage-why", "Leases and queues do not depend on it", 2)
    site.start()
    tab.wait("#live", "^Live$", 5)
    assert site.end() == 0
    tab.page.close()
    assert all("ERR_CONNECTION_REFUSED" in text for text in tab.said)


def reason(tab, text="INC-4411"):
    """Give a reason in the dialog, after it was asked for."""
    tab.page.locator("#ask-yes").click()
    tab.wait("#ask-error", "A reason is needed")
    tab.page.fill("#ask-reason", text)
    assert text in tab.text("#ask-shell code")
    tab.page.locator("#ask-yes").click()


def test_a_release_takes_the_lease_and_is_written_down(open_tab, scene):
    client = scene.client("slow-1:1")
    lease = client.lock("stuck").acquire()
    tab = open_tab()
    tab.go("name/lock/stuck")
    tab.page.locator("#act-release:not([disabled])").wait_for()
    tab.page.keyboard.press("r")
    tab.wait("#ask-text", "slow-1:1 loses its lease after")
    assert str(lease.fence) in tab.text("#ask-text")
    assert tab.text("#ask-shell code") == f"handfast release stuck --kind lock --if-fence {lease.fence} --reason '…'"
    reason(tab)
    tab.wait("#toast", "^stuck is released: 1 lease taken$")
    eventually(lambda: lease.lost)
    tab.wait("#name-says", "^Not held")
    tab.wait("#name-past", "INC-4411")
    tab.go("operators")
    tab.wait("#audit-rows", "INC-4411")


def test_a_release_of_a_lease_that_is_gone_says_so(open_tab, scene):
    client = scene.client("slow-1:1")
    lease = client.lock("quick").acquire()
    tab = open_tab()
    tab.go("name/lock/quick")
    tab.page.locator("#act-release:not([disabled])").wait_for()
    tab.page.keyboard.press("r")
    lease.release()
    with client.lock("quick") as later:
        tab.page.fill("#ask-reason", "INC-1")
        tab.page.locator("#ask-yes").click()
        tab.wait("#ask-error", "^Nothing was taken: who was shown has released it.$")
        assert not later.lost
        tab.page.locator("#ask-no").click()
    tab.said.clear()  # the browser notes each answer that is an error


def test_hold_and_unhold(open_tab, scene):
    lock = scene.client("x:1").lock("batch")
    with lock:
        tab = open_tab()
        tab.go("name/lock/batch")
        tab.page.locator("#act-hold:not([disabled])").wait_for()
        tab.page.keyboard.press("h")
        tab.page.select_option("#ask-seconds", "900")
        assert tab.text("#ask-shell code") == "handfast hold batch --for 15m --reason '…'"
        reason(tab)
        tab.wait("#name-hold", "INC-4411")
        assert lock.status().hold.remaining <= 900
        tab.page.keyboard.press("h")
        tab.wait("#ask-title", "^End the hold of batch")
        reason(tab)
        tab.wait("#toast", " is on hold no more$")
        assert lock.status().hold is None


def test_pause_resume_and_forget(open_tab, scene):
    tab = open_tab()
    tab.go("limits/geocode")
    card = tab.page.locator(".limit", has_text="geocode")
    card.locator("button", has_text="Pause").click()
    reason(tab)
    card.locator(".tag", has_text="paused for").wait_for()
    card.locator("button", has_text="Resume").click()
    reason(tab)
    card.locator("button", has_text="Pause").wait_for()
    tab.go("results/invoice")
    row = tab.page.locator("#once-rows tr", has_text="no address for customer 88")
    row.locator("button", has_text="Forget").click()
    assert tab.text("#ask-shell code") == "handfast forget 'invoice|10347' --reason '…'"
    reason(tab)
    row.wait_for(state="detached")


def test_a_page_that_only_looks_says_so(open_tab, chromium, scene):
    with served(scene.url) as site:
        tab = open_tab(site.url)
        tab.go("name/lock/nightly-export")
        tab.wait("#name-says", "^Held by batch-2:311")
        assert tab.page.locator("#act-release").is_disabled()
        tab.wait("#act-note", "This page only looks")
        assert tab.text("#act-shell code").startswith("handfast release nightly-export --kind lock --if-fence ")
        tab.page.keyboard.press("r")
        assert not tab.page.locator("#ask").is_visible()
        tab.page.close()
        del tab.page
        tab.page = chromium.new_page()


def test_an_empty_server(open_tab):
    with ServerController() as server, served(server.url) as site:
        tab = open_tab(site.url)
        tab.wait("#verdict", "^Nothing is stuck; 1 thing to know about$")
        empty = {
            "": "The first three lines",
            "held": "No name is held or waited for",
            "limits": "No limiter has admitted anything lately.",
            "results": "No results are kept.",
            "operators": "No operator has done anything that is remembered.",
            "name/lock/a": "The server does not know this name",
        }
        for view, text in empty.items():
            tab.go(view)
            tab.page.get_by_text(text).first.wait_for()
            assert tab.run(CONTRASTS) == []
        with Handfast(server.url) as client, client.lock("first"):
            tab.go("held")
            tab.wait("#grid-body", "first", 15)
        tab.page.goto("about:blank")


def test_a_token_is_asked_for(chromium, scene):
    with served(scene.url, "--token", "correct horse battery") as site:
        context = chromium.new_context(http_credentials={"username": "ann", "password": "correct horse battery"})
        page = context.new_page()
        page.goto(site.url)
        page.locator("#live", has_text="Live").wait_for()
        assert page.evaluate("async () => (await (await fetch('api/me')).json()).label") == "ann@page"
        context.close()
        stranger = chromium.new_context(http_credentials={"username": "ann", "password": "a wrong password"})
        assert stranger.new_page().goto(site.url).status == 401
        stranger.close()


@pytest.mark.parametrize(
    "view", ["constructor", "__proto__", "name", "name/lock", "name/lock/%", "limits/%zz", "results/nothing", "//"]
)
def test_an_address_that_leads_nowhere_shows_something(open_tab, view):
    tab = open_tab()
    tab.go(view)
    tab.live()
    assert tab.page.locator("section:not([hidden])").count() == 1
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.wait_for_timeout(2500)
    assert asked


def test_a_wildcard_in_a_name_is_the_name(open_tab, scene):
    tab = open_tab()
    names = ["report:*", "order[1]", "a?", "plain", "-f"]
    script = (
        "async (name) => (await import('./acts.js')).command('hold', { kind: 'lock', name, seconds: 60, reason: 'x' })"
    )
    with contextlib.ExitStack() as stack:
        for name in [*names, "report:1", "order1", "ab"]:
            stack.enter_context(scene.client("w:1").lock(f"w/{name}"))
        for name in names:
            text = tab.run(script, f"w/{name}")
            done = subprocess.run(
                ["bash", "-c", f"{sys.executable} -m {text} --url {scene.url}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.count("is on hold until") == 1, text
            assert f"w/{name}" in done.stdout.replace("\\", "")


def test_a_hidden_tab_asks_nothing(open_tab):
    tab = open_tab()
    tab.live()
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    tab.page.wait_for_timeout(1500)
    asked.clear()
    tab.page.wait_for_timeout(2500)
    assert not asked
    tab.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    tab.page.wait_for_timeout(500)
    assert asked
