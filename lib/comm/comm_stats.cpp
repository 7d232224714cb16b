#include "lockstep/comm/comm_stats.h"

namespace lockstep {

namespace {
int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
}  // namespace

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::reduce:
      return "reduce";
    case CollectiveKind::gather:
      return "gather";
    case CollectiveKind::scatter:
      return "scatter";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::send:
      return "send";
    case CollectiveKind::recv:
      return "recv";
    case CollectiveKind::barrier:
      return "barrier";
    case CollectiveKind::count:
      break;
  }
  return "unknown";
}

void CommStats::add(CollectiveKind kind, int64_t bytes, double seconds) {
  Counter& counter = counters_[static_cast<size_t>(kind)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  counter.ns.fetch_add(nanoseconds(seconds), std::memory_order_relaxed);
}

void CommStats::add_exposed(double seconds) {
  exposed_ns_.fetch_add(nanoseconds(seconds), std::memory_order_relaxed);
}

CollectiveTotals CommStats::totals(CollectiveKind kind) const {
  const Counter& counter = counters_[static_cast<size_t>(kind)];
  return {counter.calls.load(std::memory_order_relaxed), counter.bytes.load(std::memory_order_relaxed),
          static_cast<double>(counter.ns.load(std::memory_order_relaxed)) * 1e-9};
}

}  // namespace lockstep
