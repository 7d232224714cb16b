#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// 1234567 → "1,234,567".
std::string thousands(int64_t value);

}  // namespace lockstep
