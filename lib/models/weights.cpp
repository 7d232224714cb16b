#include "lockstep/models/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// Parameters and buffers by name.
std::map<std::string, at::Tensor> targets_of(Model& model) {
  std::map<std::string, at::Tensor> targets;
  for (const auto& item : model.named_parameters()) targets.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) targets.emplace(item.key(), item.value());
  return targets;
}

bool may_be_missing(const std::string& name) { return name.ends_with("num_batches_tracked"); }

/// Only the number of classes, the first dimension, differs.
bool differs_in_classes(const at::Tensor& have, const at::Tensor& want) {
  return have.dim() == want.dim() && have.dim() >= 1 && have.sizes().slice(1) == want.sizes().slice(1);
}

std::string remedy(const std::string& name, const at::Tensor& have, const at::Tensor& want) {
  if (have.dim() == 4 && want.dim() == 4 && have.size(0) == want.size(0) && have.size(1) != want.size(1) &&
      (want.size(1) == 1 || want.size(1) == 3)) {
    return fmt::format(
        ": these weights look at {}-channel images, the data have {}; convert the images to {} channels, "
        "or start from random weights (model.weights: \"\")",
        have.size(1), want.size(1), have.size(1));
  }
  if (name.ends_with("pos_embedding")) {
    return ": positions depend on the image and patch size; set data.resize and model.options.patch_size to "
           "those of the weights";
  }
  return "";
}

/// "module." where every unexpected name is an expected one behind that prefix, as wrappers write them; else
/// "".
std::string common_prefix(const std::vector<std::string>& unexpected,
                          const std::vector<std::string>& missing) {
  if (unexpected.empty() || missing.empty()) return "";
  const auto& name = unexpected.front();
  std::set<std::string> wanted(missing.begin(), missing.end());
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    auto prefix = name.substr(0, dot + 1);
    bool all = std::all_of(unexpected.begin(), unexpected.end(), [&](const std::string& other) {
      if (!other.starts_with(prefix)) return false;
      auto rest = other.substr(prefix.size());
      return wanted.contains(rest) || may_be_missing(rest);
    });
    if (all) return prefix;
  }
  return "";
}

/// The lines of one kind of problem; many alike are cut short.
void append_list(std::string& text, const std::string& title, const std::vector<std::string>& lines) {
  constexpr size_t most = 12;
  if (lines.empty()) return;
  text += fmt::format("\n  {} ({}):", title, lines.size());
  for (size_t i = 0; i < std::min(most, lines.size()); ++i) text += "\n    " + lines[i];
  if (lines.size() > most) text += fmt::format("\n    … and {} more", lines.size() - most);
}

class Comparison {
 public:
  Comparison(Model& model, const WeightSource& source) : head_(model.head()), targets_(targets_of(model)) {
    std::vector<std::string> free;  // expected names that the source does not use, for suggestions
    std::set<std::string> given(source.names.begin(), source.names.end());
    for (const auto& [name, target] : targets_) {
      if (!given.contains(name)) free.push_back(name);
    }
    for (const auto& name : given) {
      auto found = targets_.find(name);
      if (found == targets_.end()) {
        unexpected_.push_back(name);
        suggestions_.push_back(name + did_you_mean(name, free));
      } else {
        compare(name, source.tensor(name), found->second);
      }
    }
    for (const auto& name : free) {
      if (!may_be_missing(name)) missing_.push_back(name);
    }
  }

  void throw_where_wrong(const std::string& origin) const {
    if (missing_.empty() && unexpected_.empty() && misshapen_.empty()) return;
    std::string text = fmt::format("{}: these weights are not of this model", origin);
    append_list(text, "missing", missing_);
    append_list(text, "unexpected", suggestions_);
    append_list(text, "other shape", misshapen_);
    if (auto prefix = common_prefix(unexpected_, missing_); !prefix.empty()) {
      text +=
          fmt::format("\n  every unexpected name is an expected one behind '{}': remove that prefix", prefix);
    }
    throw Error(text);
  }

