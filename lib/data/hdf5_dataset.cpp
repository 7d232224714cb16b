#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/data/hdf5_error.h"
#include "lockstep/data/hdf5_file.h"

namespace lockstep::h5 {
namespace {

std::string type_text(hid_t type) {
  const size_t bytes = H5Tget_size(type);
  const std::string order = bytes > 1 && H5Tget_order(type) == H5T_ORDER_BE ? "big-endian " : "";
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return fmt::format("{}{}int{}", order, H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", 8 * bytes);
    case H5T_FLOAT:
      return fmt::format("{}float{}", order, 8 * bytes);
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0 ? "variable-length string"
                                          : fmt::format("string of {} bytes", bytes);
    case H5T_ENUM:
      return fmt::format("enumeration of {} bytes", bytes);
    case H5T_COMPOUND:
      return "compound";
    case H5T_VLEN:
      return "variable-length array";
    case H5T_ARRAY:
      return "array";
    case H5T_REFERENCE:
      return "reference";
    case H5T_OPAQUE:
      return "opaque";
    default:
      return "unknown type";
  }
}

// One text of a fixed-width field, its padding removed.
std::string trimmed(const char* field, size_t width, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return {field, strnlen(field, width)};
  const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
  while (width > 0 && field[width - 1] == pad) --width;
  return {field, width};
}

// Texts of `count` elements; `read` fills a buffer of the given memory type, `space` describes the elements
// in memory.
template <class Read>
std::vector<std::string> read_texts(hid_t type, hid_t space, size_t count, const std::string& where,
                                    Read&& read) {
  if (H5Tget_class(type) != H5T_STRING)
    fail("{}: text was expected, but it holds {}", where, type_text(type));
  std::vector<std::string> texts(count);
  if (count == 0) return texts;
  if (H5Tis_variable_str(type) > 0) {
    std::vector<char*> pointers(count, nullptr);
    struct Reclaim {  // HDF5 allocates every text; whatever happens they go back
      hid_t type, space;
      std::vector<char*>& pointers;
      ~Reclaim() { H5Dvlen_reclaim(type, space, H5P_DEFAULT, pointers.data()); }
    } const reclaim{type, space, pointers};
    if (!read(static_cast<void*>(pointers.data()))) fail("{}: cannot be read: {}", where, error_text());
    std::transform(pointers.begin(), pointers.end(), texts.begin(), [](const char* p) { return p ? p : ""; });
    return texts;
  }
  const size_t width = H5Tget_size(type);
  std::vector<char> fields(count * width);
  if (!read(static_cast<void*>(fields.data()))) fail("{}: cannot be read: {}", where, error_text());
  const H5T_str_t padding = H5Tget_strpad(type);
  for (size_t i = 0; i < count; ++i) texts[i] = trimmed(fields.data() + i * width, width, padding);
  return texts;
}

// An attribute with its number of elements; an empty handle where there is none.
std::pair<Handle, size_t> open_attribute(hid_t object, const std::string& name, const std::string& where) {
  if (H5Aexists(object, name.c_str()) <= 0) return {};
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) fail("{}: attribute '{}' cannot be opened: {}", where, name, error_text());
  const Handle space(H5Aget_space(attribute.get()), H5Sclose);
  return {std::move(attribute),
          static_cast<size_t>(std::max<hssize_t>(0, H5Sget_simple_extent_npoints(space.get())))};
}

}  // namespace

Dataset::Dataset(Handle id, std::string name, std::string file)
    : id_(std::move(id)), name_(std::move(name)), file_(std::move(file)) {
  const Session session;
  type_ = Handle(H5Dget_type(id_.get()), H5Tclose);
  type_class_ = H5Tget_class(type_.get());
  const Handle space(H5Dget_space(id_.get()), H5Sclose);
  const int rank = std::max(0, H5Sget_simple_extent_ndims(space.get()));
  std::vector<hsize_t> sizes(static_cast<size_t>(rank));
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  shape_.assign(sizes.begin(), sizes.end());
  const Handle creation(H5Dget_create_plist(id_.get()), H5Pclose);
  layout_ = H5Pget_layout(creation.get());
  if (layout_ == H5D_CHUNKED) {
    H5Pget_chunk(creation.get(), rank, sizes.data());
    chunk_.assign(sizes.begin(), sizes.end());
  }
}

int64_t Dataset::row_elements() const {
  int64_t elements = 1;
  for (size_t i = 1; i < shape_.size(); ++i) elements *= shape_[i];
  return elements;
}

size_t Dataset::type_bytes() const {
  const Session session;
  return H5Tget_size(type_.get());
}

bool Dataset::is_unsigned() const {
  const Session session;
  return type_class_ == H5T_INTEGER && H5Tget_sign(type_.get()) == H5T_SGN_NONE;
}

