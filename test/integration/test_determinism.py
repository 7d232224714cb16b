"""Equal seed, ranks and configuration give bit-equal runs; what must not matter does not."""
import unittest

import numpy as np

from harness import Case


class Determinism(Case):
    AUGMENT = ("data.flip=true", "data.crop_padding=2", "train.steps=12")

    def same(self, a, b):
        self.assertEqual(a.losses(), b.losses())
        first, second = a.weights(), b.weights()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])

    def test_repeats_bit_for_bit(self):
        for ranks, model in ((1, "small_cnn"), (2, "small_cnn"), (3, "small_cnn"), (2, "mobilenet_v2")):
            extra = (f"model.name={model}", "data.batch=8", *self.AUGMENT)
            self.same(self.train(ranks, *extra), self.train(ranks, *extra))

    def test_workers_prefetch_and_progress_do_not_matter(self):
        base = self.train(2, *self.AUGMENT)
        for words in (["data.workers=0"], ["data.workers=4", "data.prefetch=7"], ["comm.progress=thread"],
                      ["comm.progress=inline"], ["parallel.bucket_mb=0.05"]):
            self.same(base, self.train(2, *self.AUGMENT, *words))
        three = self.train(3, *self.AUGMENT, "comm.progress=inline")
        self.same(three, self.train(3, *self.AUGMENT, "comm.progress=thread", "parallel.bucket_mb=0.05"))

    def test_seed_matters(self):
        seven, eight = self.train(1, "train.steps=3"), self.train(1, "train.steps=3", "seed=8")
        self.assertNotEqual(seven.losses(), eight.losses())
        drawn = self.train(2, "train.steps=3", "seed=-1")
        self.assertRegex(drawn.process.stderr, r"seed \d+ \(drawn")
        self.same(drawn, self.train(2, config=drawn.directory / "config.yaml"))

    def test_dropout_repeats_and_differs_between_ranks(self):
        words = ("model.name=vgg11", "data.resize=32", "data.batch=2", "train.steps=3", "train.eval_every=-1")
        self.same(self.train(2, *words), self.train(2, *words))


if __name__ == "__main__":
    unittest.main()
