"""The main job: what a run leaves, and that its numbers do not depend on how the work is divided."""
import json
import unittest

import h5py
import numpy as np

from harness import CUSTOM, Case, largest_difference, run, write_images


class WhatARunLeaves(Case):
    def test_files_and_summary(self):
        done = self.train(2, "train.epochs=2")
        left = {path.name for path in done.directory.iterdir()}
        self.assertLessEqual({"config.yaml", "manifest.json", "metrics.jsonl", "timing.h5", "summary.json",
                              "weights.safetensors", "best.safetensors"}, left)
        self.assertEqual([step["step"] for step in done.steps], list(range(32)))
        self.assertEqual({step["epoch"] for step in done.steps}, {0, 1})
        self.assertEqual([(e["step"], e["samples"], e["split"]) for e in done.evals], [(16, 200, "test"), (32, 200, "test")])
        self.assertLess(np.mean(done.losses()[-8:]), 0.75 * np.mean(done.losses()[:4]))
        self.assertGreater(done.evals[-1]["accuracy"], 0.5)
        summary = done.summary
        for key in ("samples_per_s", "step_ms", "phase_share", "ranks", "collectives", "first_step_s", "exit"):
            self.assertIn(key, summary)
        self.assertEqual(summary["exit"], 0)
        self.assertEqual(len(summary["ranks"]), 2)
        self.assertAlmostEqual(sum(summary["phase_share"].values()), 1, places=6)
        self.assertLess(summary["phase_share"]["other"], 0.03)
        reduced = {c["op"]: c for c in summary["collectives"]}["all_reduce"]
        parameters = sum(value.size for value in done.weights().values())
        self.assertGreaterEqual(reduced["bytes"], 32 * 4 * parameters)
        self.assertGreater(min(rank["peak_bytes"] for rank in summary["ranks"]), 50e6)
        manifest = json.loads((done.directory / "manifest.json").read_text())
        self.assertEqual([rank["rank"] for rank in manifest["ranks"]], [0, 1])
        with h5py.File(done.directory / "timing.h5") as timing:
            self.assertEqual(timing["seconds"].shape, (2, 32, 7))
            self.assertTrue((timing["seconds"][:].sum(axis=2) > 0).all())
        for word in ("samples/s", "all_reduce", "p95"):
            self.assertIn(word, done.process.stdout)

    def test_config_yaml_repeats_the_run(self):
        first = self.train(2, "train.steps=6", "optim.momentum=0.8")
        again = self.train(2, config=first.directory / "config.yaml")
        self.assertEqual(first.losses(), again.losses())

    def test_one_process_without_launcher(self):
        alone, launched = self.train(0, "train.steps=5"), self.train(1, "train.steps=5")
        self.assertEqual(alone.losses(), launched.losses())

    def test_chunked_compressed_and_shards(self):
        with h5py.File(self.data) as source:
            images, labels = source["train/images"][:], source["train/labels"][:]
            test = (source["test/images"][:], source["test/labels"][:])
        parts = [write_images(self.folder / f"part{i}.h5", train=(images[s], labels[s]), test=test)
                 for i, s in enumerate((slice(0, 300), slice(300, None)))]
        whole = self.train(2, "train.steps=8")
        sharded = self.train(2, "train.steps=8", f"data.train=[{parts[0]}, {parts[1]}]", f"data.eval={self.data}")
        self.assertEqual(whole.losses(), sharded.losses())
        packed = self.folder / "packed.h5"
        with h5py.File(packed, "w") as file:
            file.create_dataset("train/images", data=images, chunks=(64, 28, 28), compression="gzip")
            file["train/labels"] = labels
            file["test/images"], file["test/labels"] = test
        one, two = (self.train(ranks, "train.steps=8", f"data.train={packed}", "data.global_batch=32", "data.batch=0")
                    for ranks in (1, 2))
        np.testing.assert_allclose(one.losses(), two.losses(), rtol=2e-5)


