#include <sstream>

#include "sample.h"

namespace sample {
struct Wordy {
  std::string path;
  double rate = 0.5;
};
inline void bind(lockstep::config::Section& section, Wordy& config) {
  section
      .field("path", &config.path,
             "A long explanation that goes on beyond the width of any terminal so that it has to be broken "
             "into several "
             "lines, with caf\xC3\xA9 and a_word_that_is_long")
      .required();
  section.field("rate", &config.rate, "Short.").at_least(0).below(1.5);
}
struct Outer {
  Wordy wordy;
  int64_t last = 1;
};
inline void bind(lockstep::config::Section& section, Outer& config) {
  section.section("wordy", config.wordy, "Explained at length.");
  section.field("last", &config.last, "After the section.").at_least(1);
}
}  // namespace sample

TEST_CASE("the reference lists every key with type, limits, default and meaning") {
  CHECK(
      lockstep::config::reference<sample::Outer>() ==
      "wordy: Explained at length.\n"
      "  wordy.path  (text, required)\n"
      "        A long explanation that goes on beyond the width of any terminal so that it has to be broken\n"
      "        into several lines, with caf\xC3\xA9 and a_word_that_is_long\n"
      "  wordy.rate  (a number, at least 0, below 1.5, default 0.5)\n"
      "        Short.\n"
      "last  (an integer, at least 1, default 1)\n"
      "      After the section.\n");
}

TEST_CASE("the reference names all keys of nested sections and fits a terminal") {
  const std::string text = lockstep::config::reference<sample::Config>();
  CAPTURE(text);
  for (const char* part :
       {"seed  (an integer, default 0)", "deterministic  (true or false, default false)",
        "data: What is trained on.", "data.augment: Random changes of images.",
        "data.augment.flip  (true or false, default false)",
        "optim.name  (text, one of sgd | adamw, default sgd)",
        "optim.lr  (a number, above 0, at most 10, default 0.1)",
        "optim.clip  (a number, above 0, default .inf)", "default [0.9, 0.999])",
        "note  (text, default \"\")", "labels  (a mapping of names to text, default {})"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
}
