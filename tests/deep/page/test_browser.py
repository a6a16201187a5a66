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
    for (let one = element; one; one = one.parentElement) layers.push(read(getComputedStyle(one).backgroundColor));
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
def test_each_view_fits_and_is_silent(tab, width, theme):
    one = tab(size=(width, 800), theme=theme)
    one.live()
    for view in VIEWS:
        one.go(view)
        one.page.wait_for_timeout(250)
        assert one.run("document.documentElement.scrollWidth") <= width, view
        assert one.page.locator("section:not([hidden])").count() == 1


def test_a_phone_shows_why_a_run_failed_and_what_an_operator_did(tab):
    one = tab(size=(360, 740))
    for view, text in (("results", "no address for customer 88"), ("operators", "hung after the deploy")):
        one.go(view)
        cell = one.page.locator("td", has_text=text)
        cell.wait_for()
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_text_has_contrast(tab, theme):
    one = tab(size=(1440, 1000), theme=theme)
    one.live()
    for view in [*VIEWS, "name/lock/deploy", "name/lock/catalog"]:
        one.go(view)
        one.page.wait_for_timeout(1300)
        assert one.run(CONTRASTS) == [], view
    one.go("name/lock/nightly-export")
    one.page.locator("#act-release:not([disabled])").click()
    assert one.run(CONTRASTS) == []


def test_thousands_of_rows_are_few_elements(tab):
    one = tab()
    one.go("held")
    one.live()
    one.wait("#matches", r"^2,0\d\d names$")
    rows = one.page.locator(".grid-row")
    seen = set()
    for where in ("document.body.scrollHeight", "0"):
        one.run(f"scrollTo(0, {where})")
        one.page.wait_for_timeout(300)
        assert 10 < rows.count() < 60
        seen.add(rows.last.get_attribute("aria-rowindex"))
        assert rows.first.is_visible()
    assert len(seen) == 2
    assert int(one.page.locator("#grid").get_attribute("aria-rowcount")) > 2000


