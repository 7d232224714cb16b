// A plugin that pretends to have one GPU; only its loading is of interest.
#include "lockstep/comm/cuda_plugin.h"

namespace {
class FakePlugin : public lockstep::CudaPlugin {
 public:
  int device_count() const override { return 1; }
  std::string device_name(int) const override { return "fake"; }
  std::string device_uuid(int) const override { return "GPU-fake"; }
  std::string versions() const override { return "none"; }
  void set_device(int) override {}
  int64_t peak_allocated_bytes(int) const override { return 0; }
  int64_t allocated_bytes(int) const override { return 0; }
  void reset_peak(int) override {}
  void set_deterministic(bool) override {}
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, int,
                                              double) override {
    return {};
  }
  void abort_nccl(c10d::Backend&) override {}
};
}  // namespace

extern "C" __attribute__((visibility("default"))) lockstep::CudaPlugin* lockstep_cuda_plugin() {
  static FakePlugin plugin;
  return &plugin;
}
