#include "lockstep/checkpoint/safetensors_header.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

std::string file_of(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + json + std::string(data_bytes, '\x5a');
}

SafetensorsHeader parse(const std::string& json, size_t data_bytes) {
  return parse_safetensors_header(file_of(json, data_bytes), "f.safetensors");
}

// The refusal's text; empty when accepted.
std::string refusal(const std::string& bytes) {
  try {
    parse_safetensors_header(bytes, "f.safetensors");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}
std::string refusal(const std::string& json, size_t data_bytes) { return refusal(file_of(json, data_bytes)); }

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

#define REFUSED(text, ...)                                   \
  do {                                                       \
    const std::string why = refusal(__VA_ARGS__);            \
    CHECK_MESSAGE(why.find(text) != std::string::npos, why); \
    CHECK(why.find("f.safetensors") == 0);                   \
  } while (false)

}  // namespace

TEST_CASE("a header is read: dtypes, shapes, places, metadata, in any order and spacing") {
  const auto header = parse(R"({ "b" : {"shape":[2,3],"data_offsets":[8,14],"dtype":"U8"},
      "__metadata__":{"format":"pt","":"x"}, "a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},
      "none":{"dtype":"F32","shape":[5,0],"data_offsets":[8,8]} }   )",
                            14);
  REQUIRE(header.tensors.size() == 3);
  const size_t data = 14;
  const TensorEntry& b = header.tensors.at("b");
  CHECK(static_cast<int>(b.dtype) == static_cast<int>(at::kByte));
  CHECK(b.shape == std::vector<int64_t>{2, 3});
  CHECK(b.end - b.begin == 6);
  CHECK(b.begin - header.tensors.at("a").begin == 8);
  CHECK(header.tensors.at("a").shape.empty());
  CHECK(header.tensors.at("none").shape == std::vector<int64_t>{5, 0});
  CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"", "x"}});
  CHECK(data == b.end - header.tensors.at("a").begin);
  CHECK(parse("{}", 0).tensors.empty());
}

TEST_CASE("files that are too short or claim too much are refused") {
  REFUSED("has 0 bytes", std::string());
  REFUSED("has 7 bytes", std::string(7, '\0'));
  REFUSED("does not begin with '{'", std::string(8, '\0'));
  REFUSED("claims a header of 18446744073709551615 bytes, the limit is 100000000",
          std::string(8, '\xff') + "{}");
  REFUSED("truncated: the header should have 32", std::string("\x20\0\0\0\0\0\0\0{}", 10));
  uint64_t too_long = 100'000'001;
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &too_long, 8);
  REFUSED("claims a header of 100000001", bytes + "{}");
}

