#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// What the progress line shows.
struct ProgressState {
  int64_t step = 0;  ///< steps done
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 1;
  double loss = 0;
  double lr = 0;
  double samples_per_s = 0;
  double seconds_left = 0;
};

/// One line of progress: rewritten in place on a terminal (a few times a second), a plain line now and then when piped (after
/// the first step, then at most every ten seconds). Rank 0 only.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  /// Cheap; prints only when it is time or `last`.
  void update(const ProgressState& state, bool last);
  /// Ends a line that is being rewritten, so that other output starts on a fresh one.
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool open_ = false;
  double last_print_ = -1e9;
};

/// "epoch 1/4  step 120/468  loss 0.5213  lr 0.05  1,234 samples/s  0:42 left"
std::string progress_line(const ProgressState& state);

}  // namespace lockstep
