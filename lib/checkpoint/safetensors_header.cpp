#include "lockstep/checkpoint/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr uint64_t prefix_bytes = 8;
constexpr uint64_t most_header_bytes = 100'000'000;  // the format's own limit

struct DtypeName {
  const char* name;
  at::ScalarType type;
};
constexpr DtypeName dtypes[] = {{"F64", at::kDouble},
                                {"F32", at::kFloat},
                                {"F16", at::kHalf},
                                {"BF16", at::kBFloat16},
                                {"I64", at::kLong},
                                {"I32", at::kInt},
                                {"I16", at::kShort},
                                {"I8", at::kChar},
                                {"U8", at::kByte},
                                {"BOOL", at::kBool},
                                {"U16", at::kUInt16},
                                {"U32", at::kUInt32},
                                {"U64", at::kUInt64},
                                {"F8_E4M3", at::kFloat8_e4m3fn},
                                {"F8_E5M2", at::kFloat8_e5m2},
                                {"C64", at::kComplexFloat}};
constexpr const char* packed_dtypes[] = {"F4", "F6_E2M3", "F6_E3M2"};

at::ScalarType parse_dtype(const std::string& name, const std::string& where) {
  for (const DtypeName& known : dtypes) {
    if (name == known.name) return known.type;
  }
  for (const char* packed : packed_dtypes) {
    if (name == packed) {
      fail(
          "{}: dtype {} packs several values into a byte, which is not supported; convert the file to F32, "
          "BF16 or F16",
          where, name);
    }
  }
  std::vector<std::string> names;
  for (const DtypeName& known : dtypes) names.emplace_back(known.name);
  fail("{}: unknown dtype '{}'; supported are {}", where, name, join(names));
}

// Parses the JSON text, refusing keys given twice (a plain parser would silently take the last) and deep
// nesting.
json parse_json(std::string_view text, const std::string& file) {
  std::set<std::string> names, inner;
  auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 3) fail("{}: the header is nested deeper than a safetensors header is", file);
    if (event == json::parse_event_t::object_start && depth == 1) inner.clear();
    if (event == json::parse_event_t::key) {
      auto& seen = depth == 1 ? names : inner;
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second) fail("{}: '{}' is in the header twice", file, key);
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    fail("{}: the header is not JSON; the file is damaged or not a safetensors file: {}", file, error.what());
  }
}

uint64_t unsigned_number(const json& value, const char* what, const std::string& where) {
  if (!value.is_number_unsigned()) fail("{}: {} {} is not a whole number ≥ 0", where, what, value.dump());
  return value.get<uint64_t>();
}

const json& member(const json& object, const char* key, const std::string& where) {
  auto found = object.find(key);
  if (found == object.end()) fail("{}: has no '{}'", where, key);
  return *found;
}

std::vector<int64_t> parse_shape(const json& value, const std::string& where) {
  if (!value.is_array()) fail("{}: shape {} is not a list", where, value.dump());
  std::vector<int64_t> shape;
  for (const json& size : value) {
    const uint64_t n = unsigned_number(size, "a size in its shape", where);
    if (n > static_cast<uint64_t>(INT64_MAX)) fail("{}: size {} in its shape is too large", where, n);
    shape.push_back(static_cast<int64_t>(n));
  }
  return shape;
}

uint64_t bytes_of(const TensorEntry& entry, const std::string& where) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  // A size of zero makes the product zero, but the others must not overflow either: strides are made of them.
  bool overflow = false;
  uint64_t nonzero = bytes;
  for (int64_t size : entry.shape) {
    overflow |= __builtin_mul_overflow(nonzero, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &nonzero);
    bytes *= static_cast<uint64_t>(size);
  }
  if (overflow || nonzero > static_cast<uint64_t>(INT64_MAX)) {
    fail("{}: shape [{}] is too large for any memory", where, fmt::join(entry.shape, ", "));
  }
  return bytes;
}

