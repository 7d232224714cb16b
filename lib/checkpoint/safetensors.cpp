#include "lockstep/checkpoint/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/atomic_file.h"
#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and is used as it is");

void check_tensor(const NamedWeight& weight, const std::string& file) {
  if (weight.name.empty() || weight.name == "__metadata__") {
    fail("{}: '{}' cannot be the name of a tensor", file, weight.name);
  }
  if (!weight.tensor.defined()) fail("{}: tensor '{}' is undefined", file, weight.name);
}

// Wide types first, so that each tensor is aligned to its elements; by name within. As the format's own
// writer does.
std::vector<const NamedWeight*> file_order(const std::vector<NamedWeight>& tensors, const std::string& file) {
  std::vector<const NamedWeight*> order;
  for (const NamedWeight& weight : tensors) {
    check_tensor(weight, file);
    order.push_back(&weight);
  }
  std::sort(order.begin(), order.end(), [](const NamedWeight* a, const NamedWeight* b) {
    const auto size_a = a->tensor.element_size(), size_b = b->tensor.element_size();
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  return order;
}

std::string header_text(const std::vector<const NamedWeight*>& order,
                        const std::map<std::string, std::string>& metadata, const std::string& file) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;  // ordered_json finds a key by walking through all
  uint64_t at = 0;
  for (const NamedWeight* weight : order) {
    if (!names.insert(weight->name).second) fail("{}: tensor '{}' is given twice", file, weight->name);
    const at::Tensor& tensor = weight->tensor;
    nlohmann::ordered_json entry;
    try {
      entry["dtype"] = safetensors_dtype(tensor.scalar_type());
    } catch (const Error& error) {
      fail("{}: tensor '{}': {}", file, weight->name, error.what());
    }
    entry["shape"] = tensor.sizes().vec();
    const uint64_t end = at + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    entry["data_offsets"] = {at, end};
    at = end;
    header.push_back({weight->name, std::move(entry)});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    fail("{}: a tensor's name or the metadata is not UTF-8: {}", file, error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  return text;
}

// The tensor's bytes on the CPU in row-major order, without a copy where they are so already.
at::Tensor row_major(const at::Tensor& tensor) {
  at::Tensor out = tensor.detach();
  if (out.layout() != at::kStrided) out = out.to_dense();
  return out.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedWeight>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto order = file_order(tensors, path.string());
  const std::string header = header_text(order, metadata, path.string());
  const uint64_t length = header.size();
  AtomicFile out(path);
  out.write(&length, sizeof length);
  out.write(header.data(), header.size());
  for (const NamedWeight* weight : order) {
    const at::Tensor data = row_major(weight->tensor);
    out.write(data.const_data_ptr(), data.nbytes());
  }
  out.commit();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      bytes_(std::make_shared<const MappedBytes>(path)),
      header_(parse_safetensors_header(bytes_->bytes(), path.string())) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : header_.tensors) out.push_back(name);
  return out;
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  auto found = header_.tensors.find(name);
  if (found == header_.tensors.end())
    fail("{}: has no tensor '{}'{}", path_.string(), name, did_you_mean(name, names()));
  const TensorEntry& entry = found->second;
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  const char* data = bytes_->bytes().data() + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.mutable_data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  // from_blob wants a mutable pointer; the deleter's copy keeps the mapping.
  return at::from_blob(
      const_cast<char*>(data), entry.shape, [keep = bytes_](void*) {}, options);
}

}  // namespace lockstep
