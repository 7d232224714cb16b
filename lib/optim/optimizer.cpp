#include "lockstep/optim/optimizer.h"

#include "lockstep/core/error.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep {

void bind(config::Section& section, OptimConfig& config) {
  section.field("name", &config.name, "optimizer").one_of({"sgd", "adamw"});
  section.field("lr", &config.lr, "learning rate that the schedule's factor multiplies").at_least(0);
  section.field("momentum", &config.momentum, "sgd: momentum; 0 for none").at_least(0).below(1);
  section.field("nesterov", &config.nesterov, "sgd: Nesterov momentum");
  section.field("beta1", &config.beta1, "adamw: decay of the mean of gradients").at_least(0).below(1);
  section.field("beta2", &config.beta2, "adamw: decay of the mean of squared gradients").at_least(0).below(1);
  section.field("eps", &config.eps, "adamw: added to the denominator").above(0);
  section.field("weight_decay", &config.weight_decay, "weight decay (sgd: L2 term, adamw: decoupled)")
      .at_least(0);
  section.field("decay_norms_and_biases", &config.decay_norms_and_biases,
                "false: parameters with at most one dimension are not decayed");
  section.field("ema", &config.ema, "decay of the averaged weights used for evaluation; 0: off")
      .at_least(0)
      .below(1);
  if (config.name == "sgd" && config.nesterov && config.momentum == 0) {
    section.problem("nesterov", "Nesterov needs a momentum above 0");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config,
                                          const std::vector<NamedTensor>& parameters) {
  if (config.name == "sgd") return std::make_unique<Sgd>(config, parameters);
  if (config.name == "adamw") return std::make_unique<AdamW>(config, parameters);
  refuse("unknown optimizer '{}'; there are: sgd, adamw", config.name);
}

}  // namespace lockstep