// `data`: where the tensors' bytes begin in the file, and how many there are.
TensorEntry parse_entry(const json& value, uint64_t data_begin, uint64_t data_bytes,
                        const std::string& where) {
  if (!value.is_object()) fail("{}: is not described by an object", where);
  for (const auto& item : value.items()) {
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      fail("{}: unknown key '{}'; a safetensors header has dtype, shape and data_offsets", where, item.key());
    }
  }
  TensorEntry entry;
  const json& dtype = member(value, "dtype", where);
  if (!dtype.is_string()) fail("{}: dtype {} is not text", where, dtype.dump());
  entry.dtype = parse_dtype(dtype.get<std::string>(), where);
  entry.shape = parse_shape(member(value, "shape", where), where);
  const json& offsets = member(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2)
    fail("{}: data_offsets {} are not two numbers", where, offsets.dump());
  const uint64_t begin = unsigned_number(offsets[0], "data offset", where);
  const uint64_t end = unsigned_number(offsets[1], "data offset", where);
  if (begin > end) fail("{}: data_offsets [{}, {}] end before they begin", where, begin, end);
  if (end > data_bytes) {
    fail(
        "{}: data_offsets [{}, {}] reach beyond the {} bytes of data in the file; it is truncated or "
        "damaged, copy or download "
        "it again",
        where, begin, end, data_bytes);
  }
  const uint64_t expected = bytes_of(entry, where);
  if (end - begin != expected) {
    fail("{}: {} of shape [{}] takes {} bytes, but its data_offsets [{}, {}] hold {}", where,
         dtype.get<std::string>(), fmt::join(entry.shape, ", "), expected, begin, end, end - begin);
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

// The format forbids overlaps, holes and bytes after the last tensor: each could hide something else in the
// file.
void check_cover(const SafetensorsHeader& header, uint64_t data_begin, uint64_t data_bytes,
                 const std::string& file) {
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  for (const auto& named : header.tensors) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t at = data_begin;
  const std::string* before = nullptr;
  for (const auto* named : order) {
    const TensorEntry& entry = named->second;
    if (entry.begin < at) fail("{}: the bytes of tensors '{}' and '{}' overlap", file, *before, named->first);
    if (entry.begin > at) {
      fail("{}: {} bytes before tensor '{}' belong to no tensor", file, entry.begin - at, named->first);
    }
    at = entry.end;
    before = &named->first;
  }
  const uint64_t rest = data_begin + data_bytes - at;
  if (rest > 0) fail("{}: {} bytes after the last tensor belong to no tensor", file, rest);
}

}  // namespace

std::string safetensors_dtype(at::ScalarType type) {
  for (const DtypeName& known : dtypes) {
    if (type == known.type) return known.name;
  }
  fail("safetensors files cannot hold tensors of type {}", c10::toString(type));
}

SafetensorsHeader parse_safetensors_header(std::string_view bytes, const std::string& file) {
  if (bytes.size() < prefix_bytes) {
    fail("{}: has {} bytes; a safetensors file begins with {} that tell its header's length", file,
         bytes.size(), prefix_bytes);
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), prefix_bytes);
  if (length > most_header_bytes) {
    fail("{}: claims a header of {} bytes, the limit is {}; not a safetensors file, or damaged", file, length,
         most_header_bytes);
  }
  if (length > bytes.size() - prefix_bytes) {
    fail(
        "{}: truncated: the header should have {} bytes, the file has {} after the length; copy or download "
        "it again",
        file, length, bytes.size() - prefix_bytes);
  }
  const std::string_view text = bytes.substr(prefix_bytes, length);
  if (text.empty() || text.front() != '{')
    fail("{}: the header does not begin with '{{'; not a safetensors file", file);
  const json root = parse_json(text, file);

  SafetensorsHeader header;
  const uint64_t data_begin = prefix_bytes + length, data_bytes = bytes.size() - data_begin;
  for (const auto& [name, value] : root.items()) {
    if (name != "__metadata__") {
      header.tensors.emplace(
          name, parse_entry(value, data_begin, data_bytes, fmt::format("{}: tensor '{}'", file, name)));
      continue;
    }
    if (!value.is_object()) fail("{}: __metadata__ is not an object", file);
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) fail("{}: __metadata__ '{}' is not text", file, key);
      header.metadata.emplace(key, entry.get<std::string>());
    }
  }
  check_cover(header, data_begin, data_bytes, file);
  return header;
}

}  // namespace lockstep
