"""The style of the documentation site, in a browser, on a page with its kinds of text."""

import json
import re
from pathlib import Path

import pytest

from tests.browser import FAINT, browse, needs_browser
from tests.processes import REPOSITORY

material = pytest.importorskip("material")

TEXTS = """<header class="md-header"><nav class="md-header__inner md-grid">
<div class="md-header__title">header</div></nav></header>
<nav class="md-nav"><label class="md-nav__title">menu</label>
<a class="md-nav__link md-nav__link--active">place</a></nav>
<article class="md-typeset"><h1>title</h1><p>text <a href="#x">link</a> <code>code</code>
<a href="#x"><code>code link</code></a></p><p id="picture"><img alt="wide" src="PICTURE"></p>
<div class="highlight"><pre><code><span class="mi">300</span> <span class="nb">zip</span>
<span class="bp">self</span> <span class="s">"s"</span> <span class="k">for</span>
<span class="c1"># comment</span> <span class="o">=</span><span
class="p">(</span></code></pre></div>
<div class="language-text highlight"><pre><code id="output">1  WORDS
2  WORDS</code></pre></div>
<table><tr><td><code id="name">unbreakable</code><td>WORDS<td>WORDS<td>WORDS</table></article>"""
PAGE = f"""<!DOCTYPE html><link rel="stylesheet" href="MAIN">
<link rel="stylesheet" href="PALETTE"><link rel="stylesheet" href="SITE">
<body data-md-color-scheme="SCHEME" data-md-color-primary="teal">{TEXTS}</body>"""
PROBE = f"""<!DOCTYPE html><body>
<iframe id="default" src="default.html" width="390" height="800"></iframe>
<iframe id="slate" src="slate.html" width="1400" height="800"></iframe>
<pre id="seen"></pre>
<script>{FAINT}
addEventListener("load", () => setTimeout(() => {{
  const seen = {{}};
  for (const frame of document.querySelectorAll("iframe")) {{
    const page = frame.contentDocument;
    const code = page.querySelector("pre code");
    seen[frame.id] = {{
      faint: faint(page),
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      picture: page.querySelector("img").getBoundingClientRect().width,
      fading: ["picture", "output"].map((id) => page.getElementById(id)).map((part) =>
        part.scrollWidth > part.clientWidth
        && page.defaultView.getComputedStyle(part).getPropertyValue("--more") === "48px"),
      lines: page.getElementById("name").getClientRects().length,
      beside_button: parseFloat(page.defaultView.getComputedStyle(code).paddingRight),
    }};
  }}
  document.getElementById("seen").textContent = JSON.stringify(seen);
}}, 500));
</script></body>"""


@needs_browser
def test_pages_can_be_read_in_both_schemes_and_on_a_phone(tmp_path: Path) -> None:
    styles = Path(material.__file__).parent / "templates/assets/stylesheets"
    replaced = {
        "MAIN": next(styles.glob("main.*.css")).as_uri(),
        "PALETTE": next(styles.glob("palette.*.css")).as_uri(),
        "SITE": (REPOSITORY / "docs/assets/site.css").as_uri(),
        "PICTURE": (REPOSITORY / "docs/concepts.svg").as_uri(),
        "WORDS": "some words of a cell " * 4,
    }
    for scheme in ("default", "slate"):
        page = PAGE.replace("SCHEME", scheme)
        for name, text in replaced.items():
            page = page.replace(name, text)
        (tmp_path / f"{scheme}.html").write_text(page)
    (tmp_path / "probe.html").write_text(PROBE)
    result = browse(tmp_path, "probe.html", "--dump-dom", "--window-size=1900,1000")
    shown = re.search(r'<pre id="seen">(.+?)</pre>', result.stdout)
    assert shown is not None, result.stdout[-2000:]
    phone, dark = (seen := json.loads(shown[1]))["default"], seen["slate"]
    assert phone["faint"] == dark["faint"] == []
    assert phone["overflow"] == dark["overflow"] == 0
    assert phone["picture"] > 600
    assert phone["lines"] == 1
    assert phone["fading"] == [True, True]
    assert dark["fading"][0] is False
    assert phone["beside_button"] > 30
