"""The command as a user meets it: real processes, real exit codes, no traceback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import DEADLINE_S, TINY, finish, interpreted, probe, python, start, stop, wait_for, workers_of
from support.facts import names

from probe import __version__
from probe.cli import COMMANDS
from probe.commands.arguments import Parser
from probe.config import conf_dir
from probe.settings import configs_of

DEMO = Path(__file__).parents[2] / "results/demo-minilm"


def finished_runs(folder: Path) -> list[Path]:
    return list((folder / "records").glob("*.json"))


def in_training(folder: Path) -> int:
    """How many runs of a sweep are past their first epoch."""
    told = []
    for path in (folder / "logs").glob("*.running.txt"):
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            told.append(path.read_text())
    return sum("epoch" in text for text in told)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["layers=nope"], ["layers=nope", "concat_last_four"]),
        (["layers=sum_al"], ["sum_all?"]),
        (["+typo=1"], ["'typo'"]),
        (["-m", "hydra/launcher=joblib", "seed=1,2"], ["hydra/launcher=joblib", "jobs=N"]),
        (["lerning_rate=1"], ["probe.learning_rate"]),
        (["probe.lr=1e-3"], ["probe.learning_rate?"]),
        (["layer=last"], ["layers?"]),
        (["encodr=minilm_l6"], ["encoder?"]),
        (["feature=1"], ["features.context"]),
        (["seed=x"], ["seed", "'x'", 0, "seed=A,B"]),
        (
            ["-m", "layers=last,sum_all,single", "layers.indices=[3]"],
            ["layers.indices=[3]", "layers=single"],
        ),
        (["table", "--compare", "a", "b", "--margin", "1"], ["--margin"]),
        (["table", "a", "--difference", "x", "y", "--columns", "cost"], ["--columns"]),
        (["layers=single", "layers.indices=[99]"], [99, 0, 12]),
        (["data.path=/nowhere"], ["data.path=/nowhere"]),
        (["tabel"], ["table?"]),
        (["quickstart", "jobs=1"], ["+sweep=quickstart?"]),
        (["quikstart"], ["+sweep=quickstart?"]),
        (["last"], ["layers=last?"]),
        (["doctor", "quickstart"], ["+sweep=quickstart"]),
        (["layers.indices=1,2"], ["'layers.indices=[1,2]'"]),
        (["layers=last,sum_all"], ["probe -m layers=last,sum_all"]),
        (["layers.indices=[1"], ["'layers.indices=[9,10]'"]),
        (["seed=1 b(c"], ["""'seed="1 b(c"'"""]),
        (["data.name=é"], ["""'data.name="é"'"""]),
        (["results_dir=/tmp/é,b"], ["""'results_dir="/tmp/é,b"'"""]),
        (["sweep=quickstrat"], ["quickstart?"]),
        (["--seed", "3"], ["seed=3?"]),
        (["--learning-rate=3"], ["probe.learning_rate=3?"]),
        (["table", "--colums", "x"], ["--columns?"]),
        (["seed=2-5"], ["seed=A,B"]),
        (["-m", "+sweep=quickstart,paper_table"], ["sweep"]),
        (["+sweep=nope"], ["sweep=nope", "quickstart"]),
        (["~layers"], ["layers"]),
        (["layers=layer_4", "layers.indices=[3]"], ["layers.indices=[3]", "layers=layer_4", "layers=single"]),
        (["layers=concat_last_for"], ["concat_last_four?", "layers=7", "layers=concat_2_5_7"]),
        (["layers=concat_3_x"], ["layers=concat_3_x", "layers=concat_2_5_7"]),
        (["layers=99"], [99, 0, 12]),
        (["-m", "layers=3,[4,5]"], ["layers=[4,5]", "layers=concat_2_5_7"]),
        (["-m", "--cfg", "job", "layers=last"], ["sweep"]),
        (["layers=null"], ["layers=null", "sum_all"]),
        (["layers=[last,sum_all]"], ["layers"]),
        (["data.path=${nope}"], ["nope"]),
        (["device=cuda", "data=demo", "encoder=minilm_l6"], ["device=cuda"]),
        (["data=demo", "encoder=minilm_l6", "results_dir=/proc/x"], ["results_dir=/proc/x"]),
        (["--nope"], ["--nope"]),
        (["export"], ["--to"]),
        (["data=demo", "data.dev=null"], ["dev", "data.dev_fraction=0.1"]),
        (["data=demo", "data.scheme=BIO"], ["data.scheme=BIO", "auto, IOB1"]),
        (["data=demo", "data.labels=O"], ["data.labels"]),
        (["table", "/nowhere"], ["/nowhere"]),
        (["train"], ["data.path=DIR"]),
        (["lr=1e-3"], ["probe.learning_rate?"]),
        (["--lr", "0.1"], ["probe.learning_rate=0.1?"]),
        (["probe.batch=8"], ["probe.batch_size?"]),
        (["num_train_epochs=3"], ["probe.max_epochs?"]),
        (["model=bert"], ["encoder?", "encoder.path"]),
        (["--dataset=x"], ["data=x?"]),
        (["seeds=1,2"], ["seed?"]),
        (["encoder=roberta-base"], ["encoder=OWNER/NAME", "encoder=DIR"]),
        (["data=demo", "encoder=./no/where"], ["encoder.path=./no/where"]),
        (["data=demo", "encoder.path=some/model"], ["encoder.name=some/model"]),
        (["data=/no/where", "encoder=minilm_l6"], ["data.path=/no/where"]),
        (["encoder=~nobody_here/x"], ["~nobody_here"]),
        (["data=", "encoder=minilm_l6"], ["data=", "demo"]),  # not this folder
        (["encoder=", "data=demo"], ["encoder=", "minilm_l6"]),
        (["layers=each", "encoder=minilm_l6"], ["probe -m layers=each encoder=minilm_l6"]),
        (["layers=single", "layers.indices=each"], ["probe -m layers=single layers.indices=each"]),
        (["sweep", "layers=last,sum_all"], ["probe -m layers=last,sum_all"]),
        (["race", "data=demo"], ["probe screen data=demo"]),
        (["doctor", "screen", "data=demo"], ["probe doctor data=demo"]),
        (["doctor", "sweep", "seed=1,2"], ["probe doctor -m seed=1,2"]),
    ],
)
def test_a_users_mistake_is_two_lines_and_exit_2(arguments: list[str], facts: list, typed):
    done = typed(*arguments)
    assert done.returncode == 2, done.stderr
    names(done.stderr, *facts)
    assert len(done.stderr.strip().splitlines()) <= 2
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["table", "report", "verify", "sweep-status"])
def test_a_mistyped_folder_leads_to_the_closest(command: str, typed, tmp_path: Path):
    (tmp_path / "results" / "quickstart" / "records").mkdir(parents=True)
    (tmp_path / "results" / "quikstarts").mkdir()  # no results
    for folder in ("results_dir=results/quikstart", "resluts/quickstart", "reslts/quikstart"):  # the first as for a run
        done = typed(command, folder)
        assert done.returncode == 2
        names(done.stderr, "results/quickstart")
        assert "results_dir=" not in done.stderr


@pytest.mark.parametrize("command", [["table"], ["verify"], ["sweep-status"], ["tag", "--row", "last"]])
def test_a_folder_without_results_leads_to_those_in_it_or_beside_it(command: list[str], typed, tmp_path: Path):
    (tmp_path / "all" / "first" / "records").mkdir(parents=True)
    for folder in ("all", "all/xyz"):
        done = typed(*command, folder, *["Ana"] * (command[0] == "tag"))
        assert done.returncode == 2
        names(done.stderr, "all", "first")


def test_a_mistyped_folder_of_a_corpus_leads_to_the_closest(typed, tmp_path: Path):
    (tmp_path / "my corpus").mkdir()
    (tmp_path / "my corpus" / "tagged").mkdir()
    for wrong, right in (("my corpse", "my corpus"), ("my corpse/tagged", "my corpus/tagged")):
        names(typed("data=columns", f"data.path={tmp_path}/{wrong}").stderr, f"data.path={tmp_path}/{right}?")
    names(typed("data=my corpse").stderr, "data=my corpus?")


def test_a_plus_that_hydra_needs_or_refuses_may_be_left_out_or_typed(typed):
    with_plus = typed("--cfg", "job", "+data=demo", "+seed=3")
    names(with_plus.stdout, "seed: 3", "hidden_size: 256")
    assert (with_plus.returncode, with_plus.stdout) == (0, typed("--cfg", "job", "data=demo", "seed=3").stdout)
    assert configs_of(["sweep=quickstart"]) == configs_of(["+sweep=quickstart"])


def test_a_locale_without_utf8_keeps_names_whole(inputs: list[str], tmp_path: Path):
    settings = ["layers=majority_tag", *inputs, 'data.name="dätä"', 'results_dir="rü"']
    done = interpreted(*settings, cwd=tmp_path, PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert json.loads(finished_runs(tmp_path / "rü")[0].read_bytes())["config"]["data"]["name"] == "dätä"


def test_a_run_that_cannot_begin_names_another_folder(typed, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = typed("data=demo", "encoder=minilm_l6", "results_dir=file")
    assert done.returncode == 2
    names(done.stderr, "results_dir=DIR")


@pytest.mark.parametrize("typed_so", ["layers.indices=[1", "seed=a\\", "data.path='a", "seed=é", "a b=c"])
def test_no_message_has_words_of_hydras_parser(typed_so: str, typed):
    assert not re.search(r"viable|Lexer|Exception|EOF|token", typed(typed_so).stderr)


@pytest.mark.parametrize("sweep", sorted(file.stem for file in (conf_dir() / "sweep").glob("*.yaml")))
def test_every_sweep_file_typed_as_a_command_is_named_as_it_is_typed(sweep: str, typed):
    names(typed(sweep.replace("_", "-")).stderr, f"+sweep={sweep}")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_lists_the_commands(arguments: list[str], typed):
    done = typed(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    names(done.stdout, *COMMANDS)


def test_the_version_is_that_of_the_package(typed):
    done = typed("--version")
    assert (done.returncode, done.stdout.split()) == (0, ["layer-probe", __version__])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option_and_gives_examples(command: str, typed, monkeypatch: pytest.MonkeyPatch):
    parsers: list[Parser] = []
    monkeypatch.setattr(Parser, "print_help", lambda parser: parsers.append(parser))
    assert typed(command, "--help").returncode == 0
    (parser,) = parsers
    assert [action.dest for action in parser._actions if not action.help] == []
    assert parser.description
    assert f"  probe {command} " in str(parser.epilog).replace("  probe ", f"  probe {command} ", command == "train")


def test_a_process_of_its_own_says_nothing_else(tmp_path: Path):
    done = interpreted("train", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    names(done.stderr, "data.path=DIR")
    assert len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        ([], ["torch", "hydra"]),
        (["--help"], ["torch", "hydra"]),
        (["train", "--help"], ["torch", "hydra"]),
        (["table", "--help"], ["torch", "hydra", "scipy"]),
        (["table", str(DEMO)], ["torch", "transformers", "datasets", "hydra", "pytorch_lightning"]),
        (["verify", str(DEMO)], ["torch", "transformers", "datasets", "pytorch_lightning"]),
        (["doctor", "data=json", "data.path=/nope", "encoder=minilm_l6"], ["torch", "transformers", "datasets"]),
        (["doctor", "data=demo", "encoder.path=/nope"], ["torch", "transformers", "datasets"]),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(arguments: list[str], unneeded: list[str]):
    code = "import sys\nfrom probe.cli import dispatch\ntry: dispatch(sys.argv[1:])\nexcept SystemExit: pass\n"
    done = python(f"{code}heavy = {set(unneeded)} & sys.modules.keys()\nassert not heavy, heavy", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_one_run_prints_its_scores_and_is_done_once(inputs: list[str], tmp_path: Path, typed):
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    on_a_cluster = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}  # where Lightning has something to say
    first = interpreted("layers=second_to_last", *inputs, cwd=tmp_path, **on_a_cluster)
    assert first.returncode == 0, first.stderr
    names(first.stdout, "second_to_last", "layer 4", "epoch 2")
    records = list((tmp_path / "results/runs/records").iterdir())
    assert len(records) == 1
    record = json.loads(records[0].read_text())
    assert record["layers"] == {"indices": [4], "combine": "concat", "width": 16}
    assert record["data"]["splits"]["train"]["sentences"] == 60
    assert record["hardware"]["threads"] == 1
    assert record["features"]["placement"] == "memory"
    assert not {"placement", "cache_dir"} & record["config"]["features"].keys()
    for line in filter(None, first.stderr.splitlines()):
        assert "extracting" in line, "a good run says nothing else on stderr"

    changed = records[0].stat().st_mtime_ns
    again = typed("layers=second_to_last", "features.placement=stream", *inputs)
    assert again.returncode == 0
    assert records == list((tmp_path / "results/runs/records").iterdir()), "where features lie makes no other run"
    assert records[0].stat().st_mtime_ns == changed


@pytest.mark.slow
def test_a_sweep_runs_in_parallel_and_ends_with_the_table(inputs: list[str], tmp_path: Path, typed):
    sweep = ["layers=last,concat_last_four", "seed=1,2", "results_dir=out", "-m", *inputs, "probe.max_epochs=1"]
    done = probe(*sweep, "jobs=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names(done.stdout, "4 runs", "0 done", "run 4 of 4")
    table = done.stdout[done.stdout.index("tiny,") :]
    names(table, "concat_last_four  2..5")
    for line in filter(None, done.stderr.splitlines()):
        assert "extracting" in line, "a good sweep says nothing else on stderr"
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "records",
        "counts",
        "predictions",
        "logs",
        "sweep.json",
        "table.md",
        "table.csv",
        "table.tex",
        "table.json",
        "figures",
        "report.html",
    }
    assert {p.name for p in tmp_path.iterdir()} == {"out", "cache", "data"}, "nothing is littered"
    records = {p.name: json.loads(p.read_text()) for p in (tmp_path / "out/records").iterdir()}

    again = typed(*sweep, "jobs=2")
    assert "run 1 of" not in again.stdout
    assert table in again.stdout

    serial = ["results_dir=serial", "jobs=1", "features.placement=stream"]
    one_by_one = typed(*[o for o in sweep if o != "results_dir=out"], *serial)
    assert one_by_one.returncode == 0, one_by_one.stderr
    for path in (tmp_path / "serial/records").iterdir():
        streamed = json.loads(path.read_text())
        assert streamed["features"]["placement"] == "stream"
        for part in ("key", "config", "scores", "sha256", "best_epoch", "mix"):
            assert streamed[part] == records[path.name][part], "however many run side by side, the same bits"
        assert [p["loss"] for p in streamed["curve"]] == [p["loss"] for p in records[path.name]["curve"]]


@pytest.mark.slow
def test_a_failed_run_is_named_and_the_rest_goes_on(inputs: list[str], tmp_path: Path):
    done = probe(
        "-m",
        "layers=last",
        "probe.hidden_size=4,1000000000",
        "results_dir=out",
        "jobs=1",
        *inputs[: -len(TINY)],
        *TINY[1:],
        cwd=tmp_path,
    )
    assert done.returncode == 1
    names(done.stderr, "last seed 1", "RuntimeError")
    assert "Traceback" not in done.stderr
    assert "out/logs/last-seed1-" in done.stderr
    assert len(list((tmp_path / "out/records").iterdir())) == 1
    names(done.stdout, "0 of 1")


@pytest.mark.slow
def test_sweeps_as_files_can_be_narrowed_and_redirected(inputs: list[str], tmp_path: Path):
    inputs = [override for override in inputs if override != "data=columns"]
    narrowed = ["seed=3", "layers=last,mix_all", "results_dir=out", "jobs=1"]
    done = probe("+sweep=paper_table", *narrowed, *inputs, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name.rsplit("-", 1)[0] for p in (tmp_path / "out/records").iterdir()) == [
        "last-seed3",
        "mix_all-seed3",
    ]


def test_extract_fills_the_store_and_stops(inputs: list[str], tmp_path: Path, typed):
    done = typed("extract", *inputs)
    assert done.returncode == 0, done.stderr
    names(done.stdout, "0..5", 16)
    assert len(list((tmp_path / "cache").glob("*/*.safetensors"))) == 3
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "by"), [(1, "Ctrl-C"), (2, "Ctrl-C"), (2, "kill")])
def test_ctrl_c_or_kill_stops_cleanly_and_the_same_command_continues(
    inputs: list[str], tmp_path: Path, jobs: int, by: str
):
    sweep = ["-m", "layers=last", "seed=range(1,5)", "results_dir=out", *inputs]
    process = start(*sweep, f"jobs={jobs}", cwd=tmp_path)
    wait_for(lambda: finished_runs(tmp_path / "out"), DEADLINE_S, "the first record", process)
    assert bool(workers_of(process)) == (jobs > 1), "jobs that can go on are there, and can be seen"
    if by == "Ctrl-C":  # the terminal tells every process of the command
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    _, errors = finish(process)
    assert process.returncode == 130, errors
    assert not workers_of(process), "no job goes on"
    assert "Traceback" not in errors
    finished = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out/records").iterdir()}
    done = probe(*sweep, "jobs=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out/records").iterdir()}
    assert len(after) == 4
    assert all(after[name] == when for name, when in finished.items()), "what was finished is not done again"


@pytest.mark.slow
def test_another_terminal_sees_where_a_sweep_stands(inputs: list[str], tmp_path: Path):
    assert probe("sweep-status", "out", cwd=tmp_path).returncode == 2
    sweep = ["-m", "layers=last", "seed=range(1,4)", "results_dir=out", "jobs=1", *inputs, "probe.max_epochs=5"]
    sweep += ["probe.patience=9"]
    process = start(*sweep, cwd=tmp_path)
    wait_for(lambda: in_training(tmp_path / "out"), DEADLINE_S, "a run in training", process)
    told = probe("sweep-status", "out", cwd=tmp_path).stdout.splitlines()
    names(told[0], "3 runs", "1 running", "0 failed")
    names(told[1], "last seed", "epoch")
    stop(process)
    told = probe("sweep-status", "out", cwd=tmp_path).stdout.splitlines()
    names(told[0], "0 running")  # a killed sweep does not look as if it ran


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1])
def test_a_killed_worker_costs_no_other_run(inputs: list[str], tmp_path: Path, after: int):
    sweep = ["-m", "layers=last", "seed=range(1,5)", "results_dir=out", "jobs=2", *inputs]
    sweep += ["probe.max_epochs=4", "probe.patience=4"]
    process = start(*sweep, cwd=tmp_path)
    out = tmp_path / "out"
    wait_for(
        lambda: len(finished_runs(out)) >= after and in_training(out) == 2, DEADLINE_S, "two runs in training", process
    )
    os.kill(workers_of(process)[0], signal.SIGKILL)
    _, errors = finish(process)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert len(list((tmp_path / "out/records").iterdir())) == 4


def test_a_terminal_gets_no_command_from_a_text_and_a_file_gets_the_text(tmp_path: Path):
    code = "from probe import cli\nfrom probe.config import UserError\ndef dispatch(_):\n"
    code += "    print('a\\x1b[2Jb')\n    raise UserError('c\\x1b[2Jd')\ncli.dispatch = dispatch\ncli.main()"
    terminal, inner = os.openpty()
    for out in (inner, subprocess.PIPE):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, r"c\x1b[2Jd" in done.stderr) == (2, True)
        told = done.stdout if out is subprocess.PIPE else os.read(terminal, 1000).decode()
        assert (r"a\x1b[2Jb" if out is inner else "a\x1b[2Jb") in told
    os.close(terminal)
    os.close(inner)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAYER_PROBE_WORKER", "x"),
        ("LAYER_PROBE_WORKER", "0|0|a||1"),
        ("SLURM_ARRAY_TASK_ID", "abc"),
        ("SLURM_ARRAY_TASK_STEP", "0"),
        ("SLURM_ARRAY_TASK_COUNT", "-1"),
        ("LAYER_PROBE_COMMITS", "[1]"),
        ("LAYER_PROBE_COMMITS", "{"),
    ],
)
def test_nonsense_in_a_variable_of_the_environment_is_one_line(
    inputs: list[str], tmp_path: Path, name: str, value: str
):
    done = probe("-m", "layers=last", "seed=1,2", "jobs=1", *inputs, cwd=tmp_path, **{name: value})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    names(done.stderr, name)


@pytest.mark.slow
def test_without_assertions_a_range_is_read_all_the_same(inputs: list[str], tmp_path: Path):
    done = interpreted("doctor", "-m", "layers=last", "seed=range(1,3)", *inputs, cwd=tmp_path, PYTHONOPTIMIZE="1")
    names(done.stdout, "2 runs")
    assert (done.returncode, done.stderr) == (0, "")
