"""The engine on a small pipeline of the same shape, run by the real DVC."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from ruamel.yaml import YAML

from conftest import ROOT
from isoflop.engine.board import NOISE, Board
from isoflop.engine.chains import BEFORE, CHAIN, Outcome, chains_of, out_of_date, run_chains
from isoflop.engine.processes import Processes
from isoflop.engine.shares import Resources, Share, visible_gpus
from isoflop.errors import IsoflopError

PIPELINE = """
stages:
  plan:
    matrix: {arm: "${arms}"}
    cmd: cp source.txt plan-${item.arm}
    deps: [source.txt]
    outs: ["plan-${item.arm}"]
  train:
    matrix: {arm: "${arms}", seed: "${seeds}"}
    cmd: python train.py ${item.arm}-${item.seed}
    deps: ["plan-${item.arm}"]
    outs: ["run-${item.arm}-${item.seed}"]
  evaluate:
    matrix: {arm: "${arms}", seed: "${seeds}"}
    cmd: cp run-${item.arm}-${item.seed} eval-${item.arm}-${item.seed}
    deps: ["run-${item.arm}-${item.seed}"]
    outs: ["eval-${item.arm}-${item.seed}": {cache: false}]
  sample:
    matrix: {arm: "${arms}", seed: "${seeds}"}
    cmd: cp run-${item.arm}-${item.seed} sample-${item.arm}-${item.seed}
    deps: ["run-${item.arm}-${item.seed}"]
    outs: ["sample-${item.arm}-${item.seed}": {cache: false}]
  collect:
    cmd: cat eval-* > collected
    always_changed: true
    deps: ["eval-base-0", "eval-mqa-0"]
    outs: [collected]
"""
# Runs that meet: each waits until another is under way, so that a pipeline one after the other would not end.
TRAIN = """
import os, pathlib, signal, sys, time
name = sys.argv[1]
def stop(number, frame):
    pathlib.Path(f"stopped-{name}").touch()
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
pathlib.Path(f"pid-{name}").write_text(str(os.getpid()))
print(f"{name} begins with {os.environ.get('OMP_NUM_THREADS')} threads", flush=True)
until = time.monotonic() + 60
while len(list(pathlib.Path().glob("pid-*"))) < 2 or pathlib.Path("wait").exists():
    assert time.monotonic() < until, "no other run beside this one"
    time.sleep(0.02)
if pathlib.Path(f"break-{name}").exists():
    sys.exit("the loss is purple")
