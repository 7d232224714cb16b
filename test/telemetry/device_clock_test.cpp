#include "lockstep/telemetry/device_clock.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <doctest/doctest.h>

#include "lockstep/core/error.h"
#include "lockstep/telemetry/phases.h"

using namespace lockstep;

namespace {

// A made-up accelerator with a clock of its own that work is finished on only when the test says so: stands
// in for a GPU, through the same registration that a CUDA backend uses.
struct Accelerator {
  struct Event {
    double ms = 0;
    bool complete = false;
  };
  double now_ms = 0;
  bool busy = false;  // work before the next event is not done yet
  int waits = 0;
  int live = 0;
  std::vector<c10::EventFlag> flags;
  std::vector<Event*> recorded;
  static Accelerator& get() {
    static Accelerator one;
    return one;
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr auto device_type = c10::DeviceType::PrivateUse1;
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {device_type, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag flag) const override {
    Accelerator& a = Accelerator::get();
    if (*event == nullptr) {
      *event = new Accelerator::Event;
      ++a.live;
      a.flags.push_back(flag);
    }
    auto* mine = static_cast<Accelerator::Event*>(*event);
    *mine = {a.now_ms, !a.busy};
    a.recorded.push_back(mine);
  }
  bool queryEvent(void* event) const override { return static_cast<Accelerator::Event*>(event)->complete; }
  void synchronizeEvent(void* event) const override {
    ++Accelerator::get().waits;
    static_cast<Accelerator::Event*>(event)->complete = true;
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return static_cast<Accelerator::Event*>(to)->ms - static_cast<Accelerator::Event*>(from)->ms;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    --Accelerator::get().live;
    delete static_cast<Accelerator::Event*>(event);
  }
};
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, new Guard);

const c10::Device device(c10::DeviceType::PrivateUse1, 0);

}  // namespace

TEST_CASE("the clock of a CPU is the steady clock") {
  auto clock = DeviceClock::make(c10::kCPU);
  const double before = steady_seconds();
  const auto from = clock->mark(), to = clock->mark();
  CHECK(from.host >= before);
  CHECK(clock->reached(to));
  CHECK(clock->seconds(from, to) == to.host - from.host);
}

TEST_CASE("the clock of an accelerator reads events that keep time, and only complete ones") {
  Accelerator& a = Accelerator::get();
  a = {};
  {
    auto clock = DeviceClock::make(device);
    a.now_ms = 10;
    const auto from = clock->mark();
    a.now_ms = 12.5;
    a.busy = true;
    const auto to = clock->mark();
    CHECK(clock->reached(from));
    CHECK(!clock->reached(to));
    CHECK_THROWS_AS(clock->seconds(from, to), Error);
    CHECK(a.waits == 0);
    clock->wait(to);
    CHECK(a.waits == 1);
    CHECK(clock->seconds(from, to) == doctest::Approx(0.0025));
    for (c10::EventFlag flag : a.flags) CHECK(flag == c10::EventFlag::BACKEND_DEFAULT);
    // Marks given back are used again.
    const int made = a.live;
    clock->release(from);
    clock->release(to);
    clock->mark();
    clock->mark();
    CHECK(a.live == made);
  }
  CHECK(a.live == 0);
}

TEST_CASE("a timer on an accelerator reads steps late and never waits before the end") {
  Accelerator& a = Accelerator::get();
  a = {};
  Device accelerator;
  accelerator.torch = device;
  PhaseTimer timer(accelerator, nullptr);
  int returned = 0;
  for (int step = 0; step < 5; ++step) {
    a.busy = true;
    timer.begin_step();
    {
      auto span = timer.phase(Phase::forward);
      a.now_ms += 3;
    }
    {
      auto span = timer.phase(Phase::backward);
      a.now_ms += 6;
    }
    a.now_ms += 1;
    const size_t before = a.recorded.size();
    // The device has done the steps before this one by now.
    for (size_t i = 0; i + 5 < before; ++i) a.recorded[i]->complete = true;
    if (auto seconds = timer.end_step()) {
      ++returned;
      CHECK((*seconds)[static_cast<size_t>(Phase::forward)] == doctest::Approx(0.003));
      CHECK((*seconds)[static_cast<size_t>(Phase::backward)] == doctest::Approx(0.006));
      CHECK((*seconds)[static_cast<size_t>(Phase::other)] == doctest::Approx(0.001));
    } else {
      CHECK(step == 0);
    }
  }
  CHECK(returned == 4);
  CHECK(a.waits == 0);
  CHECK(timer.drain().size() == 1);
  CHECK(a.waits == 1);
}

TEST_CASE("a device whose backend is not loaded is refused") {
  CHECK_THROWS_WITH_AS(DeviceClock::make(c10::Device(c10::kXPU, 0)),
                       doctest::Contains("no backend for device 'xpu:0'"), Error);
}
