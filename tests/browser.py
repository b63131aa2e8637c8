"""A browser without a window, and what tests ask of pages in it."""

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed")

FAINT = """
// Texts of a page whose contrast with the colour behind them is below 4.5, large ones below 3.
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const known = new Map();
const rgba = (colour) => {
  if (!known.has(colour)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    known.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]);
  }
  return known.get(colour);
};
const over = (top, below) => below.map((c, k) => c + (top[k] - c) * top[3] / 255);
const luminance = (colour) => colour.slice(0, 3).map((c) => c / 255)
  .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
const behind = (element) => {
  if (!element) return [255, 255, 255, 255];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 255 ? own : over(own, behind(element.parentElement));
};
const faint = (page) => {
  const found = new Set();
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.getClientRects().length || element.closest("script, style")) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = over(rgba(element.closest("svg") ? style.fill : style.color), ground);
    const [low, high] = [luminance(ink), luminance(ground)].sort((a, b) => a - b);
    const enough = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if ((high + 0.05) / (low + 0.05) < enough) found.add(text);
  }
  return [...found];
};
"""


def browse(folder: Path, page: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Opens a page of the folder."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-background-networking", "--allow-file-access-from-files"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=3000"]
    command += [f"--user-data-dir={folder / 'profile'}", *flags, (folder / page).as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
