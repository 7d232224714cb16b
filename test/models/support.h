#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/models/model.h"

namespace lockstep::test {

inline const ModelRegistry& vision_models() {
  static const ModelRegistry all = [] {
    ModelRegistry made("model");
    register_vision_models(made);
    return made;
  }();
  return all;
}

/// A model of that name whose initial values come from `seed`.
inline std::shared_ptr<Model> build(const std::string& name, const ModelShape& shape, ModelConfig config = {},
                                    uint64_t seed = 1) {
  config.name = name;
  torch::manual_seed(seed);
  return vision_models().get(name)(config, shape);
}

/// What `action` is refused with; "" where it is not.
template <class Refusal = Error>
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Refusal& error) {
    return error.what();
  }
  return "";
}

/// All of `parts` occur in `text`.
inline bool says(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos) return false;
  }
  return true;
}

}  // namespace lockstep::test
