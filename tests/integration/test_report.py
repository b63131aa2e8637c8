"""`mdgan report` from the command line to the pixels of a browser."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mdgan.cli import main
from tests.browser import FAINT, browse, needs_browser
from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.federated import federated_run

PROBE = """<!DOCTYPE html><body>
<iframe id="wide" src="report.html" width="1400" height="900"></iframe>
<iframe id="narrow" src="report.html" width="390" height="800"></iframe>
<pre id="seen"></pre>
<script>FAINT
const look = (id) => {
  const page = document.getElementById(id).contentDocument;
  const root = page.documentElement;
  const sizes = {};
  for (const figure of page.querySelectorAll("figure")) {
    const drawings = [...figure.querySelectorAll(".plot svg, .film img")];
    const drawing = drawings.find((one) => one.getBoundingClientRect().width > 0) || null;
    const box = (drawing || figure).getBoundingClientRect();
    sizes[figure.id] = [box.width, box.height, drawing !== null];
  }
  const shown = (text) => text.getBoundingClientRect().width > 0;
  const texts = [...page.querySelectorAll(".plot svg text")].filter(shown);
  const height = (text) => {
    const onto = text.getScreenCTM();
    const style = page.defaultView.getComputedStyle(text);
    return parseFloat(style.fontSize) * Math.hypot(onto.a, onto.b);
  };
  const smallest_text = Math.min(...texts.map(height));
  const is_cut = (text) => {
    const [around, box] = [text.ownerSVGElement, text].map((one) => one.getBoundingClientRect());
    return box.left < around.left - 1 || box.right > around.right + 1
      || box.top < around.top - 1 || box.bottom > around.bottom + 1;
  };
  const is_broken = (cell) => {
    const range = page.createRange();
    range.selectNodeContents(cell);
    return /^\\w{1,12}$/.test(cell.textContent) && range.getClientRects().length > 1;
  };
  const more = (part) => parseFloat(page.defaultView.getComputedStyle(part)
    .getPropertyValue("--more"));
  const wide = [...page.querySelectorAll(".plot")].filter((plot) => plot.clientWidth);
  const button = page.getElementById("theme");
  const before = getComputedStyle(page.body).backgroundColor;
  const faint_texts = faint(page);
  button.click();
  faint_texts.push(...faint(page));
  const after = getComputedStyle(page.body).backgroundColor;
  const switched = [...page.querySelectorAll("#fig-scores .switch button")];
  switched[1].click();
  const views = [...page.querySelectorAll("#fig-scores .view")].map((view) => view.hidden);
  page.querySelector(".film button").click();
  const viewer = page.getElementById("viewer");
  const opened = viewer.open && viewer.querySelector("img").complete;
  viewer.close();
  return {
    overflow: root.scrollWidth - root.clientWidth,
    sizes, before, after, opened, views,
    smallest_text, faint_texts,
    cut_texts: texts.filter(is_cut).map((text) => text.textContent),
    broken_values: [...page.querySelectorAll("#settings td")].filter(is_broken)
      .map((cell) => cell.textContent),
    fading: wide.map((plot) => [plot.scrollWidth > plot.clientWidth, more(plot) > 0]),
    out_of_reach: [...page.querySelectorAll(".plot.broad")].some((plot) => plot.tabIndex < 0),
    titles: [...page.querySelectorAll("figure h3")].map((title) => title.textContent),
    pictures: [...page.images].every((image) => image.complete && image.naturalWidth > 0),
  };
};
addEventListener("load", () => setTimeout(() => {
  document.getElementById("seen").textContent =
    JSON.stringify({wide: look("wide"), narrow: look("narrow")});
}, 500));
</script></body>""".replace("FAINT", FAINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of runs of all kinds, and a page that looks at it in two widths."""
    folder = tmp_path_factory.mktemp("report")
    runs = [
        FakeRun(workers=4, iterations=40, slow=frozenset({31}), lost={3: 30}, swap_interval=5),
        FakeRun(workers=0, iterations=40, state="failed"),
        FakeRun(workers=2, iterations=40),
    ]
    paths = [str(fake.write(folder / f"run{n}")) for n, fake in enumerate(runs)]
    paths.append(str(federated_run(folder / "federated")))
    with pytest.raises(SystemExit) as ended:
        main(["report", *paths, "-o", str(folder / "report.html")])
    assert ended.value.code == 0
    (folder / "probe.html").write_text(PROBE)
    return folder


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    streams = capsys.readouterr()
    return ended.value.code, streams.out, streams.err


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun(workers=2, iterations=8, score_interval=0).write(tmp_path / "run")
    figures, cut = tmp_path / "figures", run / "trace" / "server.jsonl"
    with cut.open("a") as trace:
        trace.write('{"iteration": 9, "sta')
    status, out, err = run_command(capsys, str(run), "--figures", str(figures))
    assert status == 0
    damage = f"mdgan: {cut}: ends in the middle of a line, which is left out\n"
    assert err == f"writing the report of {run} …\n{damage}"
    first, second = out.splitlines()
    assert re.fullmatch(rf"{re.escape(str(run / 'report.html'))}: \d+ figures", first)
    assert second == f"{figures}: charts as PDF, numbers as CSV"
    for value, folder in (("all", run / "figures"), (f"all:{tmp_path / 'all'}", tmp_path / "all")):
        _, out, _ = run_command(capsys, str(run), "--figures", value)
        assert out.splitlines()[1].startswith(f"{folder}: charts as PNG, SVG and PDF, all views")
        assert (folder / "losses.svg").exists()


