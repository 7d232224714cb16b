#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// Runs `work` on every rank and fails on all of them when it fails on any: a file that only one node lacks, say. `work`
/// itself must not communicate. Collective. Throws UsageError when every failure was one, else AgreedError.
template <class Work>
auto together(const World& world, Work&& work) -> std::invoke_result_t<Work> {
  std::optional<std::invoke_result_t<Work>> result;
  std::string problem;
  bool usage = true;
  try {
    result.emplace(std::forward<Work>(work)());
  } catch (const UsageError& error) {
    problem = error.what();
  } catch (const std::exception& error) {
    problem = error.what();
    usage = false;
  }
  usage = world.all(usage);
  try {
    world.fail_together(problem, usage);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw AgreedError(error.what());
  }
  return std::move(*result);
}

}  // namespace lockstep
