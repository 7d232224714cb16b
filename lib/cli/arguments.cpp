#include "lockstep/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "lockstep/cli/application.h"
#include "lockstep/core/error.h"

namespace lockstep {

void parse_arguments(CLI::App& app, const std::vector<std::string>& arguments, const std::string& epilogue) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them so
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    if (speaks_before_mpi()) std::printf("%s%s", app.help().c_str(), epilogue.c_str());
    throw HelpShown();
  } catch (const CLI::ParseError& error) {
    refuse("{}: {} (see --help)", app.get_name(), error.what());
  }
}

void check_overrides(const std::vector<std::string>& overrides) {
  for (const std::string& word : overrides) {
    if (word.find('=') == std::string::npos) {
      refuse("'{}': not understood; a configuration override is written key=value, for instance optim.lr=0.1", word);
    }
  }
}

}  // namespace lockstep
