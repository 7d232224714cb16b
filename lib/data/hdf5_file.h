#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::h5 {

/// The lock that every call of the HDF5 library in this process must hold: many builds are not thread-safe,
/// and those that are serialise all calls anyway. Recursive. Other code that calls HDF5 while a Loader runs
/// takes it too.
std::recursive_mutex& library_mutex();

/// Holds library_mutex() and keeps HDF5 from printing its error stack while it lives.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
};

bool thread_safe();     ///< the linked library was built thread-safe
std::string version();  ///< of the linked library, "1.10.8"

/// Owns an HDF5 identifier.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept;
  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  void reset();

 private:
  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

/// The 16-bit IEEE float as h5py stores it, which HDF5 1.10 has no constant for.
Handle half_float_type();

/// One dataset of a file, opened for reading.
class Dataset {
 public:
  Dataset(Handle id, std::string name, std::string file);

  hid_t id() const { return id_.get(); }
  const std::string& name() const { return name_; }           ///< "/train/images"
  std::string where() const { return file_ + ": " + name_; }  ///< for messages
  const std::string& file() const { return file_; }
  const std::vector<int64_t>& shape() const { return shape_; }  ///< empty for a scalar
  int64_t rows() const { return shape_.empty() ? 1 : shape_.front(); }
  int64_t row_elements() const;  ///< elements of one row

  H5T_class_t type_class() const { return type_class_; }
  size_t type_bytes() const;
  bool is_unsigned() const;
  bool stored_as(hid_t type) const;  ///< exactly this type, byte order included
  std::string type_name() const;  ///< "uint8", "big-endian int32", "float16", "variable-length string", …

  const std::vector<int64_t>& chunk() const { return chunk_; }  ///< empty unless the storage is chunked
  std::vector<std::string> filters() const;                     ///< "gzip 4", "shuffle", …
  std::string storage() const;    ///< "contiguous" or "chunks of 500×32×32×3, gzip 4"
  int64_t storage_bytes() const;  ///< bytes it takes in the file

  /// Where the values lie in the file when they lie there as one plain block; none for chunked, compact,
  /// external, virtual or never written storage, and where the file is too short.
  std::optional<int64_t> file_offset() const;

  /// Rows [first, first + count) converted to `memory_type` into `out`. Throws Error naming the file and the
  /// rows.
  void read_rows(int64_t first, int64_t count, hid_t memory_type, void* out) const;

  /// Texts of rows [first, first + count) of a one-dimensional string dataset, whichever way they are stored:
  /// variable or fixed length; null-terminated, null- or space-padded (the padding is removed). Throws Error
  /// for a dataset that is not text.
  std::vector<std::string> read_strings(int64_t first, int64_t count) const;

 private:
  Handle id_;
  std::string name_;
  std::string file_;
  Handle type_;
  H5T_class_t type_class_ = H5T_NO_CLASS;
  H5D_layout_t layout_ = H5D_LAYOUT_ERROR;
  std::vector<int64_t> shape_;
  std::vector<int64_t> chunk_;
};

/// An HDF5 file opened read-only.
class File {
 public:
  /// Throws Error saying which it is: no such file, a folder, unreadable, not HDF5, truncated (with the
  /// actual and the expected size), locked by another process (with the remedy), or what HDF5 itself says.
  static File open(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  hid_t id() const { return id_.get(); }

  /// Names of all datasets, "/train/images" …, sorted within each group.
  std::vector<std::string> datasets() const;
  bool has_dataset(const std::string& name) const;
  /// Throws UsageError listing the datasets there are, and the nearest name, where there is none of this
  /// name.
  Dataset dataset(const std::string& name) const;

 private:
  File(std::string path, Handle id) : path_(std::move(path)), id_(std::move(id)) {}
  std::string path_;
  Handle id_;
};

/// Text attribute of a file, group or dataset as a list (a scalar is a list of one); empty where there is
/// none. Any string storage.
std::vector<std::string> text_attribute(hid_t object, const std::string& name, const std::string& where);

/// Numeric attribute, a scalar or a list, of any integer or float type; empty where there is none.
std::vector<double> number_attribute(hid_t object, const std::string& name, const std::string& where);

}  // namespace lockstep::h5
