"""The page: written at the end of what makes results, never at their cost, and sound in a browser."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from support.facts import names
from support.records import make_record

from probe.commands.report import report
from probe.config import UserError
from probe.report.page import PAGE, finish, page_line, write_report
from probe.runs.identity import RecordedCondition
from probe.system.locks import FileLock
from probe.tables.figures import Picture, draw_scores
from probe.tables.rows import build_rows

RESULTS = Path(__file__).parents[2] / "results"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """
const frame = document.querySelector("iframe"), inside = frame.contentDocument, root = inside.documentElement;
inside.querySelectorAll("details").forEach(one => one.open = true);
const wide = [...inside.querySelectorAll("body *")].filter(one => one.scrollWidth > one.clientWidth + 1
  && getComputedStyle(one).overflowX !== "visible" && one.tagName !== "THEAD");
const links = [...inside.querySelectorAll("a")].map(one => one.getAttribute("href"));
document.body.textContent = "MEASURED" + JSON.stringify({
  page: root.scrollWidth, frame: frame.clientWidth, wide: wide.map(one => one.outerHTML.slice(0, 80)),
  images: [...inside.images].map(one => one.naturalWidth),
  dead: links.filter(one => !inside.getElementById(one.slice(1))),
  links: links.length, ink: getComputedStyle(inside.body).color, paper: getComputedStyle(inside.body).backgroundColor,
}) + "END";
"""


class Ids(HTMLParser):
    """Collects the ids of a page, and where its links and pictures lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.leads.append(value or "")


