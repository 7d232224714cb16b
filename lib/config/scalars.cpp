#include "lockstep/config/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

namespace lockstep::config {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

size_t count_digits(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && std::isdigit(static_cast<unsigned char>(text[n]))) ++n;
  return n;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  return text;
}

// [-+]?[0-9]+
bool is_integer(std::string_view text) {
  text = without_sign(text);
  return !text.empty() && count_digits(text) == text.size();
}

// [-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?, the decimal numbers of YAML 1.2.
bool is_number(std::string_view text) {
  text = without_sign(text);
  const size_t whole = count_digits(text);
  text.remove_prefix(whole);
  size_t fraction = 0;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    fraction = count_digits(text);
    text.remove_prefix(fraction);
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  return (text.front() == 'e' || text.front() == 'E') && is_integer(text.substr(1));
}

bool is_infinity(std::string_view text) { return lower(without_sign(text)) == ".inf"; }
bool is_nan(std::string_view text) { return lower(without_sign(text)) == ".nan"; }

// from_chars takes '-' but not '+', and needs no locale.
template <class Number>
std::from_chars_result convert(std::string_view text, Number& number) {
  if (text.front() == '+') text.remove_prefix(1);
  return std::from_chars(text.data(), text.data() + text.size(), number);
}

// Reads one scalar of a type, or says what is wrong. `was`: the value it replaces.
using Wrong = std::optional<std::string>;

std::string shown(const Node& value) {
  switch (value.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a mapping";
    case Node::Kind::scalar:
      break;
  }
  const std::string text =
      value.text.size() > 60 ? fmt::format("{}...", std::string_view(value.text).substr(0, 57)) : value.text;
  return value.quoted ? fmt::format("the text \"{}\"", text) : fmt::format("'{}'", text);
}

std::string expected(std::string_view what, const Node& value, std::string_view hint = "") {
  if (value.kind == Node::Kind::null) return fmt::format("has no value, expected {}", what);
  return fmt::format("expected {}, got {}{}", what, shown(value), hint);
}

Wrong read_scalar(const Node& value, bool& out) {
  constexpr std::string_view what = "true or false";
  if (value.kind != Node::Kind::scalar) return expected(what, value);
  const std::string text = lower(value.text);
  if (value.quoted) {
    return expected(what, value, text == "true" || text == "false" ? "; remove the quotes" : "");
  }
  if (value.text == "true" || value.text == "false") {
    out = value.text == "true";
    return {};
  }
  for (const char* yes : {"true", "yes", "on", "y", "1"}) {
    if (text == yes) return expected(what, value, "; write true");
  }
  for (const char* no : {"false", "no", "off", "n", "0"}) {
    if (text == no) return expected(what, value, "; write false");
  }
  return expected(what, value);
}

Wrong read_scalar(const Node& value, int64_t& out) {
  constexpr std::string_view what = "an integer";
  if (value.kind != Node::Kind::scalar) return expected(what, value);
  if (value.quoted) return expected(what, value, is_integer(value.text) ? "; remove the quotes" : "");
  if (!is_integer(value.text)) {
    double number = 0;
    if (is_number(value.text) && convert(value.text, number).ec == std::errc() && std::abs(number) < 1e15 &&
        number == std::floor(number)) {
      return expected(what, value, fmt::format("; write {}", static_cast<int64_t>(number)));
    }
    return expected(what, value);
  }
  const std::string_view digits = without_sign(value.text);
  if (digits.size() > 1 && digits.front() == '0') {
    return expected(what, value, "; a leading zero means octal to some readers, leave it out");
  }
  int64_t number = 0;
  if (convert(value.text, number).ec != std::errc()) return expected("an integer of at most 64 bits", value);
  out = number;
  return {};
}

