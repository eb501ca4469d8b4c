"""What the four READMEs say holds: commands run, tables, lists and links are those of the repository.

Commands run in the order they stand in, in one folder, with a small random encoder of twelve blocks, a small corpus and
a probe of one epoch and one seed; what lies under results/ in the repository is there.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow
import pyarrow.parquet
import pytest
from support.commands import here, python
from support.inputs import make_bert, make_split, overrides, write_columns
from support.records import committed_sets
from test_committed_keys import commands as commands_of_sets

import probe
from probe.cli import COMMANDS
from probe.config import PRESET_GROUPS
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder
from probe.format import percent
from probe.probes import schedule
from probe.settings import SETTING, configs_of
from probe.system import speed
from probe.system.grouping import group_by

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "results/README.md", "conf/README.md", "probe/README.md")
INSTALLS = ("python3 -m venv", "pip install")  # the first is what the build runs


def commands() -> list[str]:
    """Each command of the READMEs' bash blocks, without its comment."""
    text = "\n".join((ROOT / readme).read_text() for readme in READMES)
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.S)
    lines = re.sub(r" *\\\n *", " ", "\n".join(blocks)).splitlines()
    return [re.split(r"\s#\s", line)[0].strip() for line in lines if line.strip()]


# Large grids, and corpora that are not here: test_committed_keys.py plans each run of them. Of those of equal terms,
# the smallest of each is run here.
LARGE = ("mpnet", "-terms", "-encoders", "corpora-")
PLANNED = [one for one in commands_of_sets() if any(name in one for name in LARGE) and "layers=mean" not in one]


LINEAR = ("+sweep=tasks", "+sweep=detection", "+sweep=deploy")


def block(readme: str, mark: str, language: str = "") -> str:
    """The code block under a mark."""
    found = re.search(rf"<!-- {mark} -->\n```{language}\n(.*?)```", (ROOT / readme).read_text(), flags=re.S)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, corpora in the forms that the README speaks of, and results."""
    home = tmp_path_factory.mktemp("readme")
    encoder = home / "encoder"
    encoder.mkdir()
    make_bert(encoder, num_layers=12, limit=64)

    splits = {"train": make_split(100, 1), "dev": make_split(20, 2), "test": make_split(20, 3)}
    data = write_columns(home / "data", Corpus("tiny", splits))
    for name, original in (("train", "eng.train"), ("dev", "eng.testa"), ("test", "eng.testb")):
        text = (data / f"{name}.conll").read_text()
        (data / f"{name}.txt").write_text(text)
        four_columns = re.sub(r"^(\S+) (\S+)$", r"\1 POS-\2 \2 \2", text, flags=re.M)
        (data / original).write_text(four_columns)
        sentences = list(zip(splits[name].words, splits[name].tags, strict=True))
        labelled = [f"{'name' if set(tags) > {'O'} else 'none'}\t{' '.join(words)}\n" for words, tags in sentences]
        (data / f"{name}.tsv").write_text("".join(labelled))
        (data / f"en_ewt-ud-{name}.conllu").write_text("\n".join(arcs(words) for words, _ in sentences))
        rows = [{"tokens": words, "ner_tags": tags} for words, tags in sentences]
        for folder in (data, home / "json"):
            folder.mkdir(exist_ok=True)
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    exported = [{"text": " ".join(words), "label": [[0, len(words[0]), "PER"]]} for words, _ in sentences]
    (home / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in exported))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data / "test.parquet")
    indexed = home / "indexed"
    indexed.mkdir()
    for name in splits:
        text = re.sub(r"^-DOCSTART.*$", "# doc", (data / f"{name}.conll").read_text(), flags=re.M)
        (indexed / f"{name}.txt").write_text(re.sub(r"^([^#\s]\S*) (\S+)$", r"1 \1 \2 O", text, flags=re.M))

    for folder in committed_sets():
        shutil.copytree(folder, home / "results" / folder.name, ignore=shutil.ignore_patterns("logs"))
    shutil.copytree(ROOT / "results/demo-quickstart", home / "results/quickstart")
    return home


def arcs(words: list[str]) -> str:
    """A sentence of CoNLL-U in which each word hangs on the one before it."""
    tags = ["XY"[len(word) % 2] for word in words]
    rows = [
        (i + 1, word, "_", tag, "_", "_", i, "first" if i < 2 else "next", "_", "_")
        for i, (word, tag) in enumerate(zip(words, tags, strict=True))
    ]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def run(command: str, home: Path, features: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as it stands, but small, with places for DIR, DATA and the like, and our encoder and corpus.

    features: where those of the demo and the packaged encoder are kept.
    """
    words = shlex.split(command)[1:]
    kind = words[0] if words[0] in COMMANDS else "train"
    data = home / ("indexed" if "word_column" in command else "data")
    places = {
        "DIR": data,
        "DATA": home / "json",
        "PART": data,
        "A": "results/demo-minilm",
        "B": "results/quickstart",
    }
    words = [re.sub(r"^(.*[=,])?(DIR|DATA|PART|A|B)$", lambda m: f"{m[1] or ''}{places[m[2]]}", word) for word in words]
    if kind not in ("sweep-status", "table", "report", "verify", "tag"):  # these read results
        encoder, *corpus = overrides(home / "encoder", data)
        words = [word for word in words if not word.startswith(("encoder.path=", f"encoder={data}"))] + [encoder]
        words = [new for word in words for new in (corpus if word == "data=demo" else [word])]
    if kind == "train":
        is_one_run = not {"-m", "+sweep"} & {word.partition("=")[0] for word in words}
        # One folder for all of these would have ever larger tables to decide and to draw.
        out = "results/small" if is_one_run else tempfile.mkdtemp(dir=home / "results")
        words += ["probe.max_epochs=1", "probe.batch_size=16", "jobs=1"]
        is_kept = bool({"save_probe=true", "+sweep=deploy"} & set(words))
        words += [f"results_dir={out}"] * (not is_kept)  # not among the real records
        if not {"probe=linear", "probe=finetune", *LINEAR} & set(words):  # these have no hidden units
            words += ["probe.hidden_size=4", *["probe.num_layers=1"] * ("probe=mlp" not in words)]
        if not any(word.startswith(("data.path=", "data=/", "data=demo_", "data=demo,")) for word in words):
            words.append(f"data.path={data}")
        if "+sweep=conll2003_m" in command and not any("precision" in word for word in words):
            words.append("probe.precision=float32")  # bfloat16, which it has, takes several times as long on most CPUs
        words += ["seed=1", *narrowed(words)]
    if kind == "screen":
        words = [word for word in words if "results_dir" not in word]
        words += ["results_dir=results/small-screen", "screen.max_layers=2"]
        if not any(word.startswith(("data.path=", "data=/", "data=demo_", "data=demo,")) for word in words):
            words.append(f"data.path={data}")
    if "--rerun" in words:  # of a run that an earlier command made small; committed ones: tests/verify/test_reruns.py
        words[words.index("results/demo-minilm")] = "results/small"
    with pytest.MonkeyPatch.context() as patch:
        if kind == "train" or "--rerun" in words:
            patch.setattr(schedule, "EPOCH_UPDATES", 10)  # a run of a tenth of a second
        if kind == "doctor":  # measurements of a tenth of a second, not of two
            patch.setattr(speed, "MEASURE_S", 0.1)
        return here(*words, cwd=home, cache=features if kind == "verify" else home / "cache")


