#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/config/section.h"

namespace lockstep::config {

enum class Bound { at_least, above, at_most, below };

/// "at least 0"; whole numbers without a fraction.
std::string describe(Bound bound, double limit);

/// What is done with the declarations of bind(): one class reads, one writes, one documents. Paths are dotted
/// ("optim.lr").
class Visitor {
 public:
  virtual ~Visitor() = default;

  virtual void enter(const std::string& path, const std::string& doc) = 0;
  virtual void leave() {}
  virtual void field(const std::string& path, const Target& target, const std::string& doc) = 0;
  virtual void one_of(const std::string& path, const Target& target,
                      const std::vector<std::string>& names) = 0;
  virtual void bound(const std::string& path, const Target& target, Bound kind, double limit) = 0;
  virtual void required(const std::string& path) = 0;
  virtual void problem(const std::string& /*path*/, const std::string& /*text*/) {}
  virtual bool given(const std::string& /*path*/) const { return false; }
  virtual std::string finish() = 0;

  /// Two components that bind the same key would silently share it, so that is an Error of the program.
  void declare(const std::string& path);

 private:
  std::set<std::string> declared_;
};

}  // namespace lockstep::config
