"""Writes what must not change while the code is changed: compare two of its folders with `diff -r`.

    python tests/benchmarks/goldens.py TO --conll2003 DIR [--mpnet DIR]

tables/ holds each committed folder's table. keys/ holds the keys of its runs, planned from the settings of their
records on the real corpora and encoders: nothing else is taken from a record. verify.txt is what `probe verify` says
of each folder. runs/ holds what trainings on the demo came to, to the bit. screen.json holds what a small screen
ranks. It takes about five minutes on two cores. Compare on one machine with one set of versions: another
machine has other bits, and other versions draw other random encoders.

--conll2003: the original files eng.train, eng.testa, eng.testb. --mpnet: the folder of all-mpnet-base-v2. Without them
the keys of those folders are left out, and the file says so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["data=demo", "encoder=minilm_l6", "probe.max_epochs=2", "probe.lr_decay=linear", "jobs=1"]
QUICK = ["probe.hidden_size=16", "probe.learning_rate=6e-3", "layers.normalize=scale"]
RUNS = {
    "bilstm": [*SMALL, *QUICK, "layers=concat_last_four"],
    "mix": [*SMALL, *QUICK, "layers=mix_all", "features.context=document"],
    "linear": [*SMALL, "probe=linear", "layers=sum_all"],
    "control": [*SMALL, "probe=linear", "layers=last", "data.control=1"],
    "random": [*SMALL, "probe=linear", "layers=last", "encoder.weights=random"],
    "mlp": [*SMALL, "probe=mlp", "probe.hidden_size=16", "layers=second_to_last"],
    "fine_tuned": ["data=demo", "encoder=minilm_l6", "probe=finetune", "probe.max_epochs=1", "probe.precision=float32"],
    "majority_tag": [*SMALL, "layers=majority_tag"],
}
SCREEN = ["data=demo", "encoder=minilm_l6", "screen.sentences=400", "screen.max_layers=1"]


def probe(*arguments: str) -> str:
    """Runs a command of this checkout and returns what it prints, and its exit code where that is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "probe", *arguments],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + (f"exit code {done.returncode}: {done.stderr}" if done.returncode else "")


def part_of(conll2003: Path, to: Path) -> Path:
    """Makes a tenth of CoNLL-2003: 104 documents of train, 100 of dev, all of test. Returns its folder."""
    for name, most in (("eng.train", 23_024), ("eng.testa", 28_642), ("eng.testb", None)):
        lines = (conll2003 / name).read_bytes().splitlines(keepends=True)
        (to / name).write_bytes(b"".join(lines[:most]))
    return to


def planned_keys(folder: Path, paths: dict[str, Path | None]) -> Iterator[str]:
    """Plans every run of a folder from the settings of its record, and compares the key with the record's."""
    from probe.config import UserError
    from probe.runs.config_from_record import config_from_record
    from probe.runs.plan import plan
    from probe.runs.records import load_records
    from probe.settings import config_of

    for file, record in load_records(folder).items():
        asked = {"data": record.config.data["path"], "encoder": record.config.encoder["path"]}
        given = {group: paths[path] for group, path in asked.items() if path in paths}
        if None in given.values():
            yield f"{file.stem}: not planned, its files are not here"
            continue
        try:
            cfg = config_from_record(record, config_of, [f"{group}.path={path}" for group, path in given.items()])
            key = plan(cfg).identity.key
        except UserError as error:
            yield f"{file.stem}: {error}"
            continue
        yield f"{file.stem}: {key}{'' if key == record.key else ', recorded ' + record.key}"


def outcome_of(record: dict) -> str:
    """Returns all of a record that a training's bits decide, as JSON."""
    curve = [{name: value for name, value in epoch.items() if name != "train_s"} for epoch in record["curve"]]
    parts = ("key", "identity", "row", "layers", "scores", "sha256", "best_epoch", "mix", "parameters", "outcome")
    return json.dumps({part: record[part] for part in parts} | {"curve": curve}, indent=1) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("to", type=Path)
    parser.add_argument("--conll2003", type=Path)
    parser.add_argument("--mpnet", type=Path)
    options = parser.parse_args()
    to = options.to.resolve()
    for room in ("tables", "keys", "runs"):
        (to / room).mkdir(parents=True)
    os.chdir(ROOT)
    ask = ["git", "ls-files", "results/*/records/*.json"]
    listed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    folders = sorted({Path(line).parents[1] for line in listed.splitlines()})
    with TemporaryDirectory() as scratch, (to / "verify.txt").open("w") as verified:
        part = part_of(options.conll2003, Path(scratch)) if options.conll2003 else None
        paths = {"conll2003": options.conll2003, "conll2003-part": part, "all-mpnet-base-v2": options.mpnet}
        for folder in folders:
            print(folder, flush=True)
            for form, ending in (("text", "txt"), ("json", "json")):
                table = probe("table", str(folder), "--format", form)
                (to / "tables" / f"{folder.name}.{ending}").write_text(table)
            with contextlib.redirect_stdout(io.StringIO()):
                keys = [*planned_keys(folder, paths)]
            (to / "keys" / f"{folder.name}.txt").write_text("\n".join(keys) + "\n")
            print(folder, *probe("verify", str(folder)).splitlines(), sep="\n  ", file=verified)
        for name, settings in RUNS.items():
            print(name, flush=True)
            said = probe(*settings, f"results_dir={scratch}/{name}")
            records = sorted(Path(scratch, name, "records").glob("*.json"))
            text = outcome_of(json.loads(records[0].read_text())) if records else said
            (to / "runs" / f"{name}.json").write_text(text)
        print("screen", flush=True)
        said = probe("screen", *SCREEN, f"results_dir={scratch}/screen")
        file = Path(scratch, "screen", "screen.json")
        ranked = json.loads(file.read_text())["ranked"] if file.exists() else said
        (to / "screen.json").write_text(json.dumps(ranked, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
