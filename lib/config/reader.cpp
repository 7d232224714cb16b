#include <algorithm>
#include <climits>

#include "lockstep/config/document.h"
#include "lockstep/config/hints.h"
#include "lockstep/config/scalars.h"
#include "lockstep/config/visitor.h"
#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep::config {
namespace {

class Reader : public Visitor {
 public:
  explicit Reader(const Document::Data& data) : data_(data) {}

  void enter(const std::string& path, const std::string&) override {
    keys_.push_back({path, true});
    const Entry* entry = data_.find(path);
    if (entry == nullptr || entry->value->kind == Node::Kind::map) return;
    if (entry->value->kind == Node::Kind::null) {
      complain(path, entry->line,
               "has no value, expected a mapping of keys (leave the key out for the defaults)");
    } else {
      complain(path, entry->line, "expected a mapping of keys, got a single value or a list");
    }
  }

  void field(const std::string& path, const Target& target, const std::string&) override {
    keys_.push_back({path, false});
    readable_ = false;
    const Entry* entry = data_.find(path);
    if (entry == nullptr) return;
    readable_ =
        assign(*entry->value, target, [&](const std::string& element, int line, const std::string& text) {
          complain(path + element, element.empty() ? entry->line : line, text);
        });
  }

  void one_of(const std::string& path, const Target& target, const std::vector<std::string>& names) override {
    if (!readable_) return;
    check_each(path, target, [&](const auto& value) -> std::string {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
        if (std::find(names.begin(), names.end(), value) != names.end()) return "";
        return fmt::format("expected one of {}, got '{}'{}", join(names), value, did_you_mean(value, names));
      } else {
        return "";
      }
    });
  }

  void bound(const std::string& path, const Target& target, Bound kind, double limit) override {
    if (!readable_) return;
    check_each(path, target, [&](const auto& value) -> std::string {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
        const auto number = static_cast<double>(value);
        const bool good = kind == Bound::at_least  ? number >= limit
                          : kind == Bound::above   ? number > limit
                          : kind == Bound::at_most ? number <= limit
                                                   : number < limit;
        return good ? "" : fmt::format("must be {}, got {}", describe(kind, limit), value);
      } else {
        return "";
      }
    });
  }

  void required(const std::string& path) override {
    if (given(path)) return;
    const Entry* parent = data_.find(parent_of(path));
    complain(path, parent == nullptr ? -1 : parent->line, "must be given");
  }

  void problem(const std::string& path, const std::string& text) override {
    // At the nearest key that the user wrote.
    std::string_view at = path;
    const Entry* entry = data_.find(at);
    while (entry == nullptr && !at.empty()) {
      at = parent_of(at);
      entry = data_.find(at);
    }
    complain(path, entry == nullptr ? -1 : entry->line, text);
  }

  bool given(const std::string& path) const override { return data_.find(path) != nullptr; }

  std::string finish() override {
    find_unknown("", *data_.root);
    if (problems_.empty()) return "";
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const Problem& a, const Problem& b) { return a.order() < b.order(); });
    std::vector<std::string> lines;
    for (const Problem& problem : problems_) lines.push_back(problem.text);
    if (lines.size() == 1) throw UsageError(lines[0]);
    refuse("{} problems in the configuration:\n  {}", lines.size(), join(lines, "\n  "));
  }

 private:
  struct Problem {
    int line;
    std::string text;
    int order() const { return line == 0 ? INT_MAX : line; }  // the command line last, as it was applied last
  };

  void complain(const std::string& path, int line, const std::string& text) {
    const std::string colon = path.empty() ? "" : ": ";
    problems_.push_back({line, fmt::format("{}: {}{}{}", data_.position(line), path, colon, text)});
  }

  // Complains where `check(value)` of a scalar, or of an element of a list, is not empty.
  template <class Check>
  void check_each(const std::string& path, const Target& target, const Check& check) {
    const Entry* entry = data_.find(path);
    std::visit(
        [&](const auto* values) {
          using Held = std::decay_t<decltype(*values)>;
          if constexpr (std::is_same_v<Held, std::vector<std::string>> ||
                        std::is_same_v<Held, std::vector<double>> ||
                        std::is_same_v<Held, std::vector<int64_t>>) {
            for (size_t i = 0; i < values->size(); ++i) {
              const std::string text = check((*values)[i]);
              if (!text.empty()) complain(fmt::format("{}[{}]", path, i), line_of_item(*entry, i), text);
            }
          } else {
            const std::string text = check(*values);
            if (!text.empty()) complain(path, entry->line, text);
          }
        },
        target);
  }

  static int line_of_item(const Entry& entry, size_t i) {
    return i < entry.value->items.size() ? entry.value->items[i]->line : entry.line;
  }

  // All keys in the file that no component declared.
  void find_unknown(const std::string& prefix, const Node& map) {
    for (const Entry& entry : map.entries) {
      const std::string path = prefix.empty() ? entry.key : prefix + "." + entry.key;
      // A key with a dot in the file has the path of another one, but is not it.
      const bool dotted = entry.key.find('.') != std::string::npos;
      auto known =
          std::find_if(keys_.begin(), keys_.end(), [&](const KnownKey& key) { return key.path == path; });
      if (dotted || known == keys_.end()) {
        complain(path, entry.line, "unknown key" + hint_for_unknown(prefix, entry.key, keys_));
      } else if (known->is_section && entry.value->kind == Node::Kind::map) {
        find_unknown(path, *entry.value);
      }
    }
  }

  const Document::Data& data_;
  std::vector<KnownKey> keys_;
  bool readable_ = false;  // the field declared last was given and has the right type
  std::vector<Problem> problems_;
};

}  // namespace

VisitorHandle start_reading(const Document& document) { return VisitorHandle(new Reader(*document.data_)); }

}  // namespace lockstep::config
