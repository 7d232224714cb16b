#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// Counts of (true class, predicted class), and what follows from them.
class ClassificationReport {
 public:
  ClassificationReport(int64_t classes, std::vector<std::string> names);

  void add(int64_t truth, int64_t predicted) { counts_[index(truth, predicted)] += 1; }
  std::vector<int64_t>& counts() { return counts_; }  ///< row-major [truth][predicted]; to be added over ranks
  int64_t count(int64_t truth, int64_t predicted) const { return counts_[index(truth, predicted)]; }

  double accuracy() const;
  double recall(int64_t c) const;     ///< of the samples of class c, the share that was found; NaN without any
  double precision(int64_t c) const;  ///< of the samples called c, the share that is c; NaN without any
  double f1(int64_t c) const;         ///< harmonic mean of both; 0 when both are 0
  int64_t samples_of(int64_t c) const;
  std::string name(int64_t c) const;  ///< the class's name, else its number

  std::string class_table() const;      ///< class, samples, precision, recall, F1, most confused with
  std::string confusion_table() const;  ///< rows: truth, columns: prediction
  nlohmann::json to_json() const;

 private:
  size_t index(int64_t truth, int64_t predicted) const { return static_cast<size_t>(truth * classes_ + predicted); }
  int64_t classes_;
  std::vector<std::string> names_;
  std::vector<int64_t> counts_;
};

}  // namespace lockstep
