#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {

/// Named factories of one kind: registry.add("resnet18", factory, "ResNet-18"). Not global: an Application
/// owns its own.
template <class Factory>
class Registry {
 public:
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  /// Adds an entry; a second one with the same name is refused.
  void add(const std::string& name, Factory factory, std::string description) {
    if (!entries_.emplace(name, Entry{std::move(factory), std::move(description)}).second) {
      refuse("{} '{}' is registered twice", kind_, name);
    }
  }

  bool contains(const std::string& name) const { return entries_.contains(name); }

  /// The factory of `name`; an unknown name is a UsageError that lists what there is and the nearest name.
  const Factory& get(const std::string& name) const { return entry(name).factory; }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }
  const std::string& description(const std::string& name) const { return entry(name).description; }

 private:
  struct Entry {
    Factory factory;
    std::string description;
  };
  const Entry& entry(const std::string& name) const {
    auto found = entries_.find(name);
    if (found == entries_.end()) {
      refuse("unknown {} '{}'{}; there are: {}", kind_, name, did_you_mean(name, names()), join(names()));
    }
    return found->second;
  }
  std::string kind_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lockstep
