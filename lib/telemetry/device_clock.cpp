#include "lockstep/telemetry/device_clock.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <deque>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

class CpuClock final : public DeviceClock {
 public:
  Mark mark() override { return {steady_seconds(), -1}; }
  bool reached(const Mark&) override { return true; }
  void wait(const Mark&) override {}
  double seconds(const Mark& from, const Mark& to) override { return to.host - from.host; }
  void release(const Mark&) override {}
};

// Device-generic: c10::Event finds CUDA, ROCm, … through the registered backend, so nothing here links one.
class EventClock final : public DeviceClock {
 public:
  explicit EventClock(c10::Device device) : device_(device), guard_(device.type()) {
    if (!device_.has_index()) device_ = guard_.getDevice();
  }

  Mark mark() override {
    int slot = 0;
    if (free_.empty()) {
      slot = static_cast<int>(events_.size());
      // elapsedTime() wants the flag that keeps timestamps; the default one is without.
      events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    event(slot).record(guard_.getStream(device_));
    return {steady_seconds(), slot};
  }

  bool reached(const Mark& mark) override { return event(mark.event).query(); }
  void wait(const Mark& mark) override { event(mark.event).synchronize(); }

  double seconds(const Mark& from, const Mark& to) override {
    if (!reached(from) || !reached(to))
      fail("timing: the device has not reached a mark whose time was asked for");
    return event(from.event).elapsedTime(event(to.event)) * 1e-3;
  }

  void release(const Mark& mark) override { free_.push_back(mark.event); }

 private:
  c10::Event& event(int slot) { return events_.at(static_cast<size_t>(slot)); }
  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  std::deque<c10::Event> events_;
  std::vector<int> free_;
};

}  // namespace

std::unique_ptr<DeviceClock> DeviceClock::make(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuClock>();
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    fail("timing: no backend for device '{}' is loaded", device.str());
  }
  return std::make_unique<EventClock>(device);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