def narrowed(words: list[str]) -> list[str]:
    """Two rows of a sweep from a file whose rows are not typed. test_config.py composes every such file whole."""
    sweep = next((word.removeprefix("+sweep=") for word in words if word.startswith("+sweep=")), None)
    if sweep in ("each_layer", "tasks"):
        return ["layers.indices=[0],[12]", "encoder.num_layers=12"]
    if sweep == "deploy":
        return ["layers=layer_4"]
    is_whole = sweep in (None, "quickstart") or any(word.startswith("layers=") for word in words)
    return [] if is_whole else ["layers=embeddings,last"]


@pytest.mark.slow
def test_the_commands_of_the_readmes_work(home: Path, shared: Path, subtests: pytest.Subtests):
    for command in commands():
        if not command.startswith("probe ") or command in PLANNED:
            continue
        with subtests.test(command):
            done = run(command, home, shared / "features")
            assert done.returncode == 0, f"{done.args}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.real
def test_the_cosines_shown_are_what_the_command_above_them_prints(minilm: Encoder, typed: Callable):
    command = next(command for command in commands() if "--word bank" in command)
    words = shlex.split(command)[1:]
    done = typed(*words)
    numbers = re.compile(r"[+-]?\d\.\d{3}")
    shown = block("conf/README.md", "bank").splitlines()
    printed = done.stdout[done.stdout.index(shown[0]) :].splitlines()
    for line, there in zip(shown, printed, strict=False):
        assert numbers.sub("", line).split() == numbers.sub("", there).split()
        found = [float(number) for number in numbers.findall(there)]
        assert [float(number) for number in numbers.findall(line)] == pytest.approx(found, abs=0.0011)  # roundings


