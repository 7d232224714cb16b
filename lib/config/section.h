#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::config {

/// Where a bound value lives. A single scalar is accepted for a list of one. A given list or map replaces the
/// default.
using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*,
                            std::vector<double>*, std::vector<int64_t>*, std::map<std::string, std::string>*>;

class Document;
class Visitor;  // reads, writes or documents; see visitor.h

struct VisitorDeleter {
  void operator()(Visitor* visitor) const;
};
using VisitorHandle = std::unique_ptr<Visitor, VisitorDeleter>;

/// A declared key; constrains it further. Violations are collected, not thrown, so that a user sees all of
/// them at once. Constraints hold for what a user gives (for every element of a list), not for defaults;
/// still, let a default satisfy them, because the resolved configuration that to_yaml() writes gives every
/// key and must be readable.
class Field {
 public:
  Field& one_of(std::vector<std::string> names);
  Field& at_least(double least);
  Field& above(double bound);
  Field& at_most(double most);
  Field& below(double bound);
  Field& required();   ///< must be given
  bool given() const;  ///< the user wrote it (false when writing or documenting)

 private:
  friend class Section;
  Field(Visitor& visitor, std::string path, Target target)
      : visitor_(&visitor), path_(std::move(path)), target_(target) {}
  Visitor* visitor_;
  std::string path_;
  Target target_;
};

/// A mapping of a configuration. A component declares its keys once in `void bind(config::Section&,
/// ItsConfig&)`; that one declaration reads YAML into the struct, writes it back as resolved YAML, and makes
/// the reference for --help. The struct's initial values are the defaults. A number must be finite, unless
/// its default is infinite.
class Section {
 public:
  /// Declares a key, once. `doc`: what it means, with its unit, for --help.
  Field field(const std::string& key, Target target, const std::string& doc);

  /// Declares a nested mapping, bound by the component's own bind().
  template <class Config>
  void section(const std::string& key, Config& config, const std::string& doc) {
    Section inner = enter(key, doc);
    bind(inner, config);
    inner.leave();
  }

  /// Notes that a combination of values cannot be, at the position of `key` ("" for the section itself). Only
  /// acts when reading.
  void problem(const std::string& key, const std::string& text);

  /// The user wrote this key. A resolved configuration gives every key, so tell "not both" by values, not by
  /// given().
  bool given(const std::string& key) const;

 private:
  template <class C>
  friend void read(const Document&, C&);
  template <class C>
  friend std::string to_yaml(C);
  template <class C>
  friend std::string reference();
  Section(Visitor& visitor, std::string path) : visitor_(&visitor), path_(std::move(path)) {}
  Section enter(const std::string& key, const std::string& doc);
  void leave();
  std::string path_of(const std::string& key) const;
  Visitor* visitor_;
  std::string path_;
};

/// A parsed YAML file with positions, and overrides from the command line on top. An empty file is an empty
/// mapping.
class Document {
 public:
  /// `overrides`: "a.b=value" words; the value is YAML ("[1, 2]", "1e-3", "true"). A later override of a key
  /// wins over an earlier one. Throws UsageError with file:line for text that is not YAML or not a mapping, a
  /// key given twice, or an override that is not key=value.
  static Document load(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});
  static Document parse(const std::string& text, const std::string& name,
                        const std::vector<std::string>& overrides = {});

  ~Document();
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;

  struct Data;  // the parsed tree; see document.h

 private:
  friend VisitorHandle start_reading(const Document& document);
  explicit Document(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

/// Makers of the three visitors; `finish_reading` throws one UsageError that lists every problem: unknown
/// keys (with the nearest valid one, and where a key of that name is valid elsewhere, its full path), wrong
/// types, violated bounds, each as "file:line: path: what is wrong, what was expected" (for an override:
/// "command line: …"). The document must outlive its visitor.
VisitorHandle start_reading(const Document& document);
void finish_reading(Visitor& visitor);
VisitorHandle start_writing();
std::string finish_writing(Visitor& visitor);
VisitorHandle start_documenting();
std::string finish_documenting(Visitor& visitor);

/// Reads `document` into `config` through its bind(). Throws UsageError as above; `config` is then partly
/// filled.
template <class C>
void read(const Document& document, C& config) {
  VisitorHandle visitor = start_reading(document);
  Section root(*visitor, "");
  bind(root, config);
  root.leave();
  finish_reading(*visitor);
}

/// The configuration as YAML that reads back to the same values (doubles round-trip).
template <class C>
std::string to_yaml(C config) {
  VisitorHandle visitor = start_writing();
  Section root(*visitor, "");
  bind(root, config);
  root.leave();
  return finish_writing(*visitor);
}

/// Every key with its type, default, allowed values and meaning, as text for a terminal of 100 columns.
template <class C>
std::string reference() {
  VisitorHandle visitor = start_documenting();
  C config{};
  Section root(*visitor, "");
  bind(root, config);
  root.leave();
  return finish_documenting(*visitor);
}

}  // namespace lockstep::config