bool Dataset::stored_as(hid_t type) const {
  const Session session;
  return H5Tequal(type_.get(), type) > 0;
}

std::string Dataset::type_name() const {
  const Session session;
  return type_text(type_.get());
}

std::vector<std::string> Dataset::filters() const {
  const Session session;
  const Handle creation(H5Dget_create_plist(id_.get()), H5Pclose);
  std::vector<std::string> names;
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    unsigned flags = 0, config = 0;
    unsigned values[8] = {};
    size_t count = std::size(values);
    char name[64] = {};
    const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &count,
                                               values, sizeof(name), name, &config);
    if (filter == H5Z_FILTER_DEFLATE) {
      names.push_back(fmt::format("gzip {}", values[0]));
    } else {
      names.emplace_back(name[0] != '\0' ? std::string(name)
                                         : fmt::format("filter {}", static_cast<int>(filter)));
    }
  }
  return names;
}

std::string Dataset::storage() const {
  switch (layout_) {
    case H5D_COMPACT:
      return "compact";
    case H5D_CONTIGUOUS:
      return "contiguous";
    case H5D_VIRTUAL:
      return "virtual";
    default:
      break;
  }
  std::vector<std::string> sizes;
  for (int64_t size : chunk_) sizes.push_back(std::to_string(size));
  std::string text = "chunks of " + join(sizes, "×");
  for (const std::string& filter : filters()) text += ", " + filter;
  return text;
}

int64_t Dataset::storage_bytes() const {
  const Session session;
  return static_cast<int64_t>(H5Dget_storage_size(id_.get()));
}

std::optional<int64_t> Dataset::file_offset() const {
  const Session session;
  const Handle creation(H5Dget_create_plist(id_.get()), H5Pclose);
  if (layout_ != H5D_CONTIGUOUS || H5Pget_external_count(creation.get()) != 0) return std::nullopt;
  const haddr_t offset = H5Dget_offset(id_.get());
  if (offset == HADDR_UNDEF) return std::nullopt;
  const auto bytes = static_cast<uint64_t>(rows() * row_elements()) * H5Tget_size(type_.get());
  std::error_code problem;
  const uint64_t file_bytes = std::filesystem::file_size(file_, problem);
  if (problem || H5Dget_storage_size(id_.get()) != bytes || offset + bytes > file_bytes) return std::nullopt;
  return static_cast<int64_t>(offset);
}

void Dataset::read_rows(int64_t first, int64_t count, hid_t memory_type, void* out) const {
  if (count == 0) return;
  const Session session;
  if (shape_.empty() || first < 0 || count < 0 || first + count > rows()) {
    fail("{}: rows {} to {} were asked for, it has {}", where(), first, first + count - 1,
         shape_.empty() ? 0 : rows());
  }
  const Handle space(H5Dget_space(id_.get()), H5Sclose);
  std::vector<hsize_t> start(shape_.size(), 0);
  std::vector<hsize_t> size(shape_.begin(), shape_.end());
  start[0] = static_cast<hsize_t>(first);
  size[0] = static_cast<hsize_t>(count);
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr);
  const Handle memory(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose);
  if (H5Dread(id_.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, out) < 0) {
    fail("{}: rows {} to {} cannot be read: {}", where(), first, first + count - 1, error_text());
  }
}

std::vector<std::string> Dataset::read_strings(int64_t first, int64_t count) const {
  const Session session;
  if (shape_.size() != 1 && count > 0)
    fail("{}: a list of texts was expected, it has {} dimensions", where(), shape_.size());
  const auto elements = static_cast<hsize_t>(count);
  const Handle memory(H5Screate_simple(1, &elements, nullptr), H5Sclose);
  return read_texts(type_.get(), memory.get(), elements, where(), [&](void* out) {
    read_rows(first, count, type_.get(), out);
    return true;
  });
}

std::vector<std::string> text_attribute(hid_t object, const std::string& name, const std::string& where) {
  const Session session;
  const auto [attribute, count] = open_attribute(object, name, where);
  if (!attribute) return {};
  const hid_t id = attribute.get();
  const Handle type(H5Aget_type(id), H5Tclose);
  const Handle space(H5Aget_space(id), H5Sclose);
  return read_texts(type.get(), space.get(), count, fmt::format("{}: attribute '{}'", where, name),
                    [&](void* out) { return H5Aread(id, type.get(), out) >= 0; });
}

std::vector<double> number_attribute(hid_t object, const std::string& name, const std::string& where) {
  const Session session;
  const auto [attribute, count] = open_attribute(object, name, where);
  if (!attribute) return {};
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
    fail("{}: attribute '{}' should hold numbers, but it holds {}", where, name, type_text(type.get()));
  }
  std::vector<double> values(count);
  if (count > 0 && H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    fail("{}: attribute '{}' cannot be read: {}", where, name, error_text());
  }
  return values;
}

}  // namespace lockstep::h5
