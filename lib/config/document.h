#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/section.h"

namespace lockstep::config {

struct Node;
/// Shared, so that YAML aliases cost nothing however they nest; never changed once a document is built.
using NodePtr = std::shared_ptr<const Node>;

/// A key of a mapping with its value. `line` counts from 1; 0 is the command line.
struct Entry {
  std::string key;
  int line = 0;
  NodePtr value;
};

/// A YAML value.
struct Node {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;
  std::string text;            ///< of a scalar
  bool quoted = false;         ///< a scalar that is text whatever it looks like
  std::vector<NodePtr> items;  ///< of a list
  std::vector<Entry> entries;  ///< of a map, in the order written
  const Entry* find(std::string_view key) const;
};

struct Document::Data {
  std::string name;  ///< of the file
  NodePtr root;      ///< a map

  /// The entry at a dotted path, or null.
  const Entry* find(std::string_view path) const;
  /// "file:12", "file" for line < 0, "command line" for line 0.
  std::string position(int line) const;
};

/// "optim" of "optim.lr", "" of "lr".
std::string_view parent_of(std::string_view path);
/// "lr" of "optim.lr".
std::string_view leaf_of(std::string_view path);

/// Reads YAML text (yaml_tree.cpp). `name` is for messages; with `from_command_line` all lines are 0.
/// Returns null for an empty text. Throws UsageError.
NodePtr parse_yaml(const std::string& text, const std::string& name, bool from_command_line);

}  // namespace lockstep::config
