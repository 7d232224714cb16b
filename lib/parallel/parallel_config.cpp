#include "lockstep/parallel/strategy.h"

namespace lockstep {

void bind(config::Section& section, ParallelConfig& config) {
  section.field("strategy", &config.strategy,
                "auto (ddp on several ranks, else single), single, ddp or a registered one");
  section.field("bucket_mb", &config.bucket_mb, "ddp: MiB of gradients exchanged at a time").above(0);
  section.field("first_bucket_mb", &config.first_bucket_mb, "ddp: MiB of the bucket that is ready first")
      .above(0);
  section.field("find_unused", &config.find_unused,
                "ddp: allow parameters that a step does not use; costs a search a step");
  section.field("static_graph", &config.static_graph,
                "ddp: the same parameters are used in the same order every step");
  section.field("broadcast_buffers", &config.broadcast_buffers,
                "ddp: rank 0's buffers (batch-norm statistics) to all ranks before each step");
}

}  // namespace lockstep
