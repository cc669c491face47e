"""The page in a real browser, if there is one: drawn, without errors, read by keyboard, on a phone, in the dark, renewed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find_browser
from report_harness import EVIL, make_run

import rlvr.cli.report as command
from rlvr.report.page import render
from rlvr.report.runs import read_runs

PLACE = """(() => {
  const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
  const all = [...document.querySelectorAll("*")];
  return {tag: e.tagName, id: e.id, text: e.textContent.trim().slice(0, 60), place: all.indexOf(e), label: e.ariaLabel,
    seen: box.top >= 0 && box.bottom <= innerHeight && box.width > 0, outline: style.outlineStyle, inside: !!e.closest("main")};
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Two runs with curves of every kind."""
    folder = tmp_path_factory.mktemp("runs")
    several = {f"eval__{name}__accuracy": lambda i: 0.01 * i for name in ("gsm8k", "a-long-name-of-a-data-set")}
    more = {"memory__rss_bytes": lambda i: 2**30, "response__truncated": lambda i: 0.99}
    runs = read_runs([make_run(folder / "a", **several, **more), make_run(folder / "b", 5)])
    path = folder / "page.html"
    path.write_text(render(runs))
    return path


def width(browser: Browser, pixels: int) -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=pixels, height=800, deviceScaleFactor=1, mobile=pixels < 600
    )


def test_every_chart_is_drawn_without_errors_and_nothing_hostile_runs(browser, page) -> None:
    browser.errors.clear()
    width(browser, 1200)
    browser.open(page.as_uri())
    charts = browser.ask("document.querySelectorAll('.plot').length")
    assert charts > 8 and charts == page.read_text().count('class="plot"')
    drawn = (
        "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg .scatterlayer path')).length"
    )
    assert browser.ask(drawn) == charts
    assert browser.ask("document.title") == "a, b - rlvr report"
    assert EVIL[:9] not in browser.ask("document.title") and browser.ask("document.images.length") == 0
    assert browser.errors == []


def test_a_keyboard_reaches_everything_in_order(browser, page) -> None:
    width(browser, 1200)
    browser.open(page.as_uri())
    browser.press("Tab")
    first = browser.ask(PLACE)
    assert first["text"] == "Skip to the report" and first["seen"]
    browser.press("Tab")
    assert browser.ask(PLACE)["text"] == "Summary" and not browser.ask(
        "document.querySelector('.skip').matches(':focus')"
    )
    browser.ask("document.querySelector('.skip').focus()")
    browser.press("Enter")
    browser.wait_for("location.hash === '#main' && document.activeElement.id === 'main'")
    reached = []
    while True:
        browser.press("Tab")
        now = browser.ask(PLACE)
        if not now["inside"]:
            break
        assert now["seen"], now
        assert now["outline"] == "solid", now
        reached.append(now)
    places = [one["place"] for one in reached]
    assert places == sorted(places), "in the order of the page"
    summaries = browser.ask("document.querySelectorAll('main summary').length")
    named = [one["text"] for one in reached if one["tag"] == "SUMMARY"]
    assert len(named) == summaries and len(set(named)) > summaries / 2
    assert "As a table: Held-out accuracy" in named and reached[0]["label"] == "Summary table"
    # A fold opens and closes, and what is in it is then reached.
    browser.ask("document.querySelector('figure summary').focus()")
    browser.press("Enter")
    assert browser.ask("document.querySelector('figure details').open")
    browser.press("Tab")
    assert browser.ask(PLACE)["label"] == "Held-out accuracy as a table"
    browser.ask("document.querySelector('figure summary').focus()")
    browser.press(" ")
    assert not browser.ask("document.querySelector('figure details').open")


LUMINANCE = """(() => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = (e) => { while (/, 0\\)$|transparent/.test(getComputedStyle(e).backgroundColor) && e.parentElement)
    e = e.parentElement; return light(getComputedStyle(e).backgroundColor); };
  const texts = [...document.querySelectorAll("h1, h2, p, th, td, a, summary, pre, .plot text")]
    .filter(e => e.textContent.trim() && e.checkVisibility());
  const ratios = texts.map(e => {
    const a = light(e.matches("text") ? getComputedStyle(e).fill : getComputedStyle(e).color), b = paper(e);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.trim().slice(0, 40)]; });
  return ratios.sort((a, b) => a[0] - b[0])[0];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, page, scheme) -> None:
    """By at least 4.5 to 1 (WCAG 2.2, 1.4.3), also after the scheme changes while the page is open."""
    width(browser, 1200)
    for name in ("light" if scheme == "dark" else "dark", scheme):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
        if name != scheme:
            browser.open(page.as_uri())
    browser.wait_for(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    browser.wait_for(f"{LUMINANCE}[0] >= 4.5")
    browser.call("Emulation.setEmulatedMedia", features=[])


def test_a_phone_scrolls_one_way_only(browser, page) -> None:
    width(browser, 390)
    browser.open(page.as_uri())
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    plots = browser.ask("[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().right)")
    assert plots and max(plots) <= 390


def test_the_served_page_comes_anew_as_it_was_left(browser, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(command, "REFRESH_S", 1)
    width(browser, 1200)
    folder = make_run(tmp_path / "going-on", 4)
    server = command.make_server([str(folder)], 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        browser.open(f"http://127.0.0.1:{server.server_address[1]}/")
        browser.ask("document.querySelector('figure details').open = true")
        browser.ask("document.querySelector('figure summary').focus()")
        before = browser.ask("performance.timeOrigin")
        (folder / "metrics.jsonl").open("a").write('{"step": 5, "objective/scores": 0.123}\n')
        browser.wait_for(f"performance.timeOrigin > {before} && document.body?.textContent.includes('0.123')")
        browser.wait_for("document.querySelector('figure details')?.open")
        assert browser.ask(PLACE)["tag"] == "SUMMARY"
        # Where nobody answers any more, it stays. (A renewal may be on its way: then the next page is told so.)
        nobody = "fetch = () => (window.tried = (window.tried ?? 0) + 1, Promise.reject())"
        browser.wait_for(f"(window.tried ?? ({nobody}, 0)) >= 2 && document.querySelectorAll('.main-svg').length > 0")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
