#pragma once

#include <string>

#include "lockstep/models/weights.h"

namespace lockstep {

/// Loads a safetensors file into a model and logs what was done. Throws Error naming the file; see load_weights().
LoadReport load_weights_file(Model& model, const std::string& path);

}  // namespace lockstep
