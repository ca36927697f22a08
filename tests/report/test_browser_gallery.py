"""The page of one run in a real browser: pictures, links and the keyboard, on a screen, a phone and paper."""

import base64
import json
import re

import pytest
from browser import INSTALLED, browser
from runs import answered_runs

from covshift.report.build import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not INSTALLED, reason="chromium and chromium-driver are not installed; make test-browser does"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = answered_runs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return report(runs[:1], folder / "out", files=False)


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_pictures_are_drawn_and_nothing_is_loaded(page, window, width, dark):
    window.log("browser")
    window.log("performance")
    window.open(page, width, dark=dark)
    assert window.log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in window.log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [address for address in asked if not address.startswith(("data:", page.as_uri()))] == []
    window.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    shots = window.run(
        "return [...document.querySelectorAll('.shot img')].map(each =>"
        " [each.complete && each.naturalWidth > 0, each.getBoundingClientRect().width, each.alt])"
    )
    assert len(shots) > 10
    assert all(drawn and wide >= 160 and re.search(r"answered .* adapted", alt) for drawn, wide, alt in shots)
    assert window.run("return [...document.images].every(each => each.complete && each.naturalWidth && each.alt)")
    assert window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_the_first_screen_has_the_verdict_the_figure_and_three_images(page, window):
    window.open(page, 1280)
    tops = window.run(
        "return [document.querySelector('.summary'), document.querySelector('.advice'),"
        " document.querySelector('.lead .chart svg'), ...document.querySelectorAll('.lead .shot img')]"
        ".map(each => each.getBoundingClientRect().top)"
    )
    assert len(tops) == 6
    assert max(tops) < 900


def test_beside_a_low_figure_there_is_no_empty_area(page, window):
    """Two corruptions make a low figure: the images stand below it, side by side."""
    window.open(page, 1280)
    boxes = window.run(
        "return [document.querySelector('.lead > figure'), ...document.querySelectorAll('.lead .shot img')]"
        ".map(each => { const box = each.getBoundingClientRect(); return [box.top, box.bottom]; })"
    )
    assert len({top for top, _ in boxes[1:]}) == 1
    assert 0 < boxes[1][0] - boxes[0][1] < 60


def test_a_bar_leads_to_its_gallery(page, window):
    window.open(page, 1280)
    assert not window.run("return document.getElementById('gallery-one-fog').open")
    place = window.run(
        "const bar = [...document.querySelectorAll('.chart svg [aria-roledescription=bar]')]"
        "  .find(each => /fog/.test(each.getAttribute('aria-label')));"
        "bar.scrollIntoView({block: 'center'});"
        "const box = bar.getBoundingClientRect();"
        "return {x: box.left + box.width / 2, y: box.top + box.height / 2}"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        window.cdp("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
    assert window.wait("return location.hash") == "#gallery-one-fog"
    assert window.wait("return document.getElementById('gallery-one-fog').open")


def press(window, key: str, code: int, **more: str) -> None:
    for kind in ("keyDown", "keyUp"):
        window.cdp("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


def tab_until(window, script: str, wanted: str) -> list[str]:
    """Press the tabulator until the script says so of the focused element, and return what it said on the way."""
    seen: list[str] = []
    while len(seen) < 80 and wanted not in seen:
        press(window, "Tab", 9)
        seen.append(window.run(f"const focused = document.activeElement; return {script}"))
    assert seen[-1] == wanted
    return seen


def test_the_keyboard_reaches_links_and_galleries(page, window):
    window.open(page, 1280)
    seen = tab_until(window, "focused.closest('.gallery')?.id || focused.tagName", "gallery-one-fog")
    assert seen[0] == "A"
    press(window, "Enter", 13, text="\r")
    assert window.wait("return document.getElementById('gallery-one-fog').open")


def test_the_keyboard_goes_from_the_figure_to_the_gallery_of_a_corruption(page, window):
    window.open(page, 1280)
    assert not window.run("return document.getElementById('gallery-one-fog').open")
    tab_until(window, "focused.closest('.links') ? 'links' : ''", "links")
    press(window, "Enter", 13, text="\r")
    tab_until(window, "focused.getAttribute('href') || ''", "#gallery-one-fog")
    press(window, "Enter", 13, text="\r")
    assert window.wait("return location.hash") == "#gallery-one-fog"
    assert window.wait("return document.getElementById('gallery-one-fog').open")
    images = "#gallery-one-fog > details[open] img"
    assert window.wait(f"return [...document.querySelectorAll('{images}')].some(each => each.checkVisibility())")


def test_print_shows_pictures_and_no_links(page, window):
    window.open(page, 1280)
    window.cdp("Emulation.setEmulatedMedia", media="print")
    visible = "return [...document.querySelectorAll(arguments[0])].filter(each => each.checkVisibility()).length"
    assert window.run(visible, ".lead .shot img") == 3
    assert window.run(visible, ".gallery[open] .shot img") > 3
    assert [window.run(visible, name) for name in ("nav", ".links", ".save", ".gallery:not([open])")] == [0, 0, 0, 0]
    window.cdp("Emulation.setEmulatedMedia", media="")


def test_one_run_takes_at_most_twelve_sheets_of_paper(page, window):
    window.open(page, 1280)
    paper = base64.b64decode(window.cdp("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
    assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", paper)) <= 12
