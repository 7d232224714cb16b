// Writes small HDF5 files for the tests through the C API, independently of the library's own reader.
#pragma once

#include <doctest/doctest.h>
#include <hdf5.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::test {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("lockstep-data-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Storage {
  std::vector<hsize_t> chunk;  // empty: contiguous
  int gzip = 0;
  bool shuffle = false;
};

class Writer {
 public:
  explicit Writer(const std::string& path, hsize_t userblock = 0) {
    const hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_userblock(creation, userblock);
    file_ = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT);
    H5Pclose(creation);
    REQUIRE(file_ >= 0);
  }
  ~Writer() {
    if (file_ >= 0) H5Fclose(file_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  hid_t id() const { return file_; }

  // Values given as `memory_type`, stored as `file_type`; groups on the way are made.
  void dataset(const std::string& name, const std::vector<hsize_t>& shape, hid_t file_type, hid_t memory_type,
               const void* values, const Storage& storage = {}) {
    const hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (!storage.chunk.empty())
      H5Pset_chunk(creation, static_cast<int>(storage.chunk.size()), storage.chunk.data());
    if (storage.shuffle) H5Pset_shuffle(creation);
    if (storage.gzip > 0) H5Pset_deflate(creation, static_cast<unsigned>(storage.gzip));
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t id = H5Dcreate2(file_, name.c_str(), file_type, space, links, creation, H5P_DEFAULT);
    REQUIRE(id >= 0);
    if (values != nullptr) REQUIRE(H5Dwrite(id, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(id);
    H5Sclose(space);
    H5Pclose(creation);
    H5Pclose(links);
  }

  template <class T>
  void bytes(const std::string& name, const std::vector<hsize_t>& shape, const std::vector<T>& values,
             const Storage& storage = {}) {
    dataset(name, shape, native<T>(), native<T>(), values.data(), storage);
  }

  void labels(const std::string& name, const std::vector<int64_t>& values) {
    bytes(name, {values.size()}, values);
  }

  // A text attribute of variable length; `object` "/" or a dataset.
  void text(const std::string& object, const std::string& name, const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    for (const std::string& each : texts) pointers.push_back(each.c_str());
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    attribute(object, name, type, pointers.size(), pointers.data());
    H5Tclose(type);
  }
  void numbers(const std::string& object, const std::string& name, const std::vector<double>& values) {
    attribute(object, name, H5T_NATIVE_DOUBLE, values.size(), values.data());
  }

  template <class T>
  static hid_t native() {
    if constexpr (std::is_same_v<T, uint8_t>) return H5T_NATIVE_UINT8;
    if constexpr (std::is_same_v<T, int16_t>) return H5T_NATIVE_INT16;
    if constexpr (std::is_same_v<T, uint16_t>) return H5T_NATIVE_UINT16;
    if constexpr (std::is_same_v<T, int32_t>) return H5T_NATIVE_INT32;
    if constexpr (std::is_same_v<T, int64_t>) return H5T_NATIVE_INT64;
    if constexpr (std::is_same_v<T, uint64_t>) return H5T_NATIVE_UINT64;
    if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
    if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
    return H5I_INVALID_HID;
  }

 private:
  void attribute(const std::string& object, const std::string& name, hid_t type, hsize_t count,
                 const void* values) {
    const hid_t owner = H5Oopen(file_, object.c_str(), H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t id = H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(id >= 0);
    REQUIRE(H5Awrite(id, type, values) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Oclose(owner);
  }
  hid_t file_ = H5I_INVALID_HID;
};

// What a call throws, as text; "" where it throws nothing.
template <class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The text holds each of the words.
inline void check_holds(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    INFO("message: ", text, "\nshould hold: ", word);
    CHECK(text.find(word) != std::string::npos);
  }
}

}  // namespace lockstep::test
