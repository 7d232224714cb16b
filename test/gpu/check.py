#!/usr/bin/env python3
"""Judges the runs of test/gpu/run.sh from the files they leave. Standard library only: the machine may have no more.

    check.py losses RUN REFERENCE --relative 1e-8 --steps 20
    check.py equal RUN REPEAT --steps 20
    check.py timing RUN --ranks 2
Exit code 0: as demanded; 1: not, and the reason is printed.
"""
import argparse
import hashlib
import json
import math
from pathlib import Path
import sys

# What a step's time is divided into (lib/telemetry/phases.h).
PHASES = {"data", "transfer", "forward", "backward", "communication", "optimizer", "other"}


def losses(run, steps):
    """Loss of each step, in order."""
    records = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    found = {record["step"]: record["loss"] for record in records if record["kind"] == "step"}
    if len(found) != steps:
        sys.exit(f"{run}: {len(found)} steps in metrics.jsonl, not {steps}")
    values = [found[step] for step in sorted(found)]
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
        sys.exit(f"{run}: a loss that is not finite")
    return values


def check_losses(args):
    pairs = list(zip(losses(args.run, args.steps), losses(args.other, args.steps)))
    if len({other for _, other in pairs}) < 2:
        sys.exit(f"{args.other}: the loss never changes, so nothing was trained")
    worst, step = max((abs(a - b) / abs(b), i) for i, (a, b) in enumerate(pairs))
    print(f"largest relative difference {worst:.2e}, {step} steps after the first; {pairs[step][0]:.17g} and {pairs[step][1]:.17g}")
    if worst > args.relative:
        sys.exit(f"more than {args.relative:g}")


def check_equal(args):
    a, b = losses(args.run, args.steps), losses(args.other, args.steps)
    different = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
    if different:
        i = different[0]
        sys.exit(f"losses differ at {len(different)} of {args.steps} steps, first {i} steps after the first: {a[i]:.17g} and {b[i]:.17g}")
    digests = [hashlib.sha256((Path(run) / "weights.safetensors").read_bytes()).hexdigest() for run in (args.run, args.other)]
    if digests[0] != digests[1]:
        sys.exit("losses are equal, weights.safetensors is not")
    print(f"{args.steps} losses and the weights are bit-equal")


def check_timing(args):
    run = Path(args.run)
    summary = json.loads((run / "summary.json").read_text())
    share = summary["phase_share"]
    if missing := PHASES - share.keys():
        sys.exit(f"phases missing in summary.json: {sorted(missing)}")
    if not 0.99 <= sum(share[phase] for phase in PHASES) <= 1.01:
        sys.exit(f"the phases' shares add up to {sum(share.values()):.3f}")
    # `communication` is what is exposed of it, which may be nothing.
    if absent := [phase for phase in ("forward", "backward", "optimizer") if not share[phase] > 0]:
        sys.exit(f"no time in {absent}: {share}")
    if not 0 < summary["step_ms"]["p50"] <= summary["step_ms"]["p99"]:
        sys.exit(f"step times {summary['step_ms']}")
    ranks = summary["ranks"]
    if len(ranks) != args.ranks or not all(rank["peak_bytes"] > 0 for rank in ranks):
        sys.exit(f"expected {args.ranks} ranks with their peak memory: {ranks}")
    calls = {entry["op"]: entry for entry in summary["collectives"]}
    if args.ranks > 1 and not (calls.get("all_reduce", {}).get("calls", 0) > 0 and calls["all_reduce"]["bytes"] > 0):
        sys.exit(f"no all_reduce counted: {summary['collectives']}")
    if (run / "timing.h5").read_bytes()[:8] != b"\x89HDF\r\n\x1a\n":
        sys.exit("timing.h5 is not an HDF5 file")
    shares = ", ".join(f"{phase} {share[phase]:.1%}" for phase in sorted(PHASES, key=lambda phase: -share[phase]))
    print(f"{summary['samples_per_s']:,.0f} images/s, step p50 {summary['step_ms']['p50']:.2f} ms: {shares}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, check in (("losses", check_losses), ("equal", check_equal), ("timing", check_timing)):
        sub = kinds.add_parser(kind)
        sub.set_defaults(check=check)
        sub.add_argument("run")
        if kind == "timing":
            sub.add_argument("--ranks", type=int, required=True)
        else:
            sub.add_argument("other")
            sub.add_argument("--steps", type=int, required=True)
        if kind == "losses":
            sub.add_argument("--relative", type=float, required=True)
    args = parser.parse_args()
    args.check(args)


if __name__ == "__main__":
    main()
