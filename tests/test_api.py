"""Results, runs, sweeps and screens from Python: as on the command line, without a print."""

from __future__ import annotations

import doctest
import json
import pydoc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import python
from support.facts import names
from support.records import make_record

import probe
from probe.config import UserError
from probe.encoders.encoder import Encoder
from probe.tables.rows import build_rows

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "results" / "demo-minilm"


@pytest.fixture
def quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[], tuple[str, str]]:
    """A folder of its own; what was printed since."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(tmp_path / "cache"))

    def printed() -> tuple[str, str]:
        out, err = capfd.readouterr()
        return out, err

    return printed


def test_the_package_is_imported_without_torch_and_pandas_and_results_are_read_without_torch():
    code = (
        "import sys, probe\n"
        "assert not {'torch', 'pandas', 'numpy', 'hydra', 'omegaconf'} & set(sys.modules)\n"
        f"found = probe.results({str(DEMO)!r})\n"
        "found.recommendation, str(found), found._repr_html_()\n"
        "assert not {'torch', 'pandas'} & set(sys.modules)\n"
        "print(len(found.table), 'torch' in sys.modules)"
    )
    done = python(code)
    assert done.stdout.split() == ["6", "False"], done.stderr


def test_help_of_the_package_has_each_function_with_its_text():
    shown = pydoc.plain(pydoc.render_doc(probe))
    for name in probe.__all__:
        names(shown, f"{name}(", getattr(probe, name).__doc__.partition("\n")[0])


def test_results_hold_the_rows_runs_and_recommendation_of_the_folder():
    found = probe.results(str(DEMO))
    rows = build_rows(DEMO)
    assert found.table["row"].tolist() == [row.name for row in rows]
    assert found.table["dev_mean"].tolist() == [row.dev_mean for row in rows]
    assert len(found.runs) == sum(row.n for row in rows) == found.runs["key"].nunique()
    assert found.runs.groupby("row", sort=False).dev.mean().tolist() == pytest.approx([row.dev_mean for row in rows])
    assert all(Path(file).is_file() for file in found.runs["record"])
    use = found.recommendation.use
    assert use is not None
    names(str(found.recommendation), use.name, use.layers_as_text, f"{use.margin:g}")
    assert len(repr(found.recommendation)) < 2000 > 4 * len(repr(use))
    assert len(repr(use.record)) < 200
    names(repr(use), use.name, use.layers_as_text)
    with pytest.raises(AttributeError, match=r"\.use"):
        getattr(found, "use")  # noqa: B009 - to mypy it has none
    assert {row.margin for row in probe.results(DEMO, margin=2).rows} == {2}
    assert found.problems == []


def test_in_a_notebook_a_table_is_html_with_its_sentence_and_every_row():
    text = probe.results(DEMO)._repr_html_()
    assert text.count("<table>") == 1
    assert text.count("<tr>") == 7
    assert text.index("concat_last_four") < text.index("<table>")
    assert "<script" not in text


def test_what_cannot_be_read_is_a_problem_and_not_printed(tmp_path: Path, quiet: Callable):
    folder = tmp_path / "some"
    for seed in (1, 2):
        make_record(folder, "last", seed, 0.8, 0.7)
    file = next((folder / "records").glob("*seed2*"))
    file.write_text(file.read_text()[:-9])
    found = probe.results(folder)
    (problem,) = found.problems
    names(problem, file)
    assert found.table["n"].tolist() == [1]
    assert quiet() == ("", "")


def test_of_several_tables_each_has_its_recommendation(tmp_path: Path):
    for corpus in ("one", "two"):
        make_record(tmp_path / "some", "last", 1, 0.8, 0.7, corpus=corpus)
    found = probe.results(tmp_path / "some")
    assert len(found.recommendations) == 2
    with pytest.raises(UserError, match="recommendations"):
        _ = found.recommendation


def test_a_run_a_sweep_and_a_screen_are_those_of_the_command(
    inputs: list[str], tmp_path: Path, quiet: Callable, request: pytest.FixtureRequest
):
    inputs = [*inputs, "jobs=1", "results_dir=out"]
    record = probe.run(*inputs, "layers=last", "seed=2")
    request.getfixturevalue("api_here")  # a sweep and a screen start their processes as a run does
    assert (record.row, record.seed) == ("last", 2)
    names(record.software.command, "probe train", "seed=2")
    found = probe.sweep(*inputs, "layers=last,embeddings", "seed=2,3")
    assert found.folder == Path("out")
    assert sorted(zip(found.runs.row, found.runs.seed, strict=True)) == [
        (row, seed) for row in ("embeddings", "last") for seed in (2, 3)
    ]
    assert record.key in set(found.runs["key"]), "the run that was done is not made again"
    assert json.loads((tmp_path / "out" / "table.json").read_text())[0]["row"] == "embeddings"
    ranked = probe.screen(*inputs, "screen.max_layers=1", "screen.sentences=20")
    assert ranked.table["place"].tolist() == list(range(1, len(ranked.record.ranked) + 1))
    assert ranked.table["dev"].is_monotonic_decreasing
    assert "<table>" in ranked._repr_html_()
    assert quiet() == ("", "")


@pytest.mark.usefixtures("api_here")
def test_what_the_command_refuses_is_raised_with_its_message(inputs: list[str], quiet: Callable):
    with pytest.raises(UserError, match=r"probe\.learning_rate"):
        probe.run(*inputs, "probe.lr=1")
    for sweep in (["+sweep=quickstart"], ["layers=last,embeddings"]):
        with pytest.raises(UserError, match=r"probe\.sweep"):
            probe.run(*sweep)
    with pytest.raises(UserError, match=r"/nowhere") as caught:
        probe.run(*inputs, "encoder.path=/nowhere")
    assert not str(caught.value).startswith("probe: ")
    with pytest.raises(UserError, match=r"/nowhere"):
        probe.screen(*inputs, "encoder.path=/nowhere")
    with pytest.raises(UserError, match="results_dir"):
        probe.sweep(*inputs, "results_dir=a,b")
    with pytest.raises(UserError, match=r"nowhere"):
        probe.results("nowhere")
    assert quiet() == ("", "")


@pytest.mark.usefixtures("api_here")
def test_a_failed_run_of_a_sweep_is_a_problem_and_the_rest_is_there(inputs: list[str], quiet: Callable):
    settings = ["layers=last", "jobs=1", "probe.learning_rate=0.01,1e38", "probe.gradient_clip=1e38", "results_dir=out"]
    found = probe.sweep(*inputs, *settings)
    (failed,) = found.problems
    names(failed, "last", "probe.learning_rate")
    assert len(found.runs) == 1
    assert quiet() == ("", "")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.usefixtures("api_here")  # in processes of their own: the lines of the README, by test_readme.py
@pytest.mark.parametrize("name", ["results", "run", "sweep", "screen"])
def test_the_docstrings_can_be_run(name: str, minilm: Encoder, shared: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(shared / "features"))
    shutil.copytree(DEMO, tmp_path / "results" / "demo-minilm")
    documented = getattr(probe, name)
    (example,) = doctest.DocTestFinder().find(documented, name, globs={})
    assert len(example.examples) >= 3
    if name == "sweep":  # one epoch is enough for what it shows
        for line in example.examples:
            line.source = line.source.replace('"probe=linear"', '"probe=linear", "probe.max_epochs=1"')
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.failures == 0
