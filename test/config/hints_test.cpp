#include "lockstep/config/hints.h"

#include <doctest/doctest.h>

#include "sample.h"

using sample::problem_of;

TEST_CASE("a key that is valid in several places names them all") {
  const std::vector<lockstep::config::KnownKey> known = {
      {"a", true}, {"a.x", false}, {"b", true}, {"b.x", false}, {"c", true}};
  CHECK(lockstep::config::hint_for_unknown("c", "x", known) == " here; it is valid as a.x and as b.x");
}

TEST_CASE("misspelt and misplaced at once") {
  CHECK(problem_of("momentun: 0.5") == "x.yaml:1: momentun: unknown key (did you mean 'optim.momentum'?)");
  CHECK(problem_of("learning_rate: 0.5") ==
        "x.yaml:1: learning_rate: unknown key (did you mean 'optim.lr'?)");
}

TEST_CASE("a key that resembles nothing lists what there is") {
  CHECK(problem_of("optim: {zzzzzzzzzz: 1}") ==
        "x.yaml:1: optim.zzzzzzzzzz: unknown key; the keys of optim are: name, lr, momentum, clip, betas");
  CHECK(problem_of("zzzzzzzzzz: 1").find("unknown key; the keys at the top are: seed, note") !=
        std::string::npos);
}

TEST_CASE("the dotted form of the command line is explained in a file") {
  CHECK(problem_of("optim.lr: 0.5") ==
        "x.yaml:1: optim.lr: unknown key; in a file write 'optim:' with 'lr' indented under it");
}

TEST_CASE("the keys of a free mapping are the user's, and a wrong section is reported once") {
  CHECK(problem_of("labels: {anything: goes, lr: 1}") == "");
  CHECK(problem_of("optimizer: {lr: 1, name: x}") ==
        "x.yaml:1: optimizer: unknown key (did you mean 'optim'?)");
}
