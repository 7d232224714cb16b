#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/single.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep {
namespace {

std::unique_ptr<Strategy> make_single(const StrategyContext& context) {
  return std::make_unique<SingleStrategy>(context);
}

std::unique_ptr<Strategy> make_ddp(const StrategyContext& context) {
  return std::make_unique<DdpStrategy>(context);
}

}  // namespace

void register_strategies(StrategyRegistry& registry) {
  registry.add("single", make_single, "one rank");
  registry.add("ddp", make_ddp, "every rank holds the model; gradients are averaged while backward goes on");
  registry.add(
      "auto",
      [](const StrategyContext& context) {
        return context.world.size() > 1 ? make_ddp(context) : make_single(context);
      },
      "ddp on several ranks, else single");
}

}  // namespace lockstep
