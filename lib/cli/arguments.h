#pragma once

#include <exception>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

/// Thrown after --help was printed: the program ends with exit code 0.
class HelpShown : public std::exception {};

/// Parses a subcommand's arguments. Prints help (once, not a rank each) and throws HelpShown for --help; throws UsageError for
/// what does not parse. `epilogue`: text after the help of the options.
void parse_arguments(CLI::App& app, const std::vector<std::string>& arguments, const std::string& epilogue = "");

/// Fails with a UsageError for an argument that is neither key=value nor known; for positional overrides.
void check_overrides(const std::vector<std::string>& overrides);

}  // namespace lockstep
