#include "lockstep/core/registry.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>

using namespace lockstep;

TEST_CASE("a registry gives back what was added, by name") {
  Registry<std::function<int(int)>> registry("model");
  registry.add(
      "twice", [](int x) { return 2 * x; }, "Doubles");
  registry.add(
      "next", [](int x) { return x + 1; }, "Adds one");
  CHECK(registry.get("twice")(4) == 8);
  CHECK(registry.get("next")(4) == 5);
  CHECK(registry.contains("next"));
  CHECK_FALSE(registry.contains("nxt"));
  CHECK(registry.names() == std::vector<std::string>{"next", "twice"});
  CHECK(registry.description("twice") == "Doubles");
}

TEST_CASE("an unknown name lists what there is, and the nearest") {
  Registry<int> registry("model");
  registry.add("resnet18", 18, "ResNet-18");
  registry.add("vgg11", 11, "VGG-11");
  const char* text = "unknown model 'resnet19' (did you mean 'resnet18'?); there are: resnet18, vgg11";
  CHECK_THROWS_WITH_AS(registry.get("resnet19"), text, UsageError);
  CHECK_THROWS_WITH_AS(registry.description("resnet19"), text, UsageError);
  CHECK_THROWS_WITH_AS(registry.get("x"), "unknown model 'x'; there are: resnet18, vgg11", UsageError);
}

TEST_CASE("a second entry of the same name is refused, and the first stays") {
  Registry<int> registry("task");
  registry.add("a", 1, "one");
  CHECK_THROWS_WITH_AS(registry.add("a", 2, "two"), "task 'a' is registered twice", UsageError);
  CHECK(registry.get("a") == 1);
  CHECK(registry.description("a") == "one");
}

TEST_CASE("factories that cannot be copied are held") {
  Registry<std::unique_ptr<int>> registry("thing");
  registry.add("a", std::make_unique<int>(7), "seven");
  CHECK(*registry.get("a") == 7);
}