Wrong read_scalar(const Node& value, double& out) {
  constexpr std::string_view what = "a number";
  if (value.kind != Node::Kind::scalar) return expected(what, value);
  if (value.quoted) return expected(what, value, is_number(value.text) ? "; remove the quotes" : "");
  if (is_infinity(value.text) && std::isinf(out)) {  // where "no limit" is the default, a user may say so too
    out = value.text.front() == '-' ? -INFINITY : INFINITY;
    return {};
  }
  if (is_infinity(value.text) || is_nan(value.text)) return expected("a finite number", value);
  if (!is_number(value.text)) return expected(what, value);
  double number = 0;
  if (convert(value.text, number).ec != std::errc()) return expected("a number that float64 can hold", value);
  out = number;
  return {};
}

Wrong read_scalar(const Node& value, std::string& out) {
  if (value.kind == Node::Kind::null) return expected("text (write \"\" for empty text)", value);
  if (value.kind != Node::Kind::scalar) return expected("text", value);
  out = value.text;
  return {};
}

template <class Element>
bool assign_scalar(const Node& value, Element& target, const Complaint& complain) {
  Wrong wrong = read_scalar(value, target);
  if (wrong) complain("", value.line, *wrong);
  return !wrong;
}

template <class Element>
bool assign_list(const Node& value, std::vector<Element>& target, const Complaint& complain) {
  std::vector<Element> list;
  if (value.kind == Node::Kind::scalar) {
    if (!assign_scalar(value, list.emplace_back(), complain)) return false;
  } else if (value.kind == Node::Kind::list) {
    bool good = true;
    for (size_t i = 0; i < value.items.size(); ++i) {
      Wrong wrong = read_scalar(*value.items[i], list.emplace_back());
      if (wrong) complain(fmt::format("[{}]", i), value.items[i]->line, *wrong);
      good = good && !wrong;
    }
    if (!good) return false;
  } else {
    const std::string what = fmt::format("{} (write [] for an empty one)", type_name(&target));
    complain("", value.line, expected(what, value));
    return false;
  }
  target = std::move(list);
  return true;
}

bool assign_map(const Node& value, std::map<std::string, std::string>& target, const Complaint& complain) {
  if (value.kind != Node::Kind::map) {
    complain("", value.line, expected("a mapping of names to text (write {} for an empty one)", value));
    return false;
  }
  std::map<std::string, std::string> map;
  bool good = true;
  for (const Entry& entry : value.entries) {
    Wrong wrong = read_scalar(*entry.value, map[entry.key]);
    if (wrong) complain("." + entry.key, entry.line, *wrong);
    good = good && !wrong;
  }
  if (good) target = std::move(map);
  return good;
}

struct Assigner {
  const Node& value;
  const Complaint& complain;
  template <class Scalar>
  bool operator()(Scalar* target) const {
    return assign_scalar(value, *target, complain);
  }
  template <class Element>
  bool operator()(std::vector<Element>* target) const {
    return assign_list(value, *target, complain);
  }
  bool operator()(std::map<std::string, std::string>* target) const {
    return assign_map(value, *target, complain);
  }
};

}  // namespace

bool assign(const Node& value, const Target& target, const Complaint& complain) {
  return std::visit(Assigner{value, complain}, target);
}

std::string_view type_name(const Target& target) {
  constexpr std::array<std::string_view, std::variant_size_v<Target>> names = {
      "true or false",   "an integer",        "a number",           "text",
      "a list of texts", "a list of numbers", "a list of integers", "a mapping of names to text"};
  return names[target.index()];
}

std::string number_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  return fmt::format("{}", value);
}

bool looks_like_another_type(std::string_view text) {
  if (is_number(text) || is_infinity(text) || is_nan(text)) return true;
  // Words that YAML 1.1 or 1.2 takes for booleans or null, in any case.
  const std::string word = lower(text);
  for (const char* special : {"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (word == special) return true;
  }
  // 0x1f, 0b1, 1_000, 12:30:45 and dates: anything that starts like a number.
  const std::string_view digits = without_sign(text);
  return count_digits(digits) > 0 &&
         digits.find_first_not_of("0123456789abcdefxobtz_.,:-+ ") == std::string_view::npos;
}

}  // namespace lockstep::config