  bool head_differs() const { return file_classes_ != 0; }

  LoadReport copy(const WeightSource& source) const {
    at::NoGradGuard no_grad;
    LoadReport report;
    report.file_classes = file_classes_;
    std::set<std::string> given(source.names.begin(), source.names.end());
    for (const auto& [name, target] : targets_) {
      if (head_differs() && name.starts_with(head_)) {
        report.fresh.push_back(name);
        continue;
      }
      if (!given.contains(name)) continue;  // num_batches_tracked alone
      auto tensor = source.tensor(name);
      if (tensor.scalar_type() != target.scalar_type()) report.converted.push_back(name);
      at::Tensor(target).copy_(tensor);
      ++report.tensors;
      report.values += target.numel();
    }
    return report;
  }

 private:
  void compare(const std::string& name, const at::Tensor& have, const at::Tensor& want) {
    if (have.is_floating_point() != want.is_floating_point()) {
      misshapen_.push_back(fmt::format("{}: holds {}, the model {}", name, c10::toString(have.scalar_type()),
                                       c10::toString(want.scalar_type())));
    } else if (have.sizes() != want.sizes()) {
      if (name.starts_with(head_) && differs_in_classes(have, want)) {
        file_classes_ = have.size(0);
      } else {
        misshapen_.push_back(fmt::format("{}: {} there, {} in the model{}", name, shape_text(have),
                                         shape_text(want), remedy(name, have, want)));
      }
    }
  }

  std::string head_;
  std::map<std::string, at::Tensor> targets_;
  std::vector<std::string> missing_, unexpected_, suggestions_, misshapen_;
  int64_t file_classes_ = 0;
};

}  // namespace

std::string LoadReport::text(const std::string& origin) const {
  auto said = fmt::format("{}: {} tensors, {} values loaded", origin, tensors, values);
  if (!converted.empty()) said += fmt::format(", {} converted to the model's type", converted.size());
  if (!fresh.empty()) {
    said += fmt::format("; the weights know {} classes, so the classifier ({}) starts anew", file_classes,
                        join(fresh));
  }
  return said;
}

LoadReport load_weights(Model& model, const WeightSource& source) {
  Comparison comparison(model, source);
  comparison.throw_where_wrong(source.origin);
  return comparison.copy(source);
}

FreezeReport apply_freeze(Model& model, const std::vector<std::string>& prefixes) {
  auto parameters = model.named_parameters();
  auto names = parameters.keys();
  auto head = model.head();
  for (const auto& prefix : prefixes) {
    bool all_but_head = prefix == "*";
    bool matched = false;
    for (auto& item : parameters) {
      if (all_but_head ? item.key().starts_with(head) : !item.key().starts_with(prefix)) continue;
      item.value().set_requires_grad(false);
      matched = true;
    }
    if (!matched) {
      // Suggest modules as well as parameters: prefixes are mostly written as "layer1.".
      std::set<std::string> known(names.begin(), names.end());
      for (const auto& name : names) {
        for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
          known.insert(name.substr(0, dot));
          known.insert(name.substr(0, dot + 1));
        }
      }
      auto hint = did_you_mean(prefix, {known.begin(), known.end()});
      refuse("model.freeze: no parameter's name starts with '{}'{}; names look like {}", prefix, hint,
             join({names.begin(),
                   names.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(4, names.size()))}));
    }
  }
  FreezeReport report;
  for (const auto& item : parameters) {
    if (item.value().requires_grad()) {
      ++report.trainable;
      report.trainable_values += item.value().numel();
    } else {
      ++report.frozen;
    }
  }
  if (report.trainable == 0) {
    refuse("model.freeze: {} leaves no parameter to train", join(prefixes));
  }
  return report;
}

}  // namespace lockstep
