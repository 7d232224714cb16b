#include <fmt/format.h>

#include <algorithm>

#include "lockstep/config/scalars.h"
#include "lockstep/config/visitor.h"
#include "lockstep/core/nearest.h"

namespace lockstep::config {
namespace {

constexpr size_t columns = 100;

// Letters, not bytes, of UTF-8.
size_t width(std::string_view text) {
  size_t n = 0;
  for (char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

// Breaks `text` at spaces; each line starts with `indent` spaces, the first with `first`.
std::string wrap(const std::string& first, const std::string& text, size_t indent) {
  std::string out, line = first;
  bool has_word = width(first) > indent;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (has_word && width(line) + 1 + width(word) > columns) {
      out += line + "\n";
      line = std::string(indent, ' ');
      has_word = false;
    }
    line += (has_word ? " " : "") + word;
    has_word = true;
  }
  return out + line + "\n";
}

std::string shown(bool value) { return value ? "true" : "false"; }
std::string shown(int64_t value) { return fmt::format("{}", value); }
std::string shown(double value) { return number_text(value); }
std::string shown(const std::string& value) { return value.empty() ? "\"\"" : value; }
template <class Element>
std::string shown(const std::vector<Element>& list) {
  std::vector<std::string> words;
  for (const Element& element : list) words.push_back(shown(element));
  return "[" + join(words) + "]";
}
std::string shown(const std::map<std::string, std::string>& map) {
  std::vector<std::string> words;
  for (const auto& [key, value] : map) words.push_back(key + ": " + shown(value));
  return "{" + join(words) + "}";
}

class Documenter : public Visitor {
 public:
  void enter(const std::string& path, const std::string& doc) override {
    flush();
    out_ += (out_.empty() ? "" : "\n") + wrap(path + ":", doc, 2);
    ++depth_;
  }
  void leave() override {
    flush();
    --depth_;
  }

  void field(const std::string& path, const Target& target, const std::string& doc) override {
    flush();
    path_ = path;
    doc_ = doc;
    facts_ = {std::string(type_name(target))};
    default_ = "default " + std::visit([](const auto* value) { return shown(*value); }, target);
  }
  void one_of(const std::string&, const Target&, const std::vector<std::string>& names) override {
    facts_.push_back("one of " + join(names, " | "));
  }
  void bound(const std::string&, const Target&, Bound kind, double limit) override {
    facts_.push_back(describe(kind, limit));
  }
  void required(const std::string&) override { default_ = "required"; }

  std::string finish() override {
    flush();
    return out_;
  }

 private:
  // Writes the field declared last, whose constraints came after it.
  void flush() {
    if (path_.empty()) return;
    const size_t indent = depth_ == 0 ? 0 : 2;
    facts_.push_back(default_);
    out_ += wrap(std::string(indent, ' ') + path_ + "  (" + facts_.front() + (facts_.size() > 1 ? "," : ""),
                 join(std::vector<std::string>(facts_.begin() + 1, facts_.end())) + ")", indent + 6);
    out_ += wrap(std::string(indent + 6, ' '), doc_, indent + 6);
    path_.clear();
  }

  std::string out_;
  int depth_ = 0;
  std::string path_, doc_, default_;
  std::vector<std::string> facts_;
};

}  // namespace

VisitorHandle start_documenting() { return VisitorHandle(new Documenter); }

}  // namespace lockstep::config
