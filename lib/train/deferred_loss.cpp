#include "lockstep/train/deferred_loss.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep {

struct DeferredLoss::Entry {
  int64_t step = 0;
  at::Tensor host;
  std::optional<c10::Event> copied;
};

DeferredLoss::DeferredLoss(c10::Device device) : device_(device) {}
DeferredLoss::~DeferredLoss() = default;

void DeferredLoss::push(int64_t step, const at::Tensor& loss) {
  auto entry = std::make_unique<Entry>();
  entry->step = step;
  if (device_.is_cpu()) {
    entry->host = loss;
  } else {
    entry->host = at::empty_like(loss, loss.options().device(c10::kCPU).pinned_memory(true));
    entry->host.copy_(loss, /*non_blocking=*/true);
    entry->copied.emplace(device_.type());
    entry->copied->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  entries_.push_back(std::move(entry));
}

DeferredLoss::Ready DeferredLoss::take() {
  std::unique_ptr<Entry> entry = std::move(entries_.front());
  entries_.pop_front();
  if (entry->copied) entry->copied->synchronize();
  return {entry->step, entry->host.item<double>()};
}

std::optional<DeferredLoss::Ready> DeferredLoss::pop() {
  const size_t depth = device_.is_cpu() ? 1 : 2;
  if (entries_.size() < depth) return std::nullopt;
  return take();
}

std::optional<DeferredLoss::Ready> DeferredLoss::flush() {
  if (entries_.empty()) return std::nullopt;
  return take();
}

}  // namespace lockstep
