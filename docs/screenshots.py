"""Take the documentation's pictures of a report: `python docs/screenshots.py report.html [docs/images]`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Name, width, height, colour scheme, and what is shown: the top of the page, or one element.
SHOTS = (
    ("report-desktop", 1280, 1400, "light", None),
    ("report-dark", 1280, 1400, "dark", None),
    ("report-phone", 390, 844, "light", None),
    ("report-phone-matrix", 390, 844, "light", ".card:has(table.heat)"),
    ("report-cell", 1280, 1000, "light", "#detail"),
    ("report-scapegoat", 1280, 1000, "light", "section[aria-labelledby=t-goat]"),
)


def take(report: Path, folder: Path, cell: tuple[str, str] | None) -> list[Path]:
    """Write every picture; `cell` is the (attack, defense) to choose, if not the page's own choice."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser found: one of {', '.join(BROWSERS)} is expected")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        for name, width, height, scheme, selector in SHOTS:
            page = started.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                device_scale_factor=2 if width < 500 else 1.5,
            )
            page.goto(report.resolve().as_uri())
            if cell is not None:
                _choose(page, *cell)
            target = folder / f"{name}.png"
            if selector is None:
                page.screenshot(path=target)
            else:
                page.locator(selector).first.screenshot(path=target)
            _shrink(target)
            written.append(target)
            page.close()
        started.close()
    return written


def _shrink(picture: Path) -> None:
    """The page has few colours: a palette is a third of the size and looks the same."""
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def _choose(page: Page, attack: str, defense: str) -> None:
    page.select_option("#pick-attack", label=attack)
    page.select_option("#pick-defense", label=defense)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "images")
    parser.add_argument("--cell", nargs=2, metavar=("ATTACK", "DEFENSE"), help="the cell to show")
    chosen = parser.parse_args()
    for path in take(chosen.report, chosen.folder, tuple(chosen.cell) if chosen.cell else None):
        print(path)
