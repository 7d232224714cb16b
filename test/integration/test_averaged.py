"""AdamW, averaged weights and label smoothing give one result on any number of ranks."""
import unittest

import numpy as np

from harness import Case, largest_difference


class Averaged(Case):
    def test_adamw_ema_and_smoothing_on_ranks(self):
        common = ("precision=fp64", "train.steps=10", "data.batch=0", "data.global_batch=12", "optim.name=adamw",
                  "optim.lr=0.001", "optim.ema=0.9", "train.label_smoothing=0.1", "optim.decay_norms_and_biases=false",
                  "train.eval_every=5")
        one, two = self.train(1, *common), self.train(2, *common)
        np.testing.assert_allclose(two.losses(), one.losses(), rtol=0, atol=1e-9)
        self.assertLess(largest_difference(two.weights(), one.weights()), 1e-8)
        np.testing.assert_allclose([e["loss"] for e in two.evals], [e["loss"] for e in one.evals], rtol=0, atol=1e-8)


if __name__ == "__main__":
    unittest.main()
