"""Time to open a page in headless Chromium: CPU time of its main thread, and wall time until two frames were drawn.

`python -m benchmarks.page_open page.html [times]`, with a page of `python -m benchmarks.page`.

A busy machine changes only the wall time: its minimum counts, together with the load during the run.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.report.browser import Browser

PARTS = {
    "ScriptDuration": "script",
    "LayoutDuration": "layout",
    "RecalcStyleDuration": "style",
    "TaskDuration": "all of the main thread",
}
READY = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


def opened(program: str, page: Path) -> dict[str, float]:
    """Return seconds by part, in a separate browser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(program, Path(profile)) as browser:
        browser.call("Performance.enable", timeDomain="threadTicks")
        browser.open(page, width=1920, height=1080)
        wall = float(browser.ask(READY)) / 1000
        found = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
        shown = browser.ask("document.querySelectorAll('#grid .square, #hosts .host, #list .some').length")
    assert shown, "no host is shown"
    return {**{name: found[part] for part, name in PARTS.items()}, "wall": wall}


def main(words: list[str]) -> int:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.stderr.write("needs chromium, which is not installed\n")
        return 1
    page, times = Path(words[0]).absolute(), int(words[1]) if len(words) > 1 else 5
    runs = [opened(program, page) for _ in range(times)]
    told = ", ".join(f"{name} {median(run[name] for run in runs):.2f} s" for name in runs[0])
    least = min(run["wall"] for run in runs)
    sys.stdout.write(
        f"median of {times}: {told}; least wall {least:.2f} s, load {os.getloadavg()[0]:.1f}; "
        f"{page.stat().st_size / 1e6:.1f} MB\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