def many(folder: Path) -> Path:
    """26 rows with long names, and baselines."""
    for k in range(26):
        for seed in (1, 2):
            make_record(folder, f"concat_of_many_layers_{k}", seed, 0.7 + k / 500 + seed / 1000, 0.6, (k % 7, k // 7))
    for name, base in (("random", {"features": "features-sentence-a"}), ("control", {"corpus": "corpus"})):
        other = {"weights": "r"} if name == "random" else {"corpus": "control"}
        for seed in (1, 2):
            condition = RecordedCondition([name], base=base)
            make_record(folder, "last", seed, 0.4, 0.3, condition=condition, **other)  # type: ignore[arg-type]
    return folder


def test_the_sentence_comes_first_then_the_picture_then_the_table(tmp_path: Path):
    shutil.copytree(RESULTS / "conll2003-mpnet", tmp_path / "set")
    files = write_report(tmp_path / "set")
    text = (tmp_path / "set" / PAGE).read_text()
    found = Ids(text)
    order = [text.index(part) for part in ('class="lead"', "<img", "<table", 'id="settings"')]
    assert order == sorted(order)
    assert files[0] == tmp_path / "set" / PAGE
    title = text.partition("<title>")[2].partition("</title>")[0]
    assert [part in title for part in ("conll2003", "all-mpnet-base-v2", "set")] == [True] * 3
    assert {file.suffix for file in files[1:]} == {".png"}
    assert "script" not in found.tags
    assert all(lead.startswith("data:") or lead.removeprefix("#") in found.ids for lead in found.leads)
    assert len(set(found.ids)) == len(found.ids)


def test_what_a_page_shows_to_be_typed_is_quoted(tmp_path: Path):
    make_record(tmp_path / "my runs", "x;touch y", 1, 0.7, 0.6)
    write_report(tmp_path / "my runs")
    text = html.unescape((tmp_path / "my runs" / PAGE).read_text())
    (typed,) = re.findall("<code>(probe verify.*)</code>", text)
    assert shlex.split(typed) == ["probe", "verify", str(tmp_path / "my runs"), "--rerun", "x;touch y", "--seed", "1"]


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_written_in_the_form_asked_for(tmp_path: Path, form: str, start: bytes):
    shutil.copytree(RESULTS / "demo-minilm", tmp_path / "demo", ignore=shutil.ignore_patterns("figures"))
    assert report([str(tmp_path / "demo"), "--format", form]) == 0
    (figure,) = (tmp_path / "demo/figures").iterdir()
    assert figure.name == f"scores.{form}"
    assert figure.read_bytes().startswith(start)
    assert "data:image/png" in (tmp_path / "demo" / PAGE).read_text()


def test_table_and_figure_have_one_order_and_the_same_row_in_bold(tmp_path: Path):
    shutil.copytree(RESULTS / "conll2003-mpnet", tmp_path / "set")
    rows = build_rows(tmp_path / "set")
    figure = Figure()
    draw_scores(figure, rows)
    drawn = [(label.get_text(), label.get_fontweight()) for label in figure.axes[0].get_yticklabels()]
    write_report(tmp_path / "set")
    text = (tmp_path / "set" / PAGE).read_text()
    table = text.partition("<tbody>")[2].partition("</tbody>")[0]
    named = re.findall(r'<tr(.*?)><td data-label="row" class="left">(.*?)</td>', table)
    assert [name for _, name in named] == [label.partition(",")[0] for label, _ in drawn]
    assert [name for mark, name in named if "use" in mark] == ["layer_5"]
    assert [label for label, weight in drawn if weight == "bold"] == ["layer_5"]
    assert [name for mark, name in named if "ruled" in mark] == ["last", "majority_tag"], "above other kinds of rows"
    lead = text.partition('class="lead">')[2].partition("</p>")[0]
    verdict, _, reasons = lead.partition("</strong>")
    assert "layer_5" in verdict
    assert "0.72" in reasons
    assert len(verdict) < 80 < len(reasons)


def test_pictures_of_the_users_own_stay_and_no_link_is_followed(tmp_path: Path):
    shutil.copytree(RESULTS / "demo-minilm", tmp_path / "demo", ignore=shutil.ignore_patterns("figures"))
    own, linked = tmp_path / "demo/figures", tmp_path / "pictures"
    own.mkdir()
    (own / "holiday.png").write_bytes(b"mine")
    write_report(tmp_path / "demo")
    assert (own / "holiday.png").read_bytes() == b"mine"
    own.rename(linked)
    (linked / "scores.png").write_bytes(b"of a paper")
    own.symlink_to(linked)
    with pytest.raises(UserError) as error:
        write_report(tmp_path / "demo")
    names(error.value, own)
    assert (linked / "scores.png").read_bytes() == b"of a paper"


def test_a_picture_that_cannot_be_drawn_costs_the_page_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed, inputs: list[str]
):
    def broken(*_: object) -> bytes:
        raise RuntimeError("no canvas")

    with monkeypatch.context() as patch:
        patch.setattr(Picture, "render", broken)
        done = typed("-m", "layers=last", "seed=1,2", "jobs=1", *inputs, "results_dir=out")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out/records").iterdir())) == 2
    assert (tmp_path / "out/table.md").exists()
    last = done.stdout.splitlines()[-1]
    assert "no canvas" in last
    assert "probe report out" in last
    assert not (tmp_path / "out" / PAGE).exists()
    assert page_line(tmp_path / "out") == f"Page: {tmp_path / 'out' / PAGE}"


@pytest.mark.usefixtures("short_epochs")
def test_a_sweep_names_its_page_last(tmp_path: Path, typed, inputs: list[str]):
    done = typed("-m", "layers=last", "seed=1", "jobs=1", *inputs, "results_dir=out")
    assert done.stdout.splitlines()[-1].endswith("out/report.html")
    assert (tmp_path / "out" / PAGE).exists()


def measured(page: str, folder: Path, width: int, dark: bool) -> dict:
    """What Chromium makes of a page in a frame of this width, with everything unfolded."""
    frame = f'<iframe style="width:{width}px;height:3000px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    (folder / "frame.html").write_text(f"<!doctype html><body>{frame}<script>onload = () => {{{MEASURE}}}</script>")
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1200,1000", "--dump-dom", (folder / "frame.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search("MEASURED(.*)END", done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found[1]))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
@pytest.mark.parametrize("name", ["many", "mpnet", "minilm-tasks", "two-encoders"])
def test_a_browser_shows_all_of_a_page_on_a_desk_and_on_a_phone(name: str, tmp_path: Path):
    folder = tmp_path / name
    if name == "many":
        many(folder)
    else:
        source = RESULTS / f"conll2003-{name}"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("predictions", "figures", "*.html"))
    write_report(folder)
    page = (folder / PAGE).read_text()
    colours = {}
    for width, dark in ((1000, False), (400, False), (1000, True)):
        profile = tmp_path / f"{width}-{dark}"
        profile.mkdir()
        found = measured(page, profile, width, dark)
        assert found["page"] <= found["frame"] == width, "nothing is wider than the window"
        assert found["wide"] == [], "nothing scrolls sideways"
        assert found["images"], "there are pictures"
        assert all(found["images"]), "every picture can be decoded"
        assert found["links"]
        assert found["dead"] == []
        colours[dark] = found["ink"], found["paper"]
    assert colours[True] != colours[False]
    rows = build_rows(folder)
    assert len(found["images"]) == len(list((folder / "figures").glob("*.png")))
    assert all(row.name in page for row in rows)


def test_the_tables_have_the_runs_of_a_sweep_that_ends_at_the_same_time(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    (tmp_path / "logs").mkdir()
    ends = threading.Thread(target=finish, args=([tmp_path], []))
    with FileLock(tmp_path / "logs" / "end.lock", exclusive=True):
        ends.start()
        time.sleep(1)
        assert not (tmp_path / "table.json").exists(), "it waits"
        make_record(tmp_path, "x", 1, 0.8, 0.7, (2,))
    ends.join(60)
    assert {row["row"] for row in json.loads((tmp_path / "table.json").read_text())} == {"last", "x"}
    names((tmp_path / PAGE).read_text(), "last", "x")
    assert not list((tmp_path / "logs").iterdir())