TEST_CASE("headers that are not what the format says are refused") {
  REFUSED("does not begin with '{'", "[]", 0);
  REFUSED("does not begin with '{'", " {}", 0);
  REFUSED("not JSON", "{", 0);
  REFUSED("not JSON", "{}x", 0);
  REFUSED("not JSON", "{\"\xff\":{}}", 0);
  REFUSED("not JSON", "{\"a\":1e999}", 0);
  REFUSED("tensor 'w': is not described by an object", R"({"w":3})", 0);
  REFUSED("nested deeper", R"({"w":{"shape":[[[[[]]]]]}})", 0);
  REFUSED("nested deeper", "{\"w\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0);
  REFUSED("__metadata__ is not an object", R"({"__metadata__":[]})", 0);
  REFUSED("__metadata__ 'epoch' is not text", R"({"__metadata__":{"epoch":3}})", 0);
}

TEST_CASE("names and keys given twice are refused") {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  REFUSED("'w' is in the header twice", "{\"w\":" + entry + ",\"w\":" + entry + "}", 0);
  REFUSED("'\x77' is in the header twice", "{\"w\":" + entry + ",\"\\u0077\":" + entry + "}", 0);
  REFUSED("'dtype' is in the header twice",
          R"({"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0);
  REFUSED("'__metadata__' is in the header twice", R"({"__metadata__":{},"__metadata__":{}})", 0);
  REFUSED("'k' is in the header twice", R"({"__metadata__":{"k":"1","k":"2"}})", 0);
  // The same key in two tensors is no repetition.
  CHECK(refusal("{\"v\":" + entry + ",\"w\":" + entry + "}", 0).empty());
}

TEST_CASE("tensors are refused by name") {
  REFUSED("tensor 'w': has no 'dtype'", R"({"w":{"shape":[0],"data_offsets":[0,0]}})", 0);
  REFUSED("tensor 'w': has no 'shape'", R"({"w":{"dtype":"U8","data_offsets":[0,0]}})", 0);
  REFUSED("tensor 'w': has no 'data_offsets'", R"({"w":{"dtype":"U8","shape":[0]}})", 0);
  REFUSED("unknown key 'offsets'", R"({"w":{"dtype":"U8","shape":[0],"offsets":[0,0]}})", 0);
  REFUSED("tensor 'w': unknown dtype 'float32'; supported are F64, F32", one("float32", "[1]", "[0,4]"), 4);
  for (const char* packed : {"F4", "F6_E2M3", "F6_E3M2"}) {
    REFUSED(fmt::format("tensor 'w': dtype {} packs several values", packed), one(packed, "[2]", "[0,1]"), 1);
  }
  REFUSED("dtype 3 is not text", R"({"w":{"dtype":3,"shape":[0],"data_offsets":[0,0]}})", 0);
  REFUSED("shape 4 is not a list", one("F32", "4", "[0,16]"), 16);
  REFUSED("a size in its shape -1 is not", one("F32", "[-1]", "[0,4]"), 4);
  REFUSED("a size in its shape 1.5 is not", one("F32", "[1.5]", "[0,6]"), 6);
  REFUSED("a size in its shape \"1\" is not", one("F32", "[\"1\"]", "[0,4]"), 4);
  REFUSED("not two numbers", one("F32", "[1]", "[0]"), 4);
  REFUSED("not two numbers", one("F32", "[1]", "[0,2,4]"), 4);
  REFUSED("end before they begin", one("F32", "[1]", "[4,0]"), 4);
  REFUSED("reach beyond the 4 bytes of data in the file; it is truncated", one("F32", "[2]", "[0,8]"), 4);
  REFUSED("reach beyond", one("F32", "[2]", "[18446744073709551608,18446744073709551615]"), 4);
  REFUSED("F32 of shape [2, 3] takes 24 bytes, but its data_offsets [0, 20] hold 20",
          one("F32", "[2,3]", "[0,20]"), 20);
  REFUSED("F32 of shape [] takes 4 bytes", one("F32", "[]", "[0,0]"), 0);
}

TEST_CASE("shapes whose product overflows are refused, also with a zero among the sizes") {
  REFUSED("too large", one("F32", "[4611686018427387904,4]", "[0,0]"),
          0);  // 2^62 · 4 · 4 is 2^66, zero in 64 bits
  REFUSED("too large", one("F64", "[4294967296,4294967296]", "[0,0]"), 0);
  REFUSED("too large", one("U8", "[18446744073709551615]", "[0,1]"), 1);
  REFUSED("too large", one("F32", "[4611686018427387904,4,0]", "[0,0]"), 0);
}

TEST_CASE("overlaps, holes and bytes left over are refused") {
  auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  CHECK(refusal(two("[0,4]", "[4,8]"), 8).empty());
  CHECK(refusal(two("[4,8]", "[0,4]"), 8).empty());
  REFUSED("the bytes of tensors 'a' and 'b' overlap", two("[0,4]", "[2,6]"), 6);
  REFUSED("the bytes of tensors 'a' and 'b' overlap", two("[0,4]", "[0,4]"), 4);
  REFUSED("2 bytes before tensor 'b' belong to no tensor", two("[0,4]", "[6,10]"), 10);
  REFUSED("1 bytes before tensor 'a' belong to no tensor", two("[1,5]", "[5,9]"), 9);
  REFUSED("3 bytes after the last tensor belong to no tensor", two("[0,4]", "[4,8]"), 11);
  REFUSED("1 bytes after the last tensor belong to no tensor", "{}", 1);
}

TEST_CASE("a file cut at any byte is refused, and no flipped byte does worse") {
  const std::string json =
      R"({"__metadata__":{"format":"pt","é":"ü"},"conv.weight":{"dtype":"F32","shape":[2,1,3],"data_offsets":[0,24]},)"
      R"("bias":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},"n":{"dtype":"I64","shape":[],"data_offsets":[28,36]}})";
  const std::string whole = file_of(json, 36);
  REQUIRE(refusal(whole).empty());
  for (size_t length = 0; length < whole.size(); ++length) {
    if (refusal(whole.substr(0, length)).empty()) FAIL("accepted after ", length, " bytes");
  }
  std::mt19937 random(1);
  size_t accepted = 0;
  constexpr int rounds = 30000;
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = whole;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) {
      damaged[random() % (8 + json.size())] =
          round % 2 ? static_cast<char>(random()) : "{}[]\",:0123456789.-e\\"[random() % 21];
    }
    // Only Error or success; anything else fails the test or the sanitizer.
    if (refusal(damaged).empty()) ++accepted;
  }
  CHECK(accepted > 0);  // some flips hit a name
  CHECK(accepted < rounds / 2);
}
