#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Number of single-letter insertions, deletions, substitutions and swaps of neighbours between two words
/// (optimal string alignment distance).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, whatever its case, or "" where none is near: more than a third of the
/// letters and one wrong, or all of them.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean 'x'?)" for the candidate nearest to `word`, or "" where none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace lockstep
