#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/core/files.h"
#include "sample.h"

using lockstep::config::Document;
using sample::problem_of;
using sample::read;

TEST_CASE("an empty file, comments alone, and an empty mapping give the defaults") {
  for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "{}", "~"}) {
    CAPTURE(text);
    CHECK(read(text).optim.lr == 0.1);
    CHECK(read(text, {"optim.lr=2"}).optim.lr == 2);
  }
}

TEST_CASE("a file that is no mapping is refused") {
  CHECK(problem_of("- a\n- b\n") == "x.yaml:1: expected a mapping of keys to values, got a list");
  CHECK(problem_of("\nhello") == "x.yaml:2: expected a mapping of keys to values, got the text 'hello'");
  CHECK(problem_of("a: 1\n---\nb: 2\n") ==
        "x.yaml: there is text after the end of its YAML document; give one document");
  CHECK(problem_of("{seed: 1} }").find("x.yaml") == 0);
}

TEST_CASE("text that is not YAML is refused with its line") {
  for (const char* text :
       {"seed: 1\noptim: [1, 2\n", "seed: 1\noptim: {lr: 1\n", "seed: 1\nnote: \"open\n",
        "seed: 1\n note: 3\n", "seed: 1\n\tnote: 3\n", "seed: 1\nnote: *nobody\n", "seed: 1\nnote: @x\n"}) {
    CAPTURE(text);
    const std::string problem = problem_of(text);
    CAPTURE(problem);
    CHECK(problem.find("x.yaml:") == 0);
    CHECK(problem.find(": not YAML: ") != std::string::npos);
  }
  CHECK(problem_of("seed: 1\nnote: @x\n").find("x.yaml:2: not YAML") == 0);
}

TEST_CASE("a quote that is never closed must not swallow the keys after it") {
  for (const char* quote : {"\"", "'"}) {
    CHECK(problem_of(fmt::format("seed: 1\nnote: {}open\noptim: {{lr: 2}}\n", quote)) ==
          "x.yaml:2: not YAML: a quote opened here or later is never closed");
    CHECK(problem_of("", {fmt::format("note={}open", quote)}) ==
          "command line: note: not YAML: a quote opened here or later is never closed");
  }
  CHECK(read("seed: 1\nnote: \"two\n  lines\"\n").note == "two lines");
  CHECK(read("note: |\n  a\n  b").note == "a\nb\n");
  CHECK(read("seed: 1\n...\n").seed == 1);
}

TEST_CASE("very deep nesting is refused, not a crash") {
  CHECK(problem_of("note: " + std::string(100000, '[')).find("x.yaml") == 0);
  CHECK(problem_of(std::string(100000, '{')).find("x.yaml") == 0);
}

TEST_CASE("keys given twice are refused wherever they are, all at once") {
  CHECK(problem_of("seed: 1\ndata:\n  batch: 2\n  augment:\n    flip: true\n    flip: false\nseed: 2\n") ==
        "x.yaml:6: data.augment.flip: given twice, first on line 5\n"
        "x.yaml:7: seed: given twice, first on line 1");
  CHECK(problem_of("labels: {a: 1, a: 1}") == "x.yaml:1: labels.a: given twice, first on line 1");
  CHECK(problem_of("seed: 1\n\"seed\": 1\n") == "x.yaml:2: seed: given twice, first on line 1");
  CHECK(problem_of("", {"optim={lr: 1, lr: 2}"}) == "command line: optim: lr: given twice");
}

TEST_CASE("keys must be words, and foreign tags are refused") {
  CHECK(problem_of("? [a]\n: 1\n") == "x.yaml:1: a key must be a word");
  CHECK(problem_of("seed: 1\n~: 1\n") == "x.yaml:2: a key must be a word");
  CHECK(problem_of("note: !!python/name:os.system x") ==
        "x.yaml:1: the YAML tag 'tag:yaml.org,2002:python/name:os.system' means nothing here");
  CHECK(problem_of("data: !thing {batch: 1}") == "x.yaml:1: the YAML tag '!thing' means nothing here");
}

TEST_CASE("aliases stand for their value, and an override of one leaves the other") {
  CHECK(read("labels: &l {a: x}\nnote: &n hi\n").note == "hi");
  const auto config = read("note: &n 3\nseed: *n\n");
  CHECK(config.seed == 3);
  CHECK(config.note == "3");
  CHECK(problem_of("optim: &o {lr: 1, name: sgd}\nlabels: *o\n", {"labels.name=adam"}) == "");
  CHECK(read("optim: &o {lr: 1, name: sgd}\nlabels: *o\n", {"labels.name=adam"}).optim.name == "sgd");
  CHECK(problem_of("labels: &l {a: *l}\n") == "x.yaml:1: an alias refers to the value that contains it");
}

TEST_CASE("aliases of aliases cost no memory") {
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i) {
    bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  }
  CHECK(problem_of(bomb).find("60 problems in the configuration") == 0);
}

TEST_CASE("an override must be key=value, of YAML, on a mapping") {
  CHECK(problem_of("", {"optim.lr"}) ==
        "command line: 'optim.lr': expected key=value, for instance optim.lr=0.1");
  CHECK(problem_of("", {"=3"}).find("command line: '=3': expected key=value") == 0);
  CHECK(problem_of("", {""}).find("command line: '': expected key=value") == 0);
  for (const char* word : {".lr=1", "optim.=1", "optim..lr=1"}) {
    CAPTURE(word);
    CHECK(problem_of("", {word}).find("is not a key; write names joined by single dots") !=
          std::string::npos);
  }
  CHECK(problem_of("", {"optim.lr=[1"}).find("command line: optim.lr: not YAML: ") == 0);
  CHECK(problem_of("\noptim: 3", {"optim.lr=1"}) ==
        "command line: optim.lr: 'optim' is not a mapping but a value, set by x.yaml:2");
  CHECK(problem_of("", {"data.augment=1", "data.augment.flip=true"}) ==
        "command line: data.augment.flip: 'data.augment' is not a mapping but a value, set by command line");
}

TEST_CASE("positions survive comments, blank lines, CR LF and a byte order mark") {
  CHECK(problem_of("# c\r\n\r\nseed: x\r\n") == "x.yaml:3: seed: expected an integer, got 'x'");
  CHECK(problem_of("\xEF\xBB\xBFseed: x\n") == "x.yaml:1: seed: expected an integer, got 'x'");
}

TEST_CASE("a file is loaded by name, and one that cannot be read is the user's mistake") {
  char name[] = "/tmp/lockstep_config_XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::filesystem::path folder = name;
  lockstep::write_file_atomically(folder / "a.yaml", "seed: 5\nlrr: 1\n");
  sample::Config config;
  const std::string expected =
      (folder / "a.yaml").string() + ":2: lrr: unknown key (did you mean 'optim.lr'?)";
  CHECK_THROWS_WITH_AS(lockstep::config::read(Document::load(folder / "a.yaml"), config), expected.c_str(),
                       lockstep::UsageError);
  lockstep::write_file_atomically(folder / "a.yaml", "seed: 5\n");
  Document document = Document::load(folder / "a.yaml", {"note=x"});
  Document moved = std::move(document);
  lockstep::config::read(moved, config);
  CHECK(config.seed == 5);
  CHECK(config.note == "x");
  CHECK_THROWS_AS(Document::load(folder / "none.yaml"), lockstep::UsageError);
  CHECK_THROWS_AS(Document::load(folder), lockstep::UsageError);
  std::filesystem::remove_all(folder);
}
