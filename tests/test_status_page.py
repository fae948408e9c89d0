"""The status page in a real browser: on a wide screen, on a phone, light and dark."""

import itertools
import os
import re
from pathlib import Path

import pytest
from selenium import webdriver

from tests.fake_jobs import ServerWithFakeJobs

# Screenshots are kept here, to be looked at.
PICTURES = Path(__file__).resolve().parent.parent / "build" / "status-page"
SCREENS = {
    "desktop": (1280, 900, "light"),
    "phone": (390, 844, "light"),
    "dark": (1280, 900, "dark"),
    "phone-dark": (390, 844, "dark"),
}
PAGES = {"server": "", "job": "job?name=pretrain-70b"}
# WCAG 2: text and what is behind it.
LEAST_CONTRAST = 4.5

# Every piece of text that is shown: its words, its box, and its colours.
TEXTS = """
const shown = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest('title, style') || !parent.checkVisibility()) continue;
  let behind = parent;
  while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
  const style = getComputedStyle(parent), range = document.createRange();
  range.selectNodeContents(node);
  const boxes = [...range.getClientRects()].filter(box => box.width && box.height);
  for (const box of boxes) shown.push({text: node.data.trim(), left: box.left, right: box.right, top: box.top + scrollY,
    bottom: box.bottom + scrollY, svg: !!parent.closest('svg'), fill: parent.closest('svg') ? style.fill : style.color,
    behind: behind ? getComputedStyle(behind).backgroundColor : 'rgb(255, 255, 255)'});
}
return shown;
"""

# Elements that hide a part of what they hold.
CLIPPED = """
return [...document.querySelectorAll('body *')].filter(element => {
  const style = getComputedStyle(element);
  return element.checkVisibility() && !element.closest('svg') && style.overflow !== 'visible' && style.display !== 'inline' &&
    (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1);
}).map(element => element.outerHTML.slice(0, 120));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, server_program, fake_jobs_program):
    folder = tmp_path_factory.mktemp("status-page")
    with ServerWithFakeJobs(
        server_program, fake_jobs_program, folder, "--grafana_url=https://grafana.example/d/job?var-job={job}"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ.setdefault("SE_AVOID_STATS", "true")
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(120)
    yield driver
    driver.quit()


def show(browser, server, page, screen):
    width, height, scheme = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    path = PAGES.get(page, page)
    browser.get(f"http://{server.http_address}/{path}{'&' if '?' in path else '?'}refresh=0")


def luminance(colour):
    def linear(channel):
        channel /= 255
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(float(number)) for number in re.findall(r"[\d.]+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour, behind):
    dark, light = sorted((luminance(colour), luminance(behind)))
    return (light + 0.05) / (dark + 0.05)


def overlap(one, other):
    """The less of width and height that both boxes cover, in pixels."""
    width = min(one["right"], other["right"]) - max(one["left"], other["left"])
    height = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return min(width, height)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_cut_off_or_overlaps_and_all_can_be_read(browser, server, page, screen):
    show(browser, server, page, screen)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for details in browser.find_elements("tag name", "details")[:1]:
        browser.execute_script("arguments[0].open = true", details)
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    width, _, scheme = SCREENS[screen]
    assert size["width"] <= width
    assert browser.execute_script(CLIPPED) == []
    texts = browser.execute_script(TEXTS)
    assert len(texts) > 50
    for text in texts:
        assert text["left"] >= -1 and text["right"] <= width + 1, text
        assert contrast(text["fill"], text["behind"]) >= LEAST_CONTRAST, text
        assert (luminance(text["behind"]) < 0.2) == (scheme == "dark"), text
    # Lines of one text may touch each other, never cover.
    for one, other in itertools.combinations(texts, 2):
        assert overlap(one, other) <= 2, (one, other)
    metrics = {"width": width, "height": int(size["height"]) + 1, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.save_screenshot(str(PICTURES / f"{page}-{screen}.png"))


def test_numbers_have_units(browser, server):
    show(browser, server, "job", "desktop")
    figures = {
        term.text: term.find_element("xpath", "following-sibling::dd").text for term in browser.find_elements("tag name", "dt")
    }
    unit = r"-?[\d.]+ (B|KiB|MiB|GiB|TiB)"
    time = r"[\d.]+ (us|ms|s)"
    assert re.match(unit, figures["Memory limit"])
    assert re.match(rf"{unit}\nprediction is off by [+-][\d.]+ %", figures["Step peak, measured"])
    assert re.match(rf"rank 7 on gpu-node-0020\S+\n{unit}", figures["Worst rank"])
    assert re.match(unit, figures["Kept for backward"])
    assert re.match(time, figures["Replay, predicted"])
    assert re.match(time, figures["Replay, measured"])
    assert figures["Ranks connected"] == "8 of 8"
    charts = [text.text for text in browser.find_elements("css selector", "figure.wide svg text")]
    assert {"step peak (GiB)", "replay time per step (ms)", "memory (GiB)", "now", "limit"} <= set(charts)


def test_nothing_is_loaded_or_complained_about(browser, server):
    for page in PAGES:
        show(browser, server, page, "desktop")
        assert browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)") in (
            [],
            [f"http://{server.http_address}/favicon.ico"],
        )
        complaints = [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
        assert complaints == []


def test_links_lead_from_the_server_to_a_job_and_back(browser, server):
    show(browser, server, "server", "desktop")
    browser.find_element("link text", "example").click()
    assert browser.find_element("tag name", "h1").text == "Tidetape / example"
    link = browser.find_element("link text", "Grafana dashboard").get_attribute("href")
    assert link == "https://grafana.example/d/job?var-job=example"
    browser.find_element("link text", "Tidetape").click()
    assert browser.find_element("tag name", "h1").text == "Tidetape"


def test_events_come_first(browser, server):
    for page in PAGES:
        show(browser, server, page, "phone")
        assert browser.find_elements("tag name", "h2")[0].text == "Recent events"
