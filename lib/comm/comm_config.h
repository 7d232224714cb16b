#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/section.h"

namespace lockstep {

/// `comm:` in a configuration.
struct CommConfig {
  std::string progress = "auto";  ///< auto, inline or thread: where CPU collectives run
  double timeout_s = 600;  ///< a collective that takes longer ends the job, naming the ranks that are missing
  double warn_s = 60;      ///< one that takes longer is warned of
};
void bind(config::Section& section, CommConfig& config);

}  // namespace lockstep