def test_keys_filter_mark_open_and_go_back(tab):
    one = tab()
    one.live()
    one.page.keyboard.press("/")
    one.page.wait_for_timeout(100)
    one.page.keyboard.type("evil")
    one.wait("#matches", "^1 of ")
    one.page.keyboard.press("Enter")
    one.page.keyboard.press("Enter")
    one.wait("#name-title", "evil")
    one.page.keyboard.press("Escape")
    assert one.run("location.hash") == "#/held"
    assert one.page.input_value("#filter") == "evil"
    one.page.keyboard.press("Escape")
    assert one.page.input_value("#filter") == ""
    one.page.keyboard.press("1")
    one.wait("#verdict", "need")
    one.page.keyboard.press("j")
    one.page.keyboard.press("j")
    assert one.page.locator(".problem.marked").count() == 1
    one.page.keyboard.press("Enter")
    one.page.wait_for_function("location.hash !== '#/'")
    one.page.keyboard.press("?")
    assert one.page.locator("#keys").is_visible()
    one.page.keyboard.press("2")
    assert one.page.locator("#keys").is_visible()
    one.page.keyboard.press("Escape")
    assert not one.page.locator("#keys").is_visible()
    one.page.keyboard.press("t")
    assert one.run("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_reaches_all_and_a_row_is_announced(tab):
    one = tab()
    one.live()
    one.page.keyboard.press("Tab")
    assert one.run("document.activeElement.className") == "skip"
    one.page.keyboard.press("Enter")
    assert one.run("[document.activeElement.id, location.hash]") == ["main", "#/"]
    one.go("held")
    one.page.locator("#grid").focus()
    one.page.keyboard.press("ArrowDown")
    active = one.page.locator("#grid").get_attribute("aria-activedescendant")
    row = one.page.locator(f"#{active}")
    assert row.get_attribute("aria-selected") == "true"
    assert row.get_attribute("role") == "row"
    assert row.locator("[role=gridcell]").count() == 10
    pictures = one.page.locator("svg[role=img]")
    assert all(one.run("(all) => all.map((one) => one.getAttribute('aria-label'))", pictures.element_handles()))
    spoken = one.run("[...document.querySelectorAll('[role=status], [role=alert], [aria-live]')].map((one) => one.id)")
    assert set(spoken) == {"live", "outage-says", "matches-spoken", "ask-error", "toast"}


def test_names_and_labels_of_others_are_text(tab):
    one = tab()
    one.live()
    for view in VIEWS:
        one.go(view)
        one.page.wait_for_timeout(200)
        assert one.page.locator("main script, main img, bdi b").count() == 0
    for name in (MARKUP, LONG, ESCAPES):
        one.run("(name) => { location.hash = `#/name/lock/${encodeURIComponent(name)}`; }", name)
        one.wait("#name-says", "^Held by")
    assert one.text("#name-title") == r"evil\x1b[31mred\x07 \u{202e}gnp.exe"
    assert one.text("#holders .label").strip() == "<img src=x onerror=alert('label')>"


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
def test_a_name_is_one_word_of_the_shell(tab, name):
    one = tab()
    word = one.run("async (name) => (await import('./words.js')).quoted(name)", name)
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name
    assert "\n" not in word


def test_a_frozen_page_stands_still(tab):
    one = tab()
    one.go("held")
    one.wait("#grid-body", "nightly-export")
    one.page.keyboard.press("f")
    one.wait("#live", "^Frozen at")
    before = one.text("main")
    one.page.wait_for_timeout(3000)
    assert one.text("main") == before
    one.page.keyboard.press("f")
    one.live()
    one.page.wait_for_timeout(1500)
    assert one.text("main") != before


def test_nothing_moves_under_the_pointer(tab):
    one = tab()
    one.go("held")
    one.wait("#grid-body", "nightly-export")
    one.page.locator(".grid-row").nth(3).hover()
    names = lambda: one.run("[...document.querySelectorAll('.grid-row .c-name')].map((one) => one.textContent)")  # noqa: E731
    before = names()
    for _ in range(7):
        one.page.wait_for_timeout(1000)
        assert names() == before


def test_a_server_that_hangs_is_reported(tab, scene):
    one = tab()
    one.go("name/lock/nightly-export")
    one.page.locator("#act-release:not([disabled])").wait_for()
    os.kill(scene.pid, signal.SIGSTOP)
    try:
        one.wait("#live", "^Server gone$", 6)
        one.wait("#outage-says", "^Redis or Valkey does not answer.$", 2)
        one.wait("#outage-for", r"^For \d+ s.$", 2)
        assert one.page.locator("#act-release").is_disabled()
        assert one.page.locator("#act-hold").is_disabled()
        says = one.text("#name-says")
        one.page.wait_for_timeout(3000)
        assert one.text("#name-says") == says
        one.go("held")
        one.page.fill("#filter", "gpu")
        one.wait("#matches", "^1 of ")
        assert one.run(CONTRASTS) == []
    finally:
        os.kill(scene.pid, signal.SIGCONT)
    one.wait("#live", "^Live$", 5)
    assert not one.page.locator("#outage").is_visible()


def test_a_page_server_that_ends_and_comes_back(chromium, scene):
    from tests.deep.page.conftest import Page, Tab

    site = Page(scene.url)
    one = Tab(chromium, site.url)
    one.live()
    assert site.end() == 0
    one.wait("#live", "^No page server$", 6)
    one.wait("#outage-why", "Leases and queues do not depend on it", 2)
    site.start()
    one.wait("#live", "^Live$", 5)
    assert site.end() == 0
    one.page.close()
    assert all("ERR_CONNECTION_REFUSED" in text for text in one.said)


def reason(one, text="INC-4411"):
    """Give a reason in the dialog, after it was asked for."""
    one.page.locator("#ask-yes").click()
    one.wait("#ask-error", "A reason is needed")
    one.page.fill("#ask-reason", text)
    assert text in one.text("#ask-shell code")
    one.page.locator("#ask-yes").click()


def test_a_release_takes_the_lease_and_is_written_down(tab, scene):
    client = scene.client("slow-1:1")
    lease = client.lock("stuck").acquire()
    one = tab()
    one.go("name/lock/stuck")
    one.page.locator("#act-release:not([disabled])").wait_for()
    one.page.keyboard.press("r")
    one.wait("#ask-text", "slow-1:1 loses its lease after")
    assert str(lease.fence) in one.text("#ask-text")
    assert one.text("#ask-shell code") == f"handfast release stuck --kind lock --if-fence {lease.fence} --reason '…'"
    reason(one)
    one.wait("#toast", "^1 lease taken$")
    eventually(lambda: lease.lost)
    one.wait("#name-says", "^Free")
    one.wait("#name-past", "INC-4411")
    one.go("operators")
    one.wait("#audit-rows", "INC-4411")


def test_a_release_of_a_lease_that_is_gone_says_so(tab, scene):
    client = scene.client("slow-1:1")
    lease = client.lock("quick").acquire()
    one = tab()
    one.go("name/lock/quick")
    one.page.locator("#act-release:not([disabled])").wait_for()
    one.page.keyboard.press("r")
    lease.release()
    with client.lock("quick") as later:
        one.page.fill("#ask-reason", "INC-1")
        one.page.locator("#ask-yes").click()
        one.wait("#ask-error", "^Nothing was taken: who was shown has released it.$")
        assert not later.lost
        one.page.locator("#ask-no").click()
    one.said.clear()  # the browser notes each answer that is an error


def test_hold_and_unhold(tab, scene):
    lock = scene.client("x:1").lock("batch")
    with lock:
        one = tab()
        one.go("name/lock/batch")
        one.page.locator("#act-hold:not([disabled])").wait_for()
        one.page.keyboard.press("h")
        one.page.select_option("#ask-seconds", "900")
        assert one.text("#ask-shell code") == "handfast hold batch --for 15m --reason '…'"
        reason(one)
        one.wait("#name-hold", "INC-4411")
        assert lock.status().hold.remaining <= 900
        one.page.keyboard.press("h")
        one.wait("#ask-title", "^End the hold of batch")
        reason(one)
        one.wait("#toast", "^On hold no more$")
        assert lock.status().hold is None


def test_pause_resume_and_forget(tab, scene):
    one = tab()
    one.go("limits/geocode")
    card = one.page.locator(".limit", has_text="geocode")
    card.locator("button", has_text="Pause").click()
    reason(one)
    card.locator(".tag", has_text="paused for").wait_for()
    card.locator("button", has_text="Resume").click()
    reason(one)
    card.locator("button", has_text="Pause").wait_for()
    one.go("results/invoice")
    row = one.page.locator("#once-rows tr", has_text="no address for customer 88")
    row.locator("button", has_text="Forget").click()
    assert one.text("#ask-shell code") == "handfast forget invoice --key 10347 --reason '…'"
    reason(one)
    row.wait_for(state="detached")


def test_a_page_that_only_looks_says_so(tab, chromium, scene):
    with served(scene.url) as site:
        one = tab(site.url)
        one.go("name/lock/nightly-export")
        one.wait("#name-says", "^Held by batch-2:311")
        assert one.page.locator("#act-release").is_disabled()
        one.wait("#act-note", "This page only looks")
        assert one.text("#act-shell code").startswith("handfast release nightly-export --kind lock --if-fence ")
        one.page.keyboard.press("r")
        assert not one.page.locator("#ask").is_visible()
        one.page.close()
        del one.page
        one.page = chromium.new_page()


def test_an_empty_server(tab):
    with ServerController() as server, served(server.url) as site:
        one = tab(site.url)
        one.wait("#verdict", "^Nothing is stuck; 1 thing to know about$")
        empty = {
            "": "None wait.",
            "held": "No name is held or waited for.",
            "limits": "No limiter has admitted anything lately.",
            "results": "No results are kept.",
            "operators": "No operator has done anything that is remembered.",
            "name/lock/a": "The server does not know this name",
        }
        for view, text in empty.items():
            one.go(view)
            one.page.get_by_text(text).first.wait_for()
            assert one.run(CONTRASTS) == []
        with Handfast(server.url) as client, client.lock("first"):
            one.go("held")
            one.wait("#grid-body", "first", 15)
        one.page.goto("about:blank")


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
def test_an_address_that_leads_nowhere_shows_something(tab, view):
    one = tab()
    one.go(view)
    one.live()
    assert one.page.locator("section:not([hidden])").count() == 1
    asked = []
    one.page.on("request", lambda request: asked.append(request.url))
    one.page.wait_for_timeout(2500)
    assert asked


def test_a_wildcard_in_a_name_is_the_name(tab, scene):
    one = tab()
    names = ["report:*", "order[1]", "a?", "plain", "-f"]
    script = (
        "async (name) => (await import('./acts.js')).command('hold', { kind: 'lock', name, seconds: 60, reason: 'x' })"
    )
    with contextlib.ExitStack() as stack:
        for name in [*names, "report:1", "order1", "ab"]:
            stack.enter_context(scene.client("w:1").lock(f"w/{name}"))
        for name in names:
            text = one.run(script, f"w/{name}")
            done = subprocess.run(
                ["bash", "-c", f"{sys.executable} -m {text} --url {scene.url}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.count("is on hold until") == 1, text
            assert f"w/{name}" in done.stdout.replace("\\", "")


def test_a_hidden_tab_asks_nothing(tab):
    one = tab()
    one.live()
    asked = []
    one.page.on("request", lambda request: asked.append(request.url))
    one.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    one.page.wait_for_timeout(1500)
    asked.clear()
    one.page.wait_for_timeout(2500)
    assert not asked
    one.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    one.page.wait_for_timeout(500)
    assert asked
