#!/usr/bin/env python3
"""Lockstep against PyTorch DDP on the same work, file, batch and ranks: alternating runs, medians, ratios.

    .deps/venv/bin/python test/bench/compare.py datasets/fashion_mnist.h5             # everything, about 20 minutes
    .deps/venv/bin/python test/bench/compare.py datasets/fashion_mnist.h5 small_cnn allreduce --repeats 5

Subjects: small_cnn, mobilenet_v2 (at 64 pixels), resnet18 (training throughput on 2 ranks against the better of PyTorch's
default and --channels-last; and seconds to the first step), allreduce, input. Absolute numbers belong to the machine; the
ratios are what counts. Prints a table and, with --json FILE, everything measured.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LOCKSTEP = os.environ.get("LOCKSTEP", str(ROOT / "build/release/bin/lockstep"))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
VISION = {"small_cnn": (0, 60), "mobilenet_v2": (64, 12), "resnet18": (0, 12)}  # resize, steps
TARGETS = {"small_cnn": 1.6, "mobilenet_v2": 1.1, "resnet18": 1.0}


def last_json(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=ENVIRONMENT, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    text = done.stdout[done.stdout.index("{"):]
    return json.JSONDecoder().raw_decode(text)[0]


def mpirun(ranks, *words):
    return ["mpirun", "-n", ranks, LOCKSTEP, *words]


def torchrun(ranks, script, *words):
    return [*TORCHRUN, "--nproc-per-node", ranks, HERE / script, *words]


def vision(data, model, repeats, config):
    resize, steps = VISION[model]
    ours, theirs = [], {"default": [], "channels_last": []}
    first_ours, first_theirs = [], []
    for _ in range(repeats):
        mine = last_json(mpirun(2, "bench", "step", config, f"data.train={data}", f"model.name={model}", "data.batch=64",
                                f"data.resize={resize}", "--steps", steps, "--warmup", 5))
        ours.append(64 * 2 / (mine["step_ms"]["mean"] / 1e3))
        first_ours.append(mine["first_step_s"])
        for name, flags in (("default", []), ("channels_last", ["--channels-last"])):
            peer = last_json(torchrun(2, "peer_vision.py", "--model", model, "--data", data, "--steps", steps, "--warmup", 5,
                                      "--resize", resize, *flags))
            theirs[name].append(peer["images_per_s"])
            first_theirs.append(peer["first_step_s"])
    best = max(statistics.median(values) for values in theirs.values())
    return {"ours": ours, "theirs": theirs, "ratio": statistics.median(ours) / best, "first_step_ours": first_ours,
            "first_step_theirs": first_theirs,
            "first_step_ratio": statistics.median(first_ours) / statistics.median(first_theirs)}


def allreduce(repeats):
    ours, theirs = {}, {}
    for _ in range(repeats):
        mine = last_json(mpirun(2, "bench", "allreduce", "--bytes", 4096, 131072, 4194304, 16777216, 104857600,
                                "--progress", "inline"))
        for row in mine["inline"]:
            ours.setdefault(row["bytes"], []).append(row["p50"])
        for size, ms in last_json(torchrun(2, "peer_allreduce.py"))["ms_by_bytes"].items():
            theirs.setdefault(int(size), []).append(ms)
    return {size: {"ours_ms": statistics.median(ours[size]), "gloo_ms": statistics.median(theirs[size]),
                   "ratio": statistics.median(theirs[size]) / statistics.median(ours[size])} for size in sorted(ours)}


def reading(data, repeats):
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(last_json([LOCKSTEP, "bench", "input", data])["samples_per_s"])
        theirs.append(max(last_json([sys.executable, HERE / "peer_input.py", data, workers])["samples_per_s"]
                          for workers in (0, 2)))
    return {"ours": ours, "theirs": theirs, "ratio": statistics.median(ours) / statistics.median(theirs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="HDF5 file with train/images and train/labels")
    parser.add_argument("subjects", nargs="*", default=[*VISION, "allreduce", "input"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--config", default=str(ROOT / "experiments/fashion_mnist.yaml"))
    parser.add_argument("--json", help="file for everything measured")
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        sys.exit("mpirun: not found; run launch/setup.sh")
    results = {}
    for subject in options.subjects:
        print(f"measuring {subject} …", file=sys.stderr, flush=True)
        if subject in VISION:
            result = results[subject] = vision(options.data, subject, options.repeats, options.config)
            print(f"{subject:<14} lockstep {statistics.median(result['ours']):8.0f} images/s   pytorch "
                  + "  ".join(f"{name} {statistics.median(v):.0f}" for name, v in result["theirs"].items())
                  + f"   ratio {result['ratio']:.2f} (target {TARGETS[subject]})   first step {result['first_step_ratio']:.3f} of pytorch's")
        elif subject == "allreduce":
            results[subject] = allreduce(options.repeats)
            for size, row in results[subject].items():
                print(f"allreduce {size:>10} bytes: lockstep {row['ours_ms']:8.3f} ms  gloo {row['gloo_ms']:8.3f} ms  ratio {row['ratio']:.2f}")
        elif subject == "input":
            result = results[subject] = reading(options.data, options.repeats)
            print(f"input: lockstep {statistics.median(result['ours']):.0f} samples/s  h5py+DataLoader "
                  f"{statistics.median(result['theirs']):.0f}  ratio {result['ratio']:.1f} (target 30)")
        else:
            sys.exit(f"{subject}: not one of {', '.join([*VISION, 'allreduce', 'input'])}")
        sys.stdout.flush()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
