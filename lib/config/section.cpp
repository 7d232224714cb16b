#include "lockstep/config/section.h"

#include <fmt/format.h>

#include "lockstep/config/visitor.h"
#include "lockstep/core/error.h"

namespace lockstep::config {

void VisitorDeleter::operator()(Visitor* visitor) const { delete visitor; }

std::string describe(Bound bound, double limit) {
  switch (bound) {
    case Bound::at_least:
      return fmt::format("at least {}", limit);
    case Bound::above:
      return fmt::format("above {}", limit);
    case Bound::at_most:
      return fmt::format("at most {}", limit);
    case Bound::below:
      return fmt::format("below {}", limit);
  }
  return "";
}

void Visitor::declare(const std::string& path) {
  if (!declared_.insert(path).second)
    fail("the configuration key '{}' is declared twice by the program", path);
}

Field& Field::one_of(std::vector<std::string> names) {
  visitor_->one_of(path_, target_, names);
  return *this;
}
Field& Field::at_least(double least) {
  visitor_->bound(path_, target_, Bound::at_least, least);
  return *this;
}
Field& Field::above(double bound) {
  visitor_->bound(path_, target_, Bound::above, bound);
  return *this;
}
Field& Field::at_most(double most) {
  visitor_->bound(path_, target_, Bound::at_most, most);
  return *this;
}
Field& Field::below(double bound) {
  visitor_->bound(path_, target_, Bound::below, bound);
  return *this;
}
Field& Field::required() {
  visitor_->required(path_);
  return *this;
}
bool Field::given() const { return visitor_->given(path_); }

Field Section::field(const std::string& key, Target target, const std::string& doc) {
  std::string path = path_of(key);
  visitor_->declare(path);
  visitor_->field(path, target, doc);
  return Field(*visitor_, std::move(path), target);
}

void Section::problem(const std::string& key, const std::string& text) {
  visitor_->problem(path_of(key), text);
}

bool Section::given(const std::string& key) const { return visitor_->given(path_of(key)); }

Section Section::enter(const std::string& key, const std::string& doc) {
  std::string path = path_of(key);
  visitor_->declare(path);
  visitor_->enter(path, doc);
  return Section(*visitor_, std::move(path));
}

void Section::leave() {
  if (!path_.empty()) visitor_->leave();
}

std::string Section::path_of(const std::string& key) const {
  if (path_.empty() || key.empty()) return path_ + key;
  return path_ + "." + key;
}

void finish_reading(Visitor& visitor) { visitor.finish(); }
std::string finish_writing(Visitor& visitor) { return visitor.finish(); }
std::string finish_documenting(Visitor& visitor) { return visitor.finish(); }

}  // namespace lockstep::config