@pytest.mark.slow
@pytest.mark.real
def test_the_five_lines_for_scikit_learn_work(minilm: Encoder, shared: Path):
    code = block("conf/README.md", "scikit-learn", "python")
    done = python(code.replace("max_iter=300", "max_iter=20"), LAYER_PROBE_CACHE=str(shared / "features"))
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout.split()[-1]) < 1


@pytest.mark.slow
@pytest.mark.real
def test_the_notebook_works(minilm: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs its cells where the runs that it asks for are done."""
    shutil.copytree(ROOT / "results/demo-quickstart", tmp_path / "quickstart")
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "results/quickstart.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "[:600]" in code
    done = python(code.replace("[:600]", "[:60]"), PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "quickstart/records").iterdir())) == 18
    assert len([*(tmp_path / "persons/data").glob("*/train.jsonl")]) == 1
    assert (tmp_path / "scores.pdf").is_file()


@pytest.mark.slow
@pytest.mark.real
def test_the_lines_from_lists_work(minilm: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lists = (
        "texts = [f'{name} came {n} times.' for n in range(40) for name in ('Ana', 'Rain')]\n"
        "labels, documents, new_texts = ['yes', 'no'] * 40, [n // 4 for n in range(80)], texts[:3]"
    )
    code = f"{lists}\n{block('README.md', 'from lists', 'python')}print(tuple(vectors.shape))"
    done = python(code, LAYER_PROBE_CACHE=str(tmp_path / "features"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 384)\n", "")
    assert (tmp_path / "results/chosen/table.json").is_file()


@pytest.mark.slow
@pytest.mark.real
def test_the_lines_from_python_work(minilm: Encoder, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(ROOT / "results/demo-minilm", tmp_path / "results/demo-minilm")
    monkeypatch.chdir(tmp_path)
    code = block("conf/README.md", "from Python", "python").replace(
        '"probe=linear"', '"probe=linear", "probe.max_epochs=1"'
    )
    code = code.replace("seed=1,2,3", "seed=1,2").replace(
        "screen(", 'screen("screen.sentences=200", "screen.max_layers=1", '
    )
    done = python(code, LAYER_PROBE_CACHE=str(shared / "features"))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"concat_last_four +\d\.\d+ +best", done.stdout)


def test_records_are_sent_to_a_logger_by_the_lines_shown(monkeypatch: pytest.MonkeyPatch):
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.chdir(ROOT)
    exec(block("conf/README.md", "wandb", "python").replace("results/quickstart", "results/demo-minilm"), {})
    records = [json.loads(file.read_text()) for file in (ROOT / "results/demo-minilm/records").glob("*.json")]
    run = wandb.init.return_value.__enter__.return_value
    assert wandb.init.call_count == len(records)
    assert run.log.call_count == sum(len(record["curve"]) for record in records)
    best = [call.args[0]["best_dev"] for call in run.summary.update.call_args_list]
    assert sorted(best) == sorted(record["scores"]["dev"]["span"]["f1"] for record in records)


def test_what_is_typed_instead_of_other_tools_is_read_as_it_stands():
    text = (ROOT / "conf/README.md").read_text().partition("## Coming from another tool?")[2].partition("\n## ")[0]
    found = re.findall(r"`(probe [^`]*)`", text.replace("\n  ", " "))
    assert len(found) >= 5
    for command in found:
        _, *words = shlex.split(command)
        settings = [word for word in words if SETTING.match(word)]
        assert words[0] in COMMANDS or words == settings, command
        configs_of(settings)


def test_every_command_is_run_by_a_test():
    odd = [c for c in commands() if not c.startswith(("probe ", *INSTALLS))]
    assert odd == []
    assert len(PLANNED) == 28
    assert set(PLANNED) < set(commands())
    assert len(commands()) > 40
    assert len(set(commands())) == len(commands())


Score = tuple[str, str]  # mean and standard deviation in percent as they are shown; "" where there is none
SCORE = re.compile(r"(?<= )(\d+\.\d\d)(?: ± (\d+\.\d\d))?(?= |$)")


def shown_scores(readme: str, mark: str) -> list[tuple[list[str], list[Score]]]:
    """Each row of a table in a README: its first two cells (of several encoders: encoder and row) and its scores."""
    lines = re.split(r"^---.*\n", block(readme, mark), maxsplit=1, flags=re.M)[1].splitlines()
    return [(re.split("  +", line)[:2], SCORE.findall(line)) for line in lines if not line.startswith("-")]


def kept_scores(folder: str) -> list[dict[str, Any]]:
    """The rows of a folder's table.json, with `dev` and `test` as tables show them."""
    rows = json.loads((ROOT / "results" / folder / "table.json").read_text())
    for row in rows:
        for split in ("dev", "test"):
            mean, std = row[f"{split}_mean"], row[f"{split}_std"]
            row[split] = percent(mean), "" if std is None else percent(std)
    return rows


def test_the_quickstarts_scores_are_those_in_results():
    shown, kept = shown_scores("README.md", "quickstart"), kept_scores("demo-quickstart")
    found = [(name, scores[:2]) for (name, _), scores in shown]
    assert found == [(row["row"], [row["dev"], row["test"]]) for row in kept]


def test_the_answer_at_the_top_has_the_numbers_of_its_folder():
    number = re.compile(r"\d+\.\d+|\w+_\w+")
    found = probe.results(ROOT / "results/conll2003-mpnet").recommendation
    shown = number.findall(block("README.md", "conll2003-mpnet sentence"))
    assert shown == number.findall(str(found))
    assert found.use is not None
    assert found.use.name in shown


def test_the_jobs_of_the_first_page_are_those_of_the_results():
    jobs = (ROOT / "results/README.md").read_text().partition("\n## Which job?")[2].partition("\n## ")[0]
    shown = (ROOT / "README.md").read_text().partition("<!-- jobs -->")[2].partition("<!--")[0]
    lasts = re.findall(r"\| (\d+) of \d+ \|.*\| (\d+\.\d \([^|]*\)) \|\n", jobs)
    assert len(lasts) == 6
    for number, (layer, behind) in enumerate(lasts):
        line = shown.strip().splitlines()[2 + number // 2].split(" | ")
        assert line[1 + 2 * (number % 2)].startswith(f"layer {layer}")
        assert line[2 + 2 * (number % 2)].strip(" |") in (behind, "0" if behind.startswith("0.0") else "")


def test_the_list_of_recommendations_is_that_of_the_folders():
    text = (ROOT / "results/README.md").read_text().partition("\n## The folders")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\S+)` \|[^|]*\| `(\S+)` \|([^|]*)\|([^|]*)\|", text, flags=re.M)
    for name, now, at_most, undecided in listed:
        found = probe.results(ROOT / "results" / name).recommendation
        assert found.use is not None
        assert found.use.name == now, name
        assert float(at_most) == pytest.approx(-100 * (found.use.behind or [0.0])[0], abs=0.051), name
        assert re.findall(r"`(\S+)`", undecided) == [row.name for row in found.undecided], name
    assert len(listed) >= 8


def test_the_scores_of_tasks_side_by_side_are_those_in_results():
    text = (ROOT / "results/README.md").read_text()
    kept = group_by(kept_scores("conll2003-minilm-tasks"), lambda row: row["data"])
    for task, data in (("names", "conll2003"), ("chunks", "conll2003-chunks"), ("parts of speech", "conll2003-pos")):
        (line,) = re.findall(rf"^\| {task} \|.*$", text, flags=re.M)
        assert re.findall(r"\d+\.\d\d", line) == [row["dev"][0] for row in kept[data]], data


@pytest.mark.parametrize("readme", READMES)
def test_every_link_and_image_leads_to_a_file_and_a_heading(readme: str):
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / readme).read_text())
    assert links
    for link in links:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / readme).parent / name
        assert target.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.M)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings], link


def listed_files() -> list[str]:
    """The files of the package in the order of probe/README.md, each with its folder."""
    files: list[str] = []
    folder = ""
    for line in block("probe/README.md", "files").splitlines():
        if found := re.match(r"(\w+/)\s", line):
            folder = found[1]
        elif found := re.match(r"( *)([\w/]+\.py)\s", line):
            files.append(folder + found[2] if found[1] else found[2])
    return files


def test_the_readmes_file_list_is_what_is_there():
    package = ROOT / "probe"
    there = {str(file.relative_to(package)) for file in package.rglob("*.py")}
    there = {name for name in there if not name.endswith(("__init__.py", "__main__.py"))}
    assert set(listed_files()) == there
    assert len(listed_files()) == len(there)


def test_every_preset_is_listed_and_every_listed_one_is_there():
    text = (ROOT / "conf/README.md").read_text()
    groups = dict(re.findall(r"^\| `([\w/]+)` \| (.*) \|$", text, flags=re.M))
    for group in (*PRESET_GROUPS, "condition", "sweep"):
        there = {file.stem for file in (ROOT / "conf" / group).glob("*.yaml")}
        listed = set(re.findall(r"^\| `(\w+)` \|", text[text.index("## Which layers?") :], flags=re.M))
        if group != "layers":
            listed = set(re.findall(r"`(\w+)`", groups[group]))
        assert listed == there, group
