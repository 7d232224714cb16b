#include "lockstep/core/nearest.h"

#include <doctest/doctest.h>

using namespace lockstep;

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "abd") == 1);
  CHECK(edit_distance("abc", "abcd") == 1);
  CHECK(edit_distance("abc", "ac") == 1);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);  // a swapped pair is not edited again
  CHECK(edit_distance("momentum", "momemtun") == edit_distance("momemtun", "momentum"));
}

TEST_CASE("the nearest word is found whatever the case, and only if it is near") {
  const std::vector<std::string> names = {"resnet18", "resnet34", "mobilenet_v2", "vit_tiny", "lr"};
  CHECK(nearest_word("resnet81", names) == "resnet18");
  CHECK(nearest_word("ResNet34", names) == "resnet34");
  CHECK(nearest_word("mobilnet_v2", names) == "mobilenet_v2");
  CHECK(nearest_word("mobilenetv2", names) == "mobilenet_v2");
  CHECK(nearest_word("xyz", names) == "");
  CHECK(nearest_word("densenet121", names) == "");
  CHECK(nearest_word("resnet18", {}) == "");
  CHECK(nearest_word("", names) == "");
}

TEST_CASE("short words with nothing in common are not near") {
  CHECK(nearest_word("a", {"b"}) == "");
  CHECK(nearest_word("A", {"a"}) == "a");
  CHECK(nearest_word("l", {"lr"}) == "lr");
  CHECK(nearest_word("", {"x"}) == "");
}

TEST_CASE("of equally near words the first is taken, of nearer ones the nearest") {
  CHECK(nearest_word("net3", {"net1", "net2"}) == "net1");
  CHECK(nearest_word("train", {"grain", "trains"}) == "grain");
  CHECK(nearest_word("batches", {"batch", "batched"}) == "batched");
}

TEST_CASE("did_you_mean is a parenthesis or nothing") {
  CHECK(did_you_mean("momentun", {"momentum"}) == " (did you mean 'momentum'?)");
  CHECK(did_you_mean("zzz", {"momentum"}) == "");
}

TEST_CASE("join") {
  CHECK(join({}) == "");
  CHECK(join({"a"}) == "a");
  CHECK(join({"a", "b", "c"}) == "a, b, c");
  CHECK(join({"a", "b"}, " | ") == "a | b");
  CHECK(join({"", "b", ""}) == ", b, ");
}
