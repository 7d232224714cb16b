"""Evaluation counts every sample once, whatever the number of ranks."""
import csv
import json
import unittest

import numpy as np

from harness import Case, run, write_images


def brightness_data(labels):
    """Images that are all dark (label 0) or all bright (label 1), then relabelled as asked."""
    return np.array([np.full((28, 28), 20 if kind == 0 else 230, np.uint8) for kind in labels])


class Golden(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        kinds = np.arange(64) % 2
        cls.easy = write_images(cls.folder / "easy.h5", train=(brightness_data(kinds), kinds.astype(np.int64)),
                                test=(brightness_data(kinds[:8]), kinds[:8].astype(np.int64)))
        cls.easy_run = cls.folder / "easy_run"
        done = run(1, "train", cls.config, f"data.train={cls.easy}", f"run.dir={cls.easy_run}", "train.epochs=8",
                   "optim.lr=0.02")
        assert done.returncode == 0, done.stderr

    def judge(self, ranks, name, kinds, labels, *words):
        file = write_images(self.folder / f"{name}.h5", test=(brightness_data(kinds), np.asarray(labels, np.int64)))
        done = run(ranks, "eval", self.easy_run, file, "--split", "test", "--batch", "4", "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_21_samples_one_wrong(self):
        kinds = np.arange(21) % 2
        labels = kinds.copy()
        labels[0] = 1 - labels[0]
        for ranks in (1, 2, 3, 4):
            result = self.judge(ranks, "golden", kinds, labels)
            self.assertAlmostEqual(result["accuracy"], 20 / 21, places=12)
            self.assertEqual(result["samples"], 21)

    def test_first_half_right_second_wrong(self):
        kinds = np.arange(7) % 2
        labels = np.where(np.arange(7) < 4, kinds, 1 - kinds)
        losses = []
        for ranks in (1, 2, 4):
            result = self.judge(ranks, "halves", kinds, labels)
            self.assertAlmostEqual(result["accuracy"], 4 / 7, places=12)
            losses.append(result["loss"])
        np.testing.assert_allclose(losses, losses[0], rtol=1e-5)

    def test_predictions_and_confusion(self):
        kinds = np.arange(10) % 2
        file = self.folder / "predictions.csv"
        result = self.judge(3, "predict", kinds, kinds, "--predictions", file)
        rows = list(csv.DictReader(file.read_text().splitlines()))
        self.assertEqual([int(row["sample"]) for row in rows], list(range(10)))
        self.assertEqual([int(row["predicted"]) for row in rows], list(kinds))
        self.assertEqual(result["confusion"], [[5, 0], [0, 5]])
        self.assertEqual(result["classes"][1]["recall"], 1)


class TrainedModel(Case):
    def test_eval_command_agrees_with_training(self):
        done = self.train(2, "train.epochs=2", "optim.ema=0.5")
        best = max(e["accuracy"] for e in done.evals)
        shown = run(2, "eval", done.directory)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(f"accuracy {best:.4f}", shown.stdout)
        self.assertIn("most confused with", shown.stdout)
        final = json.loads(run(0, "eval", done.directory, self.data, "--weights", "final", "--json").stdout)
        self.assertAlmostEqual(final["accuracy"], done.evals[-1]["accuracy"], places=9)
        self.assertAlmostEqual(final["loss"], done.evals[-1]["loss"], places=5)

    def test_sync_batch_norm_does_not_communicate_in_evaluation(self):
        # 9 samples and batch 2 on 2 ranks: different numbers of batches.
        file = write_images(self.folder / "nine.h5", test=(brightness_data([0] * 9), np.zeros(9, np.int64)))
        done = self.train(2, "model.name=resnet18", "model.sync_batch_norm=true", "train.steps=2", "data.batch=4",
                          f"data.eval={file}", "data.eval_batch=2", timeout=120)
        self.assertEqual(done.evals[-1]["samples"], 9)


if __name__ == "__main__":
    unittest.main()
