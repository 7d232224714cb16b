// Reads timing.h5 back through the HDF5 C API, independently of its writer: a copy of what is on disk,
// because HDF5 shares what it has in memory between those in one process that open the same file.
#pragma once

#include <doctest/doctest.h>
#include <hdf5.h>

#include <filesystem>
#include <string>
#include <vector>

#include "temporary_folder.h"

class TimingReader {
 public:
  explicit TimingReader(const std::filesystem::path& path) {
    std::filesystem::copy_file(path, folder_ / "copy.h5");
    file_ = H5Fopen((folder_ / "copy.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    REQUIRE(file_ >= 0);
  }
  ~TimingReader() { H5Fclose(file_); }

  std::vector<hsize_t> shape(const char* name) const {
    const hid_t data = H5Dopen2(file_, name, H5P_DEFAULT);
    REQUIRE(data >= 0);
    const hid_t space = H5Dget_space(data);
    std::vector<hsize_t> dims(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    H5Sclose(space);
    H5Dclose(data);
    return dims;
  }

  std::vector<double> doubles(const char* name) const { return read<double>(name, H5T_NATIVE_DOUBLE); }
  std::vector<int64_t> integers(const char* name) const { return read<int64_t>(name, H5T_NATIVE_INT64); }

  std::vector<std::string> texts(const char* name) const {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    const std::vector<char*> raw = read<char*>(name, type);
    H5Tclose(type);
    std::vector<std::string> out;
    for (char* text : raw) {
      out.emplace_back(text);
      H5free_memory(text);
    }
    return out;
  }

  int64_t attribute(const char* name) const {
    const hid_t id = H5Aopen(file_, name, H5P_DEFAULT);
    REQUIRE(id >= 0);
    int64_t value = -1;
    REQUIRE(H5Aread(id, H5T_NATIVE_INT64, &value) >= 0);
    H5Aclose(id);
    return value;
  }

 private:
  template <class T>
  std::vector<T> read(const char* name, hid_t type) const {
    size_t count = 1;
    for (hsize_t n : shape(name)) count *= n;
    std::vector<T> out(count);
    const hid_t data = H5Dopen2(file_, name, H5P_DEFAULT);
    REQUIRE(H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) >= 0);
    H5Dclose(data);
    return out;
  }

  TemporaryFolder folder_;
  hid_t file_ = H5I_INVALID_HID;
};
