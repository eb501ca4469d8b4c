import sys
sys.path.insert(0, "/work/main/tests/runs")
from test_slurm import *  # noqa
from probe.runs.progress import status_of

@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_continue(tmp_path, inputs, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", "/work/main")
    out = tmp_path / "out"
    sweep = ["-m", *inputs, "probe=linear", "probe.max_epochs=600", "probe.patience=100000", "layers=last,embeddings",
             "seed=1,2,3,4,5,6", "jobs=1", f"results_dir={out}"]
    jobs = []
    import time
    for n in range(6):
        assert dispatch([*sweep, "hydra/launcher=slurm", "hydra.launcher.array=2", "hydra.launcher.timeout_min=2", "hydra.launcher.mem_gb=2"]) == 0
        job = capsys.readouterr().out.split("as job ")[1].split(".")[0]
        t = time.time()
        wait_until(lambda: not told("squeue", "-h", "-j", job, "-o", "%i"), "end", 300)
        now = status_of(out)
        with capsys.disabled():
            print("\narray", n, job, round(time.time() - t), "s; records", len(list((out / "records").glob("*.json"))) if (out/"records").exists() else 0, "waiting", len(now.waiting), "died", len(now.died), "failed", len(now.failed), "running", len(now.running), "table", (out / "table.json").exists(), flush=True)
        if (out / "table.json").exists() and not now.waiting:
            break
    assert (out / "table.json").exists() and not now.waiting and not now.died and not now.failed
