#pragma once

#include <string>
#include <vector>

namespace lockstep::config {

/// A key that a component declared.
struct KnownKey {
  std::string path;
  bool is_section = false;
};

/// What to say after "unknown key" about `key` in the section `prefix`: " (did you mean 'lr'?)", "; it
/// belongs to optim: write optim.lr", or the keys that there are.
std::string hint_for_unknown(const std::string& prefix, const std::string& key,
                             const std::vector<KnownKey>& known);

}  // namespace lockstep::config