def test_what_is_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_command(capsys, str(tmp_path))
    assert (status, out) == (2, "")
    assert err.endswith(f"\nmdgan: {tmp_path}: not a run; give the --out folder of `mdgan train`\n")
    assert run_command(capsys)[0] == 2


@needs_browser
def test_a_browser_shows_every_figure_at_every_width(folder: Path) -> None:
    result = browse(folder, "probe.html", "--dump-dom", "--window-size=1900,1000")
    assert "CONSOLE" not in result.stderr, result.stderr
    shown = re.search(r'<pre id="seen">(.+?)</pre>', result.stdout)
    assert shown is not None, result.stdout[-2000:]
    for width, record in json.loads(shown[1]).items():
        assert record["overflow"] == 0, width
        assert len(record["sizes"]) > 10
        for name, (across, down, drawn) in record["sizes"].items():
            assert drawn, (width, name)
            assert across > 100, (width, name)
            assert down > 40, (width, name)
        assert record["smallest_text"] >= 10, width
        assert record["faint_texts"] == [], width
        assert not record["out_of_reach"], width
        assert record["cut_texts"] == record["broken_values"] == [], width
        assert all(goes_on == fades for goes_on, fades in record["fading"]), width
        assert "Samples: over time" in record["titles"]
        assert record["before"] != record["after"]
        assert record["opened"]
        assert record["views"][:3] == [True, False, True]
        assert record["pictures"]


@needs_browser
@pytest.mark.parametrize(
    ("scheme", "flag"), [("dark", "0"), pytest.param("light", "1", marks=pytest.mark.slow)]
)
def test_the_page_follows_the_colour_scheme(folder: Path, scheme: str, flag: str) -> None:
    picture = folder / f"{scheme}.png"
    settings = f"--blink-settings=preferredColorScheme={flag}"
    browse(folder, "report.html", settings, f"--screenshot={picture}", "--window-size=1200,3000")
    with Image.open(picture) as image:
        assert image.size == (1200, 3000)
        grey = image.convert("L").resize((40, 100))
    histogram = grey.histogram()
    dark = sum(histogram[:80]) / sum(histogram)
    assert dark > 0.7 if scheme == "dark" else dark < 0.4


AGAIN = """<!DOCTYPE html><body><iframe id="page" src="PAGE" width="1000" height="600"></iframe>
<pre id="seen"></pre>
<script>
const frame = document.getElementById("page");
let loads = 0;
frame.addEventListener("load", () => {
  const page = frame.contentDocument;
  const parts = page.querySelectorAll("details");
  const numbers = parts[parts.length - 2];
  if (++loads === 1) {
    numbers.open = true;
    frame.contentWindow.scrollTo(0, 700);
    return;
  }
  const open = [...parts].filter((part) => part.open).length;
  setTimeout(() => {
    document.getElementById("seen").textContent =
      JSON.stringify([loads, frame.contentWindow.scrollY, numbers.open, open]);
  });
});
</script></body>"""


@needs_browser
def test_a_page_that_reads_itself_again_comes_back_as_it_was_left(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    again = '<meta charset="utf-8"><meta http-equiv="refresh" content="1">'
    live = page.replace('<meta charset="utf-8">', again, 1)
    (folder / "live.html").write_text(live, encoding="utf-8")
    (folder / "again.html").write_text(AGAIN.replace("PAGE", "live.html"))
    result = browse(folder, "again.html", "--dump-dom")
    shown = re.search(r'<pre id="seen">(.+?)</pre>', result.stdout)
    assert shown is not None, result.stdout[-2000:]
    loads, top, is_open, num_open = json.loads(shown[1])
    assert loads > 1
    assert (top, is_open) == (700, True)
    assert num_open < 3
