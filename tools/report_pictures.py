"""Pictures of a report for the documentation.

python -m tools.report_pictures REPORT.html docs/images

It needs chromium and playwright.
"""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from typing import Any

_SIZE = {"width": 1600, "height": 900}
_PATIENCE = 90_000
_QUALITY = 82
# Names of pictures with the theme, the key of the part, and the layer that is searched for.
_PICTURES = (
    ("report-network-light", "light", "1", ""),
    ("report-layer-dark", "dark", "1", "layer2.1.conv2"),
    ("report-time-dark", "dark", "3", ""),
    ("report-roofline-light", "light", "4", ""),
)


def main() -> None:
    """Take all pictures of the report named first into the folder named second."""
    from playwright.sync_api import sync_playwright

    report, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as found:
        browser: Any = found.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, scheme, key, layer in _PICTURES:
            page = browser.new_page(color_scheme=scheme, viewport=_SIZE, reduced_motion="reduce")
            page.goto(report.as_uri())
            page.wait_for_selector("html[data-state=ready]", state="attached", timeout=_PATIENCE)
            _show(page, key, layer)
            session = page.context.new_cdp_session(page)
            picture = session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
            (folder / f"{name}.webp").write_bytes(base64.b64decode(picture["data"]))
        browser.close()


def _show(page: Any, key: str, layer: str) -> None:
    page.keyboard.press(key)
    if layer:
        page.keyboard.press("/")
        page.keyboard.type(layer)
        page.keyboard.press("Enter")
        page.fill("#search", "")
        page.keyboard.press("Escape")
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