pathlib.Path(f"run-{name}").write_text(f"{name}\\n")
"""
NAMES = ["base-0", "base-1", "mqa-0", "mqa-1"]


class Workspace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "CUDA_"))},
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        (root / "dvc.yaml").write_text(PIPELINE)
        (root / "params.yaml").write_text("arms: {base: {}, mqa: {}}\nseeds: [0, 1]\n")
        (root / "train.py").write_text(TRAIN)
        (root / "source.txt").write_text("once\n")
        self.dvc("init", "--no-scm", "-q")

    def dvc(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments], cwd=self.root, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, jobs: int = 2) -> subprocess.Popen[str]:
        # The module's own `main`: the stages' guard against foreign code has its own test.
        code = (
            f"import sys; sys.argv = ['engine', '--jobs', '{jobs}']; from isoflop.engine.__main__ import main; main()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, jobs: int = 2) -> tuple[int, str]:
        process = self.start(jobs)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def await_file(self, *names: str) -> None:
        until = time.monotonic() + 60
        while not all((self.root / name).exists() for name in names):
            assert time.monotonic() < until, f"{names} did not appear"
            time.sleep(0.02)

    @property
    def locked(self) -> dict[str, object]:
        loaded: dict[str, dict[str, object]] = YAML(typ="safe").load((self.root / "dvc.lock").read_text())
        return loaded["stages"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.slow
def test_runs_go_side_by_side_and_leave_what_dvc_alone_would_leave(workspace: Workspace, tmp_path: Path) -> None:
    status, output = workspace.run()
    assert status == 0, output
    beside = workspace.locked
    assert set(beside) == {"plan@base", "plan@mqa", "collect"} | {f"{s}@{n}" for s in CHAIN for n in NAMES}
    assert (workspace.root / "collected").read_text().split() == NAMES
    cores = len(os.sched_getaffinity(0))
    assert f"train@base-0 | base-0 begins with {max(1, cores // 2)} threads\n" in output
    assert re.search(r"4 runs, 2 at a time", output)
    assert not any(re.search(r"\| (Updating|Running|> )", line) for line in output.splitlines())

    again = workspace.dvc("repro")
    assert re.findall(r"Running stage '([^']+)'", again) == ["collect"]
    (workspace.root / "dvc.lock").unlink()
    workspace.dvc("repro", "--force")
    assert workspace.locked == beside


@pytest.mark.slow
def test_with_nothing_to_train_it_is_a_plain_repro(workspace: Workspace) -> None:
    assert workspace.run()[0] == 0
    status, output = workspace.run()
    assert status == 0
    assert re.findall(r"Running stage '([^']+)'", output) == ["collect"]
    assert "at a time" not in output


@pytest.mark.slow
def test_a_failing_run_leaves_the_others_running_and_is_named_at_the_end(workspace: Workspace) -> None:
    (workspace.root / "break-base-1").touch()
    status, output = workspace.run()
    assert status == 1
    assert all((workspace.root / f"sample-{name}").exists() for name in NAMES if name != "base-1")
    assert not (workspace.root / "collected").exists()
    last = output[output.index("train@base-1 failed with exit status") :]
    assert "    the loss is purple\n" in last
    assert "error: 1 of 4 runs failed (base-1); the others are complete." in last

    (workspace.root / "break-base-1").unlink()
    status, output = workspace.run()
    assert status == 0
    assert re.findall(r"(\S+) begins", output) == ["base-1"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_run_and_leaves_no_process(workspace: Workspace, number: signal.Signals) -> None:
    (workspace.root / "wait").touch()
    process = workspace.start()
    workspace.await_file("pid-base-0", "pid-base-1")
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 4  # DVC and the stage, twice
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "stopping: runs save a checkpoint first" in output
    assert "Traceback" not in output
    assert (workspace.root / "stopped-base-0").exists()
    assert (workspace.root / "stopped-base-1").exists()
    assert not (workspace.root / "pid-mqa-0").exists(), "a run began after the interrupt"
    assert not [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    for leftover in ("wait", "pid-base-0", "pid-base-1"):
        (workspace.root / leftover).unlink()
    assert workspace.run()[0] == 0


def test_what_does_not_end_on_an_interrupt_is_killed() -> None:
    processes = Processes()
    ignore = "import signal, time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN)"
    stubborn = f"{ignore}; print('up', flush=True); time.sleep(60)"
    with ThreadPoolExecutor(1) as pool:
        lines: list[str] = []
        future = pool.submit(processes.run, [sys.executable, "-c", stubborn], dict(os.environ), lines.append)
        while not lines:
            time.sleep(0.01)
        processes.stop(grace_s=0.1)
        assert future.result(timeout=10) == -signal.SIGKILL
    assert processes.run([sys.executable, "-c", ""], {}) == 130, "nothing starts after a stop"


def test_dvc_s_own_words_where_the_pipeline_cannot_be_read(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.root / "dvc.yaml").write_text("stages: [")
    monkeypatch.chdir(workspace.root)
    with pytest.raises(IsoflopError, match=r"dvc\.yaml"):
        out_of_date()


def test_the_chain_is_the_one_of_the_pipeline() -> None:
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    per_run = [name for name, stage in stages.items() if set(stage.get("matrix", ())) == {"arm", "seed"}]
    assert per_run == list(CHAIN)
    assert list(stages)[: len(BEFORE)] == list(BEFORE)


def test_chains_in_the_pipeline_s_order_each_once() -> None:
    stale = ["plan@base", "train@mqa-1", "train@base-0", "evaluate@mqa-1", "sample@wide-2", "collect"]
    assert chains_of(stale) == ["mqa-1", "base-0", "wide-2"]
    assert chains_of(["collect"]) == []


def test_any_executor_will_do_and_one_failure_is_one_failure() -> None:
    def job(chain: str) -> Outcome:
        return Outcome(chain=chain, stage=f"train@{chain}", status=int(chain == "b"))

    ended: list[tuple[str, int]] = []
    show: Callable[[str, int], None] = lambda chain, status: ended.append((chain, status))  # noqa: E731
    with ThreadPoolExecutor(1) as pool:
        outcomes = run_chains(["a", "b", "c"], job, pool, show)
    assert sorted(ended) == [("a", 0), ("b", 1), ("c", 0)]
    assert {outcome.chain for outcome in outcomes if outcome.status} == {"b"}


@pytest.mark.parametrize(
    ("chains", "cores", "gigabytes", "gpus", "jobs"),
    [(6, 2, 16, 0, 2), (6, 64, 64, 0, 6), (6, 8, 4, 0, 2), (0, 2, 16, 0, 1), (6, 16, 64, 1, 2), (6, 16, 64, 2, 4)],
)
def test_jobs_that_pay(chains: int, cores: int, gigabytes: int, gpus: int, jobs: int) -> None:
    machine = Resources(cores=cores, free_bytes=gigabytes * 1e9, gpus=tuple(str(i) for i in range(gpus)))
    assert machine.jobs_that_pay(chains) == jobs


def test_threads_are_divided_and_gpus_taken_in_turn() -> None:
    machine = Resources(cores=8, free_bytes=1e12, gpus=("0", "3"))
    assert machine.divide(3) == [Share(threads=2, gpu="0"), Share(threads=2, gpu="3"), Share(threads=2, gpu="0")]
    assert Resources(cores=2, free_bytes=1e12, gpus=()).divide(4) == [Share(threads=1)] * 4
    environment = Share(threads=2, gpu="3").environment()
    assert (environment["OMP_NUM_THREADS"], environment["CUDA_VISIBLE_DEVICES"]) == ("2", "3")


def test_visible_gpus_are_those_that_the_user_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert visible_gpus() == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


def test_lines_carry_the_stage_they_are_from(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(2)
    for line in ("Running stage 'train@base-0':", "> python train.py", "step 3 [loss 1.2]", "", "Updating lock file"):
        board.line("base-0", line)
    board.ended("base-0", 1)
    assert capsys.readouterr().out == (
        "train@base-0 | step 3 [loss 1.2]\ntrain@base-0 | failed with exit status 1; the other runs go on\n"
    )
    assert not NOISE.match("ERROR: failed to reproduce 'train@base-0'")
