#include "lockstep/comm/comm_config.h"

namespace lockstep {

void bind(config::Section& section, CommConfig& config) {
  section
      .field("progress", &config.progress,
             "where CPU collectives run: inline (in the calling thread), thread (a progress thread), or auto "
             "(the faster)")
      .one_of({"auto", "inline", "thread"});
  section
      .field("timeout_s", &config.timeout_s,
             "seconds after which a collective ends the job, naming the missing ranks")
      .above(0);
  section.field("warn_s", &config.warn_s, "seconds after which a collective that still waits is warned of")
      .above(0);
}

}  // namespace lockstep
