#include <cmath>

#include "lockstep/core/files.h"
#include "sample.h"

using sample::problem_of;
using sample::read;
using Strings = std::vector<std::string>;

TEST_CASE("every kind of value is read, and what is not given keeps its default") {
  const auto config = read(
      "seed: -7\n"
      "note: 'two words'\n"
      "deterministic: true\n"
      "labels: {a: x, b: 5}\n"
      "data:\n"
      "  train: [a.h5, b.h5]\n"
      "  shape: [28, 30]\n"
      "  augment:\n"
      "    flip: true\n"
      "optim: {lr: 1e-3, betas: [0.5, .75]}\n");
  CHECK(config.seed == -7);
  CHECK(config.note == "two words");
  CHECK(config.deterministic);
  CHECK(config.labels == std::map<std::string, std::string>{{"a", "x"}, {"b", "5"}});
  CHECK(config.data.train == Strings{"a.h5", "b.h5"});
  CHECK(config.data.shape == std::vector<int64_t>{28, 30});
  CHECK(config.data.augment.flip);
  CHECK(config.data.augment.padding == 4);
  CHECK(config.data.batch == 32);
  CHECK(config.optim.lr == 1e-3);
  CHECK(config.optim.betas == std::vector<double>{0.5, 0.75});
  CHECK(config.optim.name == "sgd");
}

TEST_CASE("a single scalar is a list of one, and a given list replaces the default") {
  const auto config = read("data: {train: a.h5, shape: 28}\noptim: {betas: []}\n");
  CHECK(config.data.train == Strings{"a.h5"});
  CHECK(config.data.shape == std::vector<int64_t>{28});
  CHECK(config.optim.betas.empty());
}

TEST_CASE("an integer is a number, and all decimal forms are read exactly") {
  for (const auto& [text, value] : std::map<std::string, double>{{"1", 1},
                                                                 {"+2.5", 2.5},
                                                                 {"5e-5", 5e-5},
                                                                 {"1.E+0", 1},
                                                                 {".5", 0.5},
                                                                 {"0.1", 0.1},
                                                                 {"1e-310", 1e-310},
                                                                 {"5.", 5},
                                                                 {"3E-2", 3e-2}}) {
    CAPTURE(text);
    CHECK(read("optim: {lr: " + text + "}").optim.lr == value);
  }
  CHECK(read("seed: 9223372036854775807").seed == INT64_MAX);
  CHECK(read("seed: -9223372036854775808").seed == INT64_MIN);
  CHECK(read("seed: +3").seed == 3);
}

