#include "lockstep/cli/classification_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? nan : static_cast<double>(part) / static_cast<double>(whole);
}

std::string cell(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4f}", value); }

nlohmann::json number(double value) { return std::isnan(value) ? nlohmann::json() : nlohmann::json(value); }

}  // namespace

ClassificationReport::ClassificationReport(int64_t classes, std::vector<std::string> names)
    : classes_(classes), names_(std::move(names)), counts_(static_cast<size_t>(classes * classes)) {}

double ClassificationReport::accuracy() const {
  int64_t correct = 0;
  for (int64_t c = 0; c < classes_; ++c) correct += count(c, c);
  return ratio(correct, std::accumulate(counts_.begin(), counts_.end(), int64_t{0}));
}

int64_t ClassificationReport::samples_of(int64_t c) const {
  int64_t sum = 0;
  for (int64_t p = 0; p < classes_; ++p) sum += count(c, p);
  return sum;
}

double ClassificationReport::recall(int64_t c) const { return ratio(count(c, c), samples_of(c)); }

double ClassificationReport::precision(int64_t c) const {
  int64_t called = 0;
  for (int64_t t = 0; t < classes_; ++t) called += count(t, c);
  return ratio(count(c, c), called);
}

double ClassificationReport::f1(int64_t c) const {
  const double p = precision(c), r = recall(c);
  if (std::isnan(p) || std::isnan(r)) return nan;
  return p + r == 0 ? 0 : 2 * p * r / (p + r);
}

std::string ClassificationReport::name(int64_t c) const {
  return static_cast<size_t>(c) < names_.size() ? names_[static_cast<size_t>(c)] : std::to_string(c);
}

std::string ClassificationReport::class_table() const {
  size_t width = 5;
  for (int64_t c = 0; c < classes_; ++c) width = std::max(width, name(c).size());
  std::string out = fmt::format("{:<{}}  {:>8}  {:>9}  {:>7}  {:>7}  most confused with\n", "class", width, "samples",
                                "precision", "recall", "F1");
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t worst = -1;
    for (int64_t p = 0; p < classes_; ++p) {
      if (p != c && count(c, p) > 0 && (worst < 0 || count(c, p) > count(c, worst))) worst = p;
    }
    out += fmt::format("{:<{}}  {:>8}  {:>9}  {:>7}  {:>7}  {}\n", name(c), width, samples_of(c), cell(precision(c)),
                       cell(recall(c)), cell(f1(c)),
                       worst < 0 ? "" : fmt::format("{} ({})", name(worst), count(c, worst)));
  }
  return out;
}

std::string ClassificationReport::confusion_table() const {
  size_t width = 5, column = 4;
  for (int64_t c = 0; c < classes_; ++c) width = std::max(width, name(c).size());
  for (int64_t value : counts_) column = std::max(column, std::to_string(value).size());
  std::string out = fmt::format("{:<{}}", "true \\ predicted", width + 5);
  for (int64_t p = 0; p < classes_; ++p) out += fmt::format(" {:>{}}", p, column);
  out += "\n";
  for (int64_t t = 0; t < classes_; ++t) {
    out += fmt::format("{:>4} {:<{}}", t, name(t), std::max(width, size_t{11}));
    for (int64_t p = 0; p < classes_; ++p) out += fmt::format(" {:>{}}", count(t, p), column);
    out += "\n";
  }
  return out;
}

nlohmann::json ClassificationReport::to_json() const {
  nlohmann::json rows = nlohmann::json::array(), classes = nlohmann::json::array();
  for (int64_t t = 0; t < classes_; ++t) {
    nlohmann::json row = nlohmann::json::array();
    for (int64_t p = 0; p < classes_; ++p) row.push_back(count(t, p));
    rows.push_back(row);
    classes.push_back({{"name", name(t)},
                       {"samples", samples_of(t)},
                       {"precision", number(precision(t))},
                       {"recall", number(recall(t))},
                       {"f1", number(f1(t))}});
  }
  return {{"accuracy", number(accuracy())}, {"classes", classes}, {"confusion", rows}};
}

}  // namespace lockstep
