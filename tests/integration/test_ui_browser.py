"""The page in a real Chromium: `make test-ui`."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from boards import NASTY, NOW, board

pytestmark = pytest.mark.browser
if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from waitress.server import create_server

    from connector.ui.page import page

    server: Any = create_server(page(board(), now=lambda: NOW), host="127.0.0.1", port=0)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def theme(chrome: Chrome, name: str) -> None:
    chrome.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )


CONTRAST = """
const light = rgb => { const c = rgb.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] };
const behind = e => { const c = getComputedStyle(e).backgroundColor;
  return c !== 'rgba(0, 0, 0, 0)' || !e.parentElement ? c : behind(e.parentElement) };
return [...document.querySelectorAll('main *, header *')]
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length
    && !e.closest('svg'))
  .map(e => { const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)] })
  .filter(([ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("path", ["/", "/p/1", "/p/2", "/p/3"])
def test_both_themes_are_readable_and_fit_wide_and_narrow(chrome: Chrome, url: str, path: str) -> None:
    backgrounds = set()
    for name in ("light", "dark"):
        theme(chrome, name)
        for width in (1280, 400):
            chrome.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
            )
            chrome.get(url + path)
            assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
            assert chrome.execute_script(CONTRAST) == []
        backgrounds.add(chrome.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    assert chrome.get_log("browser") == []


def test_names_with_html_do_nothing(chrome: Chrome, url: str) -> None:
    for path in ("/", "/p/1", "/p/2", "/p/3"):
        chrome.get(url + path)
        assert "Lakelock" in chrome.title
        assert chrome.title != "owned"
        assert NASTY in chrome.execute_script("return document.body.textContent")
        assert chrome.execute_script("return document.scripts.length") == 1


def test_the_keyboard_reaches_everything_and_a_refresh_takes_nothing_away(chrome: Chrome, url: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    chrome.get(f"{url}/p/1")
    reached = []
    for _ in range(30):
        ActionChains(chrome).send_keys(Keys.TAB).perform()
        at = chrome.switch_to.active_element
        reached.append(at.text if at.tag_name in ("a", "summary") else at.aria_role)
    assert reached[:3] == ["Skip to the content", "Lakelock", "All pipelines"]
    assert {"region", "version 9", "version 1"} <= set(reached)
    first = chrome.find_element("css selector", "details")
    first.find_element("css selector", "summary").send_keys(Keys.ENTER)
    assert first.get_attribute("open")
    focused = chrome.switch_to.active_element
    chrome.execute_async_script("const done = arguments[0]; refresh().then(done, done)")
    assert chrome.switch_to.active_element == focused
    assert chrome.find_element("css selector", "details").get_attribute("open")
    assert chrome.get_log("browser") == []
