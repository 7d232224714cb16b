#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace lockstep {

/// Marks moments on a device's own timeline without waiting for it. On a CPU the timeline is the steady
/// clock; on an accelerator a mark is an event on the current stream, reached when everything enqueued before
/// it has run. Used from one thread.
class DeviceClock {
 public:
  struct Mark {
    double host = 0;  ///< steady-clock seconds when it was set
    int event = -1;   ///< slot of the device's event; -1 on a CPU
  };

  /// The clock of a device. Needs the device's backend to be loaded. Throws Error for a device without
  /// events.
  static std::unique_ptr<DeviceClock> make(c10::Device device);

  virtual ~DeviceClock() = default;

  /// Sets a mark now. Never waits.
  virtual Mark mark() = 0;

  /// The device has reached the mark. Never waits.
  virtual bool reached(const Mark& mark) = 0;

  /// Waits until the device has reached the mark. Only for the end of a run.
  virtual void wait(const Mark& mark) = 0;

  /// Seconds of the device's timeline between two marks that were both reached (Error otherwise).
  virtual double seconds(const Mark& from, const Mark& to) = 0;

  /// Gives a mark back, to be set again.
  virtual void release(const Mark& mark) = 0;
};

/// Seconds of the steady clock.
double steady_seconds();

}  // namespace lockstep