TEST_CASE("wrong types are refused with the position, the path and what was expected") {
  struct Case {
    std::string text, problem;
  };
  const std::vector<Case> cases = {
      {"optim:\n  lr: \"5e-5\"\n",
       "x.yaml:2: optim.lr: expected a number, got the text \"5e-5\"; remove the quotes"},
      {"optim:\n  lr: '5e-5'\n",
       "x.yaml:2: optim.lr: expected a number, got the text \"5e-5\"; remove the quotes"},
      {"optim: {lr: fast}", "x.yaml:1: optim.lr: expected a number, got 'fast'"},
      {"optim: {lr: 0x10}", "x.yaml:1: optim.lr: expected a number, got '0x10'"},
      {"optim: {lr: 1_000}", "x.yaml:1: optim.lr: expected a number, got '1_000'"},
      {"optim: {lr: inf}", "x.yaml:1: optim.lr: expected a number, got 'inf'"},
      {"optim: {lr: nan}", "x.yaml:1: optim.lr: expected a number, got 'nan'"},
      {"optim: {lr: .inf}", "x.yaml:1: optim.lr: expected a finite number, got '.inf'"},
      {"optim: {lr: .NaN}", "x.yaml:1: optim.lr: expected a finite number, got '.NaN'"},
      {"optim: {lr: 1e999}", "x.yaml:1: optim.lr: expected a number that float64 can hold, got '1e999'"},
      {"optim: {lr: [1]}", "x.yaml:1: optim.lr: expected a number, got a list"},
      {"optim: {lr: {a: 1}}", "x.yaml:1: optim.lr: expected a number, got a mapping"},
      {"optim: {lr: true}", "x.yaml:1: optim.lr: expected a number, got 'true'"},
      {"optim: {clip: .nan}", "x.yaml:1: optim.clip: expected a finite number, got '.nan'"},
      {"seed: 1e-3", "x.yaml:1: seed: expected an integer, got '1e-3'"},
      {"seed: 1e3", "x.yaml:1: seed: expected an integer, got '1e3'; write 1000"},
      {"seed: 2.0", "x.yaml:1: seed: expected an integer, got '2.0'; write 2"},
      {"seed: 010",
       "x.yaml:1: seed: expected an integer, got '010'; a leading zero means octal to some readers, leave it "
       "out"},
      {"seed: \"3\"", "x.yaml:1: seed: expected an integer, got the text \"3\"; remove the quotes"},
      {"seed: 9223372036854775808",
       "x.yaml:1: seed: expected an integer of at most 64 bits, got '9223372036854775808'"},
      {"deterministic: yes", "x.yaml:1: deterministic: expected true or false, got 'yes'; write true"},
      {"deterministic: No", "x.yaml:1: deterministic: expected true or false, got 'No'; write false"},
      {"deterministic: on", "x.yaml:1: deterministic: expected true or false, got 'on'; write true"},
      {"deterministic: off", "x.yaml:1: deterministic: expected true or false, got 'off'; write false"},
      {"deterministic: True", "x.yaml:1: deterministic: expected true or false, got 'True'; write true"},
      {"deterministic: 0", "x.yaml:1: deterministic: expected true or false, got '0'; write false"},
      {"deterministic: \"yes\"", "x.yaml:1: deterministic: expected true or false, got the text \"yes\""},
      {"deterministic: 'true'",
       "x.yaml:1: deterministic: expected true or false, got the text \"true\"; remove the quotes"},
      {"note: [a]", "x.yaml:1: note: expected text, got a list"},
      {"note: {a: 1}", "x.yaml:1: note: expected text, got a mapping"},
      {"labels: x",
       "x.yaml:1: labels: expected a mapping of names to text (write {} for an empty one), got 'x'"},
      {"labels:\n  a: [1]\n", "x.yaml:2: labels.a: expected text, got a list"},
      {"data:\n  shape:\n    - 1\n    - two\n", "x.yaml:4: data.shape[1]: expected an integer, got 'two'"},
      {"data: {train: {a: 1}}",
       "x.yaml:1: data.train: expected a list of texts (write [] for an empty one), got a mapping"},
      {"data: 5", "x.yaml:1: data: expected a mapping of keys, got a single value or a list"},
      {"data: [batch]", "x.yaml:1: data: expected a mapping of keys, got a single value or a list"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK(problem_of(c.text) == c.problem);
  }
}

TEST_CASE("a key without a value is refused") {
  CHECK(problem_of("seed:") == "x.yaml:1: seed: has no value, expected an integer");
  CHECK(problem_of("optim:\n  lr: ~\n") == "x.yaml:2: optim.lr: has no value, expected a number");
  CHECK(problem_of("note: null") ==
        "x.yaml:1: note: has no value, expected text (write \"\" for empty text)");
  CHECK(problem_of("data: {train: }") ==
        "x.yaml:1: data.train: has no value, expected a list of texts (write [] for an empty one)");
  CHECK(problem_of("data: {train: [a, ~]}") ==
        "x.yaml:1: data.train[1]: has no value, expected text (write \"\" for empty text)");
  CHECK(problem_of("seed: 1\ndata:\n  # batch: 3\n") ==
        "x.yaml:2: data: has no value, expected a mapping of keys (leave the key out for the defaults)");
  CHECK(problem_of("labels: {a: }").find("x.yaml:1: labels.a: has no value") == 0);
  CHECK(read("note: \"\"").note.empty());
  CHECK(read("data: {}").data.batch == 32);
}

TEST_CASE("text takes any scalar literally, and a wrong value leaves the default alone") {
  CHECK(read("note: 1e3").note == "1e3");
  CHECK(read("note: yes").note == "yes");
  CHECK(read("note: \"true\"").note == "true");
  CHECK(read("note: !!str 5").note == "5");
  sample::Config config;
  CHECK_THROWS_AS(lockstep::config::read(
                      lockstep::config::Document::parse("seed: x\ndata: {shape: [1, y]}", "x"), config),
                  lockstep::UsageError);
  CHECK(config.seed == 0);
  CHECK(config.data.shape.empty());
}

TEST_CASE("infinity is accepted where it is the default") {
  CHECK(std::isinf(read("optim: {clip: .inf}").optim.clip));
  CHECK(read("optim: {clip: 2}").optim.clip == 2);
  CHECK(problem_of("optim: {clip: -.inf}") == "x.yaml:1: optim.clip: must be above 0, got -inf");
}

TEST_CASE("bounds hold for what is given, at both ends and for every element") {
  CHECK(problem_of("optim: {lr: 0}") == "x.yaml:1: optim.lr: must be above 0, got 0");
  CHECK(problem_of("optim: {lr: 10.5}") == "x.yaml:1: optim.lr: must be at most 10, got 10.5");
  CHECK(problem_of("optim: {lr: 10}") == "");
  CHECK(problem_of("optim: {momentum: 1}") == "x.yaml:1: optim.momentum: must be below 1, got 1");
  CHECK(problem_of("optim: {momentum: 0}") == "");
  CHECK(problem_of("data: {batch: 0}") == "x.yaml:1: data.batch: must be at least 1, got 0");
  CHECK(problem_of("data: {batch: 1}") == "");
  CHECK(problem_of("optim:\n  betas:\n  - 0.5\n  - 1\n") ==
        "x.yaml:4: optim.betas[1]: must be below 1, got 1");
  CHECK(problem_of("data: {shape: 0}") == "x.yaml:1: data.shape[0]: must be above 0, got 0");
}

TEST_CASE("names are held to the allowed ones, with the nearest") {
  CHECK(problem_of("optim: {name: adamw}") == "");
  CHECK(problem_of("optim: {name: adam}") ==
        "x.yaml:1: optim.name: expected one of sgd, adamw, got 'adam' (did you mean 'adamw'?)");
  CHECK(problem_of("optim: {name: SGD}") ==
        "x.yaml:1: optim.name: expected one of sgd, adamw, got 'SGD' (did you mean 'sgd'?)");
  CHECK(problem_of("optim: {name: 7}") == "x.yaml:1: optim.name: expected one of sgd, adamw, got '7'");
}

TEST_CASE("a component reports combinations at the key's position, or the nearest one given") {
  CHECK(problem_of("data:\n  batch: 4\n  global_batch: 8\n") ==
        "x.yaml:3: data.global_batch: give it or batch, not both");
  CHECK(problem_of("data:\n  global_batch: 8\n") == "");
}

namespace sample {
struct Needs {
  struct Inner {
    std::string path;
  } inner;
};
inline void bind(lockstep::config::Section& section, Needs::Inner& config) {
  const bool given = section.field("path", &config.path, "Where.").required().given();
  if (!given) section.problem("", "cannot do without a path");
}
inline void bind(lockstep::config::Section& section, Needs& config) {
  section.section("inner", config.inner, "Inside.");
}
struct Twice {
  int64_t a = 0;
};
inline void bind(lockstep::config::Section& section, Twice& config) {
  section.field("a", &config.a, "First.");
  section.field("a", &config.a, "Second.");
}
}  // namespace sample

TEST_CASE("a required key is asked for at its section") {
  CHECK(problem_of<sample::Needs>("") ==
        "2 problems in the configuration:\n"
        "  x.yaml: inner.path: must be given\n"
        "  x.yaml: inner: cannot do without a path");
  CHECK(problem_of<sample::Needs>("\ninner: {}") ==
        "2 problems in the configuration:\n"
        "  x.yaml:2: inner.path: must be given\n"
        "  x.yaml:2: inner: cannot do without a path");
  CHECK(problem_of<sample::Needs>("inner: {path: x}") == "");
}

TEST_CASE("a key that the program declares twice is the program's error") {
  CHECK_THROWS_WITH_AS(read<sample::Twice>(""), "the configuration key 'a' is declared twice by the program",
                       lockstep::Error);
}

TEST_CASE("all problems are told at once, in the order of the file, the command line last") {
  CHECK(problem_of("optim:\n"
                   "  lrr: 1\n"
                   "  lr: -1\n"
                   "data:\n"
                   "  batch: many\n"
                   "sede: 4\n",
                   {"optim.momentum=2"}) ==
        "5 problems in the configuration:\n"
        "  x.yaml:2: optim.lrr: unknown key (did you mean 'lr'?)\n"
        "  x.yaml:3: optim.lr: must be above 0, got -1\n"
        "  x.yaml:5: data.batch: expected an integer, got 'many'\n"
        "  x.yaml:6: sede: unknown key (did you mean 'seed'?)\n"
        "  command line: optim.momentum: must be below 1, got 2");
}

TEST_CASE("overrides are YAML, win over the file, and say where they come from") {
  const auto config = read("optim: {lr: 1, name: adamw}\n",
                           {"optim.lr=5e-5", "data.train=[a.h5, b.h5]", "data.augment.flip=true", "note=a=b",
                            "labels.host=n1", "optim.betas=0.5"});
  CHECK(config.optim.lr == 5e-5);
  CHECK(config.optim.name == "adamw");
  CHECK(config.data.train == Strings{"a.h5", "b.h5"});
  CHECK(config.data.augment.flip);
  CHECK(config.note == "a=b");
  CHECK(config.labels.at("host") == "n1");
  CHECK(config.optim.betas == std::vector<double>{0.5});
  CHECK(read("", {"seed=1", "seed=2"}).seed == 2);
  CHECK(read("optim: {lr: 1, name: adamw}", {"optim={lr: 2}"}).optim.name == "sgd");

  CHECK(problem_of("", {"optim.lrr=1"}) == "command line: optim.lrr: unknown key (did you mean 'lr'?)");
  CHECK(problem_of("", {"lr=1"}) == "command line: lr: unknown key here; it is valid as optim.lr");
  CHECK(problem_of("", {"optimm.lr=1"}) == "command line: optimm: unknown key (did you mean 'optim'?)");
  CHECK(problem_of("", {"optim.lr='1'"}) ==
        "command line: optim.lr: expected a number, got the text \"1\"; remove the quotes");
  CHECK(problem_of("", {"deterministic=yes"}) ==
        "command line: deterministic: expected true or false, got 'yes'; write true");
  CHECK(problem_of("", {"optim.lr="}) == "command line: optim.lr: has no value, expected a number");
  CHECK(problem_of("\n\nseed: 1\noptim: {lr: 0.5}\n", {"optim.lr=0"}) ==
        "command line: optim.lr: must be above 0, got 0");
}

TEST_CASE("given() tells what the user wrote, by file or by override") {
  CHECK(problem_of("data: {global_batch: 8}", {"data.batch=2"}) ==
        "x.yaml:1: data.global_batch: give it or batch, not both");
}

// BR-140: misspelt, misplaced and mistyped keys must never be ignored.
TEST_CASE("BR-140: wrong keys are refused with full path, line and a hint") {
  CHECK(problem_of("optim:\n  lerning_rate: 0.1\n") ==
        "x.yaml:2: optim.lerning_rate: unknown key (did you mean 'lr'?)");
  CHECK(problem_of("optim:\n  momentun: 0.1\n") ==
        "x.yaml:2: optim.momentun: unknown key (did you mean 'momentum'?)");
  CHECK(problem_of("seed: 1\nlr: 0.1\n") == "x.yaml:2: lr: unknown key here; it is valid as optim.lr");
  CHECK(problem_of("data:\n  lr: 0.1\n") == "x.yaml:2: data.lr: unknown key here; it is valid as optim.lr");
  CHECK(problem_of("optim:\n  Momentum: 0.1\n") ==
        "x.yaml:2: optim.Momentum: unknown key (did you mean 'momentum'?)");
  CHECK(problem_of("OPTIM: {lr: 1}") == "x.yaml:1: OPTIM: unknown key (did you mean 'optim'?)");
  CHECK(problem_of("optim: {lr: 0.1, lr: 0.2}") == "x.yaml:1: optim.lr: given twice, first on line 1");
  CHECK(problem_of("optim: {lr: \"5e-5\"}").find("expected a number") != std::string::npos);
  CHECK(problem_of("deterministic: \"yes\"").find("expected true or false") != std::string::npos);
  CHECK(problem_of("", {"optim.lerning_rate=1"}) ==
        "command line: optim.lerning_rate: unknown key (did you mean 'lr'?)");
}
