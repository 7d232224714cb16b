#include "lockstep/config/hints.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/config/document.h"
#include "lockstep/core/nearest.h"

namespace lockstep::config {
namespace {

// "lr" for "learning_rate": short keys are far from the words they abbreviate.
std::string initials(const std::string& word) {
  std::string letters;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '_' && word[i] != '-' && (i == 0 || word[i - 1] == '_' || word[i - 1] == '-'))
      letters += word[i];
  }
  return letters.size() > 1 ? letters : "";
}

}  // namespace

std::string hint_for_unknown(const std::string& prefix, const std::string& key,
                             const std::vector<KnownKey>& known) {
  std::vector<std::string> here, elsewhere, leaves, paths;
  const std::string short_form = initials(key);
  bool abbreviated_here = false;
  std::string abbreviated_elsewhere;
  for (const KnownKey& candidate : known) {
    const std::string leaf(leaf_of(candidate.path));
    if (parent_of(candidate.path) == prefix) {
      here.push_back(leaf);
      abbreviated_here = abbreviated_here || leaf == short_form;
    } else if (leaf == key) {
      elsewhere.push_back(candidate.path);
    } else if (leaf == short_form && abbreviated_elsewhere.empty()) {
      abbreviated_elsewhere = candidate.path;
    }
    leaves.push_back(leaf);
    paths.push_back(candidate.path);
  }
  if (std::find(paths.begin(), paths.end(), key) != paths.end() && key.find('.') != std::string::npos) {
    return fmt::format("; in a file write '{}:' with '{}' indented under it", parent_of(key), leaf_of(key));
  }
  if (!elsewhere.empty()) return fmt::format(" here; it is valid as {}", join(elsewhere, " and as "));
  if (std::string near = did_you_mean(key, here); !near.empty()) return near;
  if (abbreviated_here) return fmt::format(" (did you mean '{}'?)", short_form);
  if (!abbreviated_elsewhere.empty()) return fmt::format(" (did you mean '{}'?)", abbreviated_elsewhere);
  if (std::string near = nearest_word(key, leaves); !near.empty()) {
    auto at = std::find(leaves.begin(), leaves.end(), near) - leaves.begin();
    return fmt::format(" (did you mean '{}'?)", paths[static_cast<size_t>(at)]);
  }
  if (here.empty()) return "";
  return fmt::format("; {} are: {}",
                     prefix.empty() ? "the keys at the top" : fmt::format("the keys of {}", prefix),
                     join(here));
}

}  // namespace lockstep::config
