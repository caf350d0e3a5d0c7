"""train@ARM-SEED: train one arm with one seed, from its plan."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from safetensors.torch import save

from isoflop import paths
from isoflop.checkpoint import Checkpoints
from isoflop.files import atomic_path, fresh_folder, write_json, write_text
from isoflop.machine import this_machine
from isoflop.model.gpt import GPT
from isoflop.occasion import occasion
from isoflop.plan import Plan
from isoflop.provenance import identity, outcome, resume_key
from isoflop.recorder import FileRecorder, Recorders
from isoflop.stages import run
from isoflop.tokens import open_tokens
from isoflop.tracking.identity import RunIdentity
from isoflop.tracking.live import MlflowRecorder
from isoflop.training import Stopped, train


class StopSignal:
    """Remembers that SIGINT or SIGTERM came, so that the loop can stop between two steps."""

    def __init__(self) -> None:
        self.stopped = False
        self.number = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.stopped, self.number = True, number


def main() -> None:
    arm, seed = sys.argv[1], int(sys.argv[2])
    plan = Plan.read(paths.PLANS / f"{arm}.yaml")
    tokens = open_tokens(paths.TOKENS / plan.tokenizer, plan.tokens_digest)
    machine = this_machine(
        plan.train.precision, paths.local() / "machine.json", compile=plan.train.compile, flops=plan.predicted.flops
    )
    stop = StopSignal()
    given = occasion(plan)
    checkpoints = Checkpoints(
        paths.local() / "checkpoints", resume_key(plan, seed, machine), every_s=given.checkpoint_s, study=given.study
    )
    folder = fresh_folder(paths.RUNS / f"{arm}-{seed}")
    config = plan.to_yaml(seed=seed)
    write_text(folder / "config.yaml", config)
    known = identity(plan, seed, checkpoints.run_uid, checkpoints.study, given)
    recorder = Recorders(
        FileRecorder(folder),
        MlflowRecorder(paths.main_checkout(), RunIdentity.of(known), config, started=checkpoints.started.timestamp()),
    )
    try:
        model, progress = train(
            plan, seed, tokens, machine=machine, recorder=recorder, checkpoints=checkpoints, signal=stop
        )
        if progress.diverged_at is None:
            save_weights(model, folder / "model.safetensors")
        write_json(folder / "run.json", known | outcome(plan, progress, machine, checkpoints.started))
    except Stopped as reason:
        recorder.close("KILLED")
        print(f"{arm}-{seed}: {reason}", file=sys.stderr)
        raise SystemExit(128 + stop.number) from None
    except BaseException:
        recorder.close("FAILED")
        raise
    recorder.close("FINISHED" if progress.diverged_at is None else "FAILED")
    checkpoints.remove()


def save_weights(model: GPT, path: Path) -> None:
    """All parameters in float32, whole or not at all."""
    with atomic_path(path) as temporary:
        # Written by Python and not by safetensors, so that a full disk is the same error as everywhere.
        temporary.write_bytes(save({name: tensor.contiguous() for name, tensor in model.state_dict().items()}))


if __name__ == "__main__":
    run(main)
