#include "lockstep/config/document.h"

#include "lockstep/core/error.h"
#include "lockstep/core/files.h"

namespace lockstep::config {
namespace {

const std::string command_line = "command line";

// `map` with the value at `rest` replaced, where `path` is the whole override. Copies the maps on the way,
// because aliases may share them.
NodePtr with_value(const Document::Data& data, const Node& map, std::string_view rest,
                   const std::string& path, NodePtr value) {
  auto copy = std::make_shared<Node>(map);
  const size_t dot = rest.find('.');
  const std::string key(rest.substr(0, dot));
  Entry* entry = nullptr;
  for (Entry& candidate : copy->entries) {
    if (candidate.key == key) entry = &candidate;
  }
  if (entry == nullptr) {
    auto empty = std::make_shared<Node>();
    empty->kind = Node::Kind::map;
    entry = &copy->entries.emplace_back(Entry{key, 0, std::move(empty)});
  }
  if (dot == std::string_view::npos) {
    entry->value = std::move(value);
    entry->line = 0;
    return copy;
  }
  if (entry->value->kind != Node::Kind::map) {
    refuse("{}: {}: '{}' is not a mapping but a value, set by {}", command_line, path,
           path.substr(0, path.size() - rest.size() + dot), data.position(entry->line));
  }
  entry->value = with_value(data, *entry->value, rest.substr(dot + 1), path, std::move(value));
  return copy;
}

void apply_override(Document::Data& data, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) {
    refuse("{}: '{}': expected key=value, for instance optim.lr=0.1", command_line, word);
  }
  const std::string path = word.substr(0, equals);
  if (path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos) {
    refuse("{}: '{}': '{}' is not a key; write names joined by single dots", command_line, word, path);
  }
  NodePtr value = parse_yaml(word.substr(equals + 1), fmt::format("{}: {}", command_line, path), true);
  if (value == nullptr) value = std::make_shared<Node>();
  data.root = with_value(data, *data.root, path, path, std::move(value));
}

}  // namespace

Document::Document(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Document::~Document() = default;
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;

Document Document::load(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error& error) {
    throw UsageError(error.what());  // a wrong file name is the user's mistake, not a failure of the run
  }
  return parse(text, file.string(), overrides);
}

Document Document::parse(const std::string& text, const std::string& name,
                         const std::vector<std::string>& overrides) {
  auto data = std::make_unique<Data>();
  data->name = name;
  data->root = parse_yaml(text, name, false);
  if (data->root == nullptr || data->root->kind == Node::Kind::null) {
    auto empty = std::make_shared<Node>();
    empty->kind = Node::Kind::map;
    empty->line = -1;
    data->root = std::move(empty);
  }
  if (data->root->kind != Node::Kind::map) {
    refuse(
        "{}: expected a mapping of keys to values, got {}", data->position(data->root->line),
        data->root->kind == Node::Kind::list ? "a list" : fmt::format("the text '{:.40}'", data->root->text));
  }
  for (const auto& word : overrides) apply_override(*data, word);
  return Document(std::move(data));
}

const Entry* Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const Entry* Document::Data::find(std::string_view path) const {
  const Node* node = root.get();
  while (true) {
    const size_t dot = path.find('.');
    const Entry* entry = node->find(path.substr(0, dot));
    if (entry == nullptr || dot == std::string_view::npos) return entry;
    node = entry->value.get();
    path.remove_prefix(dot + 1);
  }
}

std::string Document::Data::position(int line) const {
  if (line == 0) return command_line;
  return line < 0 ? name : fmt::format("{}:{}", name, line);
}

std::string_view parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace lockstep::config
