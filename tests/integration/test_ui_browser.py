"""The page of pipelines and the lab's page in a real Chromium: `make test-ui`."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boards import NASTY, NOW, PAGES, board, picture
from unit.connector.lab.samples import every

pytestmark = pytest.mark.browser
if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from connector.ui.board import Board


@contextmanager
def served(of: Board) -> Iterator[str]:
    from waitress.server import create_server

    from connector.ui.page import page

    server: Any = create_server(page(of, now=lambda: NOW), host="127.0.0.1", port=0)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(board()) as url:
        yield url


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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the lab's page, with runs of every delivery, all unfolded."""
    from connector.lab.check.checker import judge, must_show
    from connector.lab.show.page import page

    cells = [
        (cell, judge(cell, expects=must_show(cell.delivery, cell.sink, cell.crash_point))) for cell in every()[::4]
    ]
    file = tmp_path_factory.mktemp("lab") / "matrix.html"
    file.write_text(page(cells, "The crash lab", {"runs": str(len(cells))}).replace("<details>", "<details open>"))
    return file.as_uri()


def window(chrome: Chrome, width: int, height: int = 900, *, mobile: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


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
    && !e.closest('svg') && getComputedStyle(e).clipPath === 'none')
  .map(e => { const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)] })
  .filter(([ratio]) => ratio < 4.5);
"""

OUTSIDE = """
return [...document.querySelectorAll('.chart')].flatMap(chart => { const box = chart.getBoundingClientRect();
  return [...chart.querySelectorAll('text,rect,circle,polyline')].filter(e => { const b = e.getBoundingClientRect();
    return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1 })
    .map(e => e.outerHTML) });
"""


CUT_OFF = """
return [...document.querySelectorAll('.cards')].filter(table => table.scrollWidth > table.parentElement.clientWidth)
  .map(table => table.outerHTML.slice(0, 200))
"""


@pytest.mark.parametrize("path", ["/", PAGES[0], PAGES[1], PAGES[2], "lab"])
def test_both_themes_are_readable_and_fit_wide_and_narrow(chrome: Chrome, url: str, lab: str, path: str) -> None:
    backgrounds = set()
    for name in ("light", "dark"):
        theme(chrome, name)
        for width in (1280, 400):
            window(chrome, width)
            chrome.get(lab if path == "lab" else url + path)
            assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
            assert chrome.execute_script(CONTRAST) == []
        backgrounds.add(chrome.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    assert chrome.get_log("browser") == []


def test_a_chart_keeps_its_words_inside_and_a_phone_can_read_them(chrome: Chrome, url: str, lab: str) -> None:
    for width, columns in ((1280, {2, 3}), (400, {1})):
        window(chrome, width, mobile=True)
        for page in (f"{url}{PAGES[0]}", f"{url}{PAGES[1]}", lab):
            chrome.get(page)
            assert chrome.execute_script(OUTSIDE) == []
            sizes = chrome.execute_script(
                "return [...document.querySelectorAll('.chart')].map(e => [e.getBoundingClientRect().left, "
                "11 * e.getBoundingClientRect().width / 360])"
            )
            assert sizes
            assert all(size >= 9.5 for _, size in sizes), "letters of 11 pixels, drawn as large as the chart is"
            assert len({left for left, _ in sizes}) <= max(columns)


@pytest.mark.parametrize("path", ["/", PAGES[0], PAGES[1], "lab"])
def test_a_phone_shows_every_cell_with_its_heading_and_nothing_beside_the_screen(
    chrome: Chrome, url: str, lab: str, path: str
) -> None:
    window(chrome, 360, mobile=True)
    chrome.get(lab if path == "lab" else url + path)
    assert chrome.execute_script(CUT_OFF) == []
    assert chrome.execute_script("return document.querySelectorAll('.cards').length") > 0
    label = "return getComputedStyle(document.querySelector('.cards [data-label]'), '::before').content"
    assert chrome.execute_script(label) not in ("none", "normal")


def test_the_file_unfolds_and_stays_open(chrome: Chrome, url: str) -> None:
    chrome.get(f"{url}{PAGES[0]}")
    file = chrome.find_element("css selector", "details#file")
    assert not file.find_element("css selector", "pre").is_displayed()
    file.find_element("css selector", "summary").click()
    assert "name: flights" in file.find_element("css selector", "pre").text
    chrome.execute_script("document.activeElement.blur(); document.querySelector('#file pre').append('changed')")
    chrome.execute_async_script("const done = arguments[0]; refresh().then(done, done)")
    file = chrome.find_element("css selector", "details#file")
    assert file.get_attribute("open")
    assert "changed" not in file.text


def test_the_pictures_of_the_docs(chrome: Chrome, tmp_path: Path) -> None:
    """With LAKELOCK_WRITE_PICTURES=1 they are written anew."""
    folder = Path(__file__).parents[2] / "docs" if os.environ.get("LAKELOCK_WRITE_PICTURES") else tmp_path
    with served(picture()) as url:
        for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "dark", 390)):
            theme(chrome, scheme)
            height = 900
            for _ in range(2):  # the second time as high as the page is, but of a phone the first screens
                window(chrome, width, height, mobile=width < 500)
                chrome.get(f"{url}{PAGES[0]}")
                height = min(chrome.execute_script("return document.documentElement.scrollHeight"), width * 3)
            assert chrome.save_screenshot(str(folder / f"ui-{name}.png"))
    assert chrome.get_log("browser") == []
    docs = Path(__file__).parents[2] / "docs"
    assert all((docs / f"ui-{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("light", "dark", "phone"))


def test_names_with_html_do_nothing(chrome: Chrome, url: str) -> None:
    for path in ("/", PAGES[0], PAGES[1], PAGES[2]):
        chrome.get(url + path)
        assert "Lakelock" in chrome.title
        assert chrome.title != "owned"
        assert NASTY in chrome.execute_script("return document.body.textContent")
        assert chrome.execute_script("return document.scripts.length") == 1


def test_the_keyboard_reaches_everything_and_a_refresh_takes_nothing_away(chrome: Chrome, url: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    chrome.get(f"{url}{PAGES[0]}")
    reached = []
    for _ in range(40):
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