class Partitions(Case):
    """One global batch, split in every way, gives one result (P3)."""

    def test_float64_on_one_to_four_ranks(self):
        common = ("precision=fp64", "train.steps=20", "data.batch=0", "data.global_batch=12", "train.eval_every=-1",
                  "train.log_grad_norm=true")
        runs = {ranks: self.train(ranks, *common) for ranks in (1, 2, 3, 4)}
        for ranks in (2, 3, 4):
            np.testing.assert_allclose(runs[ranks].losses(), runs[1].losses(), rtol=0, atol=1e-10)
            np.testing.assert_allclose([s["grad_norm"] for s in runs[ranks].steps],
                                       [s["grad_norm"] for s in runs[1].steps], rtol=0, atol=1e-10)
            self.assertLess(largest_difference(runs[ranks].weights(), runs[1].weights()), 1e-10)

    def test_unequal_shares(self):
        common = ("precision=fp64", "train.steps=10", "data.batch=0", "data.global_batch=13", "train.eval_every=-1")
        one, three = self.train(1, *common), self.train(3, *common)
        np.testing.assert_allclose(three.losses(), one.losses(), rtol=0, atol=1e-10)
        self.assertLess(largest_difference(three.weights(), one.weights()), 1e-10)

    def test_ranks_micro_batches_accumulation(self):
        for clip in (0, 0.1):
            runs = [self.train(ranks, "precision=fp64", "train.steps=10", f"data.batch={batch}",
                               f"train.accumulate={accumulate}", f"train.clip_norm={clip}", "train.log_grad_norm=true",
                               "train.eval_every=-1", "schedule.name=cosine", "schedule.warmup=4")
                    for ranks, batch, accumulate in ((1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2))]
            for other in runs[1:]:
                np.testing.assert_allclose(other.losses(), runs[0].losses(), rtol=0, atol=1e-10)
                self.assertLess(largest_difference(other.weights(), runs[0].weights()), 1e-10)
                self.assertEqual([s["lr"] for s in other.steps], [s["lr"] for s in runs[0].steps])
                np.testing.assert_allclose([s["grad_norm"] for s in other.steps],
                                           [s["grad_norm"] for s in runs[0].steps], rtol=0, atol=1e-10)

    def test_sync_batch_norm_makes_resnet_independent_of_ranks(self):
        common = ("model.name=resnet18", "precision=fp64", "train.steps=3", "data.batch=0", "data.global_batch=8",
                  "train.eval_every=-1", "optim.lr=0.01")
        one = self.train(1, *common)
        two = self.train(2, *common, "model.sync_batch_norm=true")
        apart = self.train(2, *common)
        np.testing.assert_allclose(two.losses(), one.losses(), rtol=0, atol=1e-9)
        self.assertLess(largest_difference(two.weights(), one.weights()), 1e-9)
        self.assertGreater(np.max(np.abs(np.array(apart.losses()) - one.losses())), 1e-6)


class Weights(Case):
    def test_start_from_weights_and_freeze(self):
        first = self.train(1, "train.steps=4")
        tuned = self.train(2, "train.steps=4", f"model.weights={first.directory / 'weights.safetensors'}", 'model.freeze=["*"]')
        before, after = first.weights(), tuned.weights()
        changed = [name for name in before if not np.array_equal(before[name], after[name])]
        self.assertEqual({name.split(".")[0] for name in changed}, {"9"})


class Extension(Case):
    def test_model_dataset_and_task_of_ones_own(self):
        mine = self.train(2, "model.name=two_layer", "model.options.hidden=24", program=CUSTOM)
        self.assertEqual(mine.weights()["first.weight"].shape, (24, 784))
        rings = self.train(2, "model.name=two_layer", "data.dataset=rings", "data.train=made-up", "task=top_two",
                           program=CUSTOM)
        self.assertGreater(rings.evals[-1]["accuracy"], 0.99)
        self.assertEqual(rings.evals[-1]["top_two"], 1)


class Bench(Case):
    def test_benchmarks_print_json(self):
        reduced = json.loads(run(2, "bench", "allreduce", "--bytes", "4096", "1048576").stdout)
        self.assertEqual([row["bytes"] for row in reduced["inline"]], [4096, 1048576])
        self.assertEqual(reduced["world"], 2)
        read = json.loads(run(1, "bench", "input", self.data, "--samples", "20000").stdout)
        self.assertGreater(read["samples_per_s"], 1000)
        step = json.loads(run(2, "bench", "step", self.config, "--steps", "6", "--warmup", "2").stdout)
        self.assertGreater(step["samples_per_s"], 0)
        self.assertIn("p95", step["step_ms"])


if __name__ == "__main__":
    unittest.main()
