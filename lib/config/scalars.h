#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/config/document.h"
#include "lockstep/config/section.h"

namespace lockstep::config {

/// Called for a value that cannot be: the element it concerns ("" or "[2]" or ".name"), its line, and what is
/// wrong.
using Complaint = std::function<void(const std::string& element, int line, const std::string& text)>;

/// Puts `value` where `target` points if it has the right type; otherwise leaves the target as it is,
/// complains, and returns false. Strict: no quoted numbers, no yes/no/on/off, no fractions or exponents for
/// integers.
bool assign(const Node& value, const Target& target, const Complaint& complain);

/// "a number", "a list of integers": what a target holds.
std::string_view type_name(const Target& target);

/// The shortest decimal text that reads back to the same bits; ".inf", "-.inf" and ".nan" as YAML has them.
std::string number_text(double value);

/// A plain scalar that this or another YAML reader would not take for text: a number, a boolean, null.
bool looks_like_another_type(std::string_view text);

}  // namespace lockstep::config
