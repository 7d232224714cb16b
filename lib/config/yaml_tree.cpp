// YAML text to a tree of Nodes, by yaml-cpp's events: its own Node drops the positions of keys and accepts
// duplicates.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "lockstep/config/document.h"
#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep::config {
namespace {

const std::string yaml_tag = "tag:yaml.org,2002:";

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string name, bool from_command_line)
      : name_(std::move(name)), overriding_(from_command_line) {}

  NodePtr root() const { return root_; }
  const std::vector<std::string>& problems() const { return problems_; }
  // Of what was read last.
  std::string last_position() const { return at(last_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    place(remember(anchor, make(Node::Kind::null, mark)), mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = make(Node::Kind::scalar, mark);
    node->text = value;
    node->quoted = tag == "!" || tag == yaml_tag + "str";
    if (tag == yaml_tag + "null") node->kind = Node::Kind::null;
    check_tag(tag, {"", "?", "!", "str", "int", "float", "bool", "null"}, mark);
    place(remember(anchor, std::move(node)), mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      problems_.push_back(at(mark) + "an alias refers to the value that contains it");
      place(make(Node::Kind::null, mark), mark);
    } else {
      place(found->second, mark);
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(tag, {"", "?", "!", "seq"}, mark);
    open(Node::Kind::list, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(tag, {"", "?", "!", "map"}, mark);
    open(Node::Kind::map, mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map that is being filled.
  struct Frame {
    std::shared_ptr<Node> node;
    YAML::Mark mark;
    YAML::anchor_t anchor;
    bool has_key;  // of a map: the next value belongs to the last entry
  };

  int line_of(const YAML::Mark& mark) const { return overriding_ ? 0 : mark.line + 1; }
  std::string at(const YAML::Mark& mark) const {
    return overriding_ ? name_ + ": " : fmt::format("{}:{}: ", name_, line_of(mark));
  }

  std::shared_ptr<Node> make(Node::Kind kind, const YAML::Mark& mark) const {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->line = line_of(mark);
    return node;
  }

  NodePtr remember(YAML::anchor_t anchor, NodePtr node) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    return node;
  }

  void check_tag(const std::string& tag, const std::vector<std::string>& known, const YAML::Mark& mark) {
    for (const auto& name : known) {
      if (tag == name || tag == yaml_tag + name) return;
    }
    problems_.push_back(fmt::format("{}the YAML tag '{}' means nothing here", at(mark), tag));
  }

  void open(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    frames_.push_back({make(kind, mark), mark, anchor, false});
  }

  void close() {
    Frame done = std::move(frames_.back());
    frames_.pop_back();
    place(remember(done.anchor, std::move(done.node)), done.mark);
  }

  // Gives a finished node its place: root, list item, key or value.
  void place(NodePtr node, const YAML::Mark& mark) {
    last_ = mark;
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node->kind == Node::Kind::list) {
      frame.node->items.push_back(std::move(node));
    } else if (!frame.has_key) {
      add_key(frame, *node, mark);
      frame.has_key = true;
    } else {
      frame.node->entries.back().value = std::move(node);
      frame.has_key = false;
    }
  }

  void add_key(Frame& frame, const Node& key, const YAML::Mark& mark) {
    if (key.kind != Node::Kind::scalar || key.text.empty()) {
      problems_.push_back(at(mark) + "a key must be a word");
    } else if (const Entry* first = frame.node->find(key.text)) {
      problems_.push_back(fmt::format("{}{}: given twice{}", at(mark), path_of(key.text),
                                      overriding_ ? "" : fmt::format(", first on line {}", first->line)));
    }
    frame.node->entries.push_back({key.text, line_of(mark), nullptr});
  }

  std::string path_of(const std::string& key) const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.has_key) path += frame.node->entries.back().key + ".";
    }
    return path + key;
  }

  YAML::Mark last_;
  std::string name_;
  bool overriding_;
  NodePtr root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, NodePtr> anchors_;
  std::vector<std::string> problems_;
};

}  // namespace

NodePtr parse_yaml(const std::string& text, const std::string& name, bool from_command_line) {
  // yaml-cpp takes a quote that is never closed as closed at the end, and the keys after it for text. The end
  // mark makes it see the fault.
  std::istringstream in(text + "\n...\n");
  TreeBuilder builder(name, from_command_line);
  try {
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) return nullptr;
    TreeBuilder second(name, from_command_line);
    if (parser.HandleNextDocument(second)) {
      refuse("{}: there is text after the end of its YAML document; give one document", name);
    }
  } catch (const YAML::Exception& error) {
    if (error.msg == YAML::ErrorMsg::DOC_IN_SCALAR) {
      refuse("{}not YAML: a quote opened here or later is never closed", builder.last_position());
    }
    const std::string line =
        from_command_line || error.mark.is_null() ? "" : fmt::format(":{}", error.mark.line + 1);
    refuse("{}{}: not YAML: {}", name, line, error.msg);
  }
  if (!builder.problems().empty()) refuse("{}", join(builder.problems(), "\n"));
  return builder.root();
}

}  // namespace lockstep::config
