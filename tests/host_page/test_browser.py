"""The page of one host in a real browser: light and dark, phone and wide, keys, and hostile texts that stay texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.core.sanitize import cleaned
from gpuprov.host_page.page import render
from gpuprov.report.page import About
from tests.capabilities import health_host
from tests.host_page.example import host
from tests.report.browser import Browser
from tests.report.test_browser import CHROMIUM, EVIL
from tests.report.test_pages_browser import ABOUT, SCREENS, harmless, opened, readable

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(str(CHROMIUM), tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_the_page_of_a_host_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    page = opened(browser, tmp_path, render(host(), ABOUT), width, dark=dark)
    readable(page)
    for words in ("S12345X", "GPU Reset Required", "as applied", "6.1.0-47-amd64", "gpuprov explain 154"):
        assert words in page.shows("main"), words
    page.wait("[...document.images].every((e) => e.complete && e.naturalWidth > 0)")
    assert page.ask("document.images.length") == 2, "topology and MIG"


def test_keys_reach_what_scrolls_and_the_search_finds(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(host(), ABOUT), 390)
    wide = (
        "[...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > e.clientWidth + 1"
        " && getComputedStyle(e).overflowX === 'auto')"
    )
    assert page.ask(f"{wide}.length") > 0
    assert page.ask(f"{wide}.every((e) => e.tabIndex === 0)"), "what scrolls sideways can be scrolled by keys"
    assert page.ask("[...document.images].every((e) => e.alt)")
    page.key("/")
    page.type("timeout after")
    page.key("Enter")
    assert page.shows("#hits").startswith("2 found")
    page.key("Escape")
    page.key("Escape")
    assert page.ask("document.querySelectorAll('[data-item][hidden]').length") == 0
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(".cause dd.copied .copy")
    page.wait("window.copied")
    assert page.said == []


def test_every_state_is_a_word_too(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, render(host(), ABOUT))
    tags = page.ask(
        "[...document.querySelectorAll('main .tag')].map((e) => [e.textContent, e.parentElement.textContent])"
    )
    assert tags
    assert all(letter and len(text) > len(letter) for letter, text in tags)


def test_hostile_texts_in_the_page_of_a_host(browser: Browser, tmp_path: Path) -> None:
    evil = EVIL.replace("\n", " ")
    page_of = host(
        groups=(evil,),
        identity=f"name|{evil}\nvendor|{evil}\nproduct|{evil}\nserial|{evil}\nboot_id|{evil}\nbooted|1\n",
        os_release=f'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="{evil.replace(chr(34), "")}"\n',
        kernel_log=health_host.log(health_host.xid(79, f"pid=1, name={evil}"), f"NVRM: GPU at PCI:0000:19:00: {evil}"),
        checkpoints="checkpoint {}\n",
        gpu_health=health_host.real("h200-vm-580-alone").replace("96.00.A5", evil),
    )
    page = opened(browser, tmp_path, render(page_of, About(at=evil, inventory=evil, command=evil)))
    harmless(page, scripts=1)
    assert cleaned(evil)[:10] in page.ask("document.documentElement.textContent")
