#include <fmt/format.h>
#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include "lockstep/config/document.h"
#include "lockstep/config/scalars.h"
#include "lockstep/config/visitor.h"

namespace lockstep::config {
namespace {

// Plain where no YAML reader could misunderstand it.
bool may_be_plain(const std::string& text) {
  if (looks_like_another_type(text)) return false;
  const char* letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::string first = fmt::format("{}_/.", letters);
  const std::string rest = fmt::format("{}0123456789-+", first);
  return first.find(text.front()) != std::string::npos && text.find_first_not_of(rest) == std::string::npos;
}

class Writer : public Visitor {
 public:
  Writer() { out_ << YAML::BeginMap; }

  void enter(const std::string& path, const std::string&) override {
    out_ << YAML::Key << std::string(leaf_of(path)) << YAML::Value << YAML::BeginMap;
  }
  void leave() override { out_ << YAML::EndMap; }

  void field(const std::string& path, const Target& target, const std::string&) override {
    out_ << YAML::Key << std::string(leaf_of(path)) << YAML::Value;
    std::visit([this](const auto* value) { write(*value); }, target);
  }

  void one_of(const std::string&, const Target&, const std::vector<std::string>&) override {}
  void bound(const std::string&, const Target&, Bound, double) override {}
  void required(const std::string&) override {}

  std::string finish() override {
    out_ << YAML::EndMap;
    return std::string(out_.c_str(), out_.size()) + "\n";
  }

 private:
  void write(bool value) { out_ << (value ? "true" : "false"); }
  void write(int64_t value) { out_ << fmt::format("{}", value); }
  void write(double value) { out_ << number_text(value); }
  void write(const std::string& value) {
    if (may_be_plain(value)) {
      out_ << value;
    } else {
      out_ << YAML::DoubleQuoted << value;
    }
  }
  template <class Element>
  void write(const std::vector<Element>& list) {
    out_ << YAML::Flow << YAML::BeginSeq;
    for (const Element& element : list) write(element);
    out_ << YAML::EndSeq;
  }
  void write(const std::map<std::string, std::string>& map) {
    out_ << YAML::BeginMap;
    for (const auto& [key, value] : map) {
      out_ << YAML::Key;
      write(key);
      out_ << YAML::Value;
      write(value);
    }
    out_ << YAML::EndMap;
  }

  YAML::Emitter out_;
};

}  // namespace

VisitorHandle start_writing() { return VisitorHandle(new Writer); }

}  // namespace lockstep::config
