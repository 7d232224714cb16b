#include "lockstep/data/hdf5_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/data/hdf5_error.h"

namespace lockstep::h5 {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;  // the one piece of global state: the library it guards is global too
  return mutex;
}

Session::Session() : lock_(library_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Session::~Session() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

bool thread_safe() {
  const Session session;
  hbool_t yes = false;
  H5is_library_threadsafe(&yes);
  return yes;
}

std::string version() {
  const Session session;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, H5I_INVALID_HID);
    closer_ = other.closer_;
  }
  return *this;
}

void Handle::reset() {
  if (id_ < 0) return;
  const Session session;
  closer_(id_);
  id_ = H5I_INVALID_HID;
}

Handle half_float_type() {
  const Session session;
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

namespace {

// First bytes of a file, printable, for messages about files that are something else.
std::string first_bytes(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  char bytes[16] = {};
  const size_t count = file ? std::fread(bytes, 1, sizeof(bytes), file.get()) : 0;
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += std::isprint(static_cast<unsigned char>(bytes[i])) ? bytes[i] : '.';
  return text;
}

void require_regular_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const int reason = errno;
    if (reason != ENOENT) fail("{}: cannot be opened: {}", path, std::strerror(reason));
    std::error_code ignored;
    fail("{}: no such file (looked for from the folder {})", path,
         std::filesystem::current_path(ignored).string());
  }
  if (S_ISDIR(info.st_mode)) fail("{}: is a folder; name an HDF5 file", path);
  if (access(path.c_str(), R_OK) != 0) fail("{}: cannot be read: {}", path, std::strerror(errno));
  if (info.st_size == 0) fail("{}: is empty; was its writer interrupted?", path);
}

// Depth-first, bounded: hard links can make cycles.
void collect_datasets(hid_t group, const std::string& prefix, int depth, std::vector<std::string>& names) {
  constexpr int deepest = 16;
  constexpr size_t most = 1000;
  H5G_info_t info{};
  if (depth > deepest || H5Gget_info(group, &info) < 0) return;
  for (hsize_t i = 0; i < info.nlinks && names.size() < most; ++i) {
    const ssize_t length =
        H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (length < 0) continue;
    std::string name(static_cast<size_t>(length) + 1, '\0');
    H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT);
    name.resize(static_cast<size_t>(length));
    const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object) continue;  // a link to nothing
    const H5I_type_t kind = H5Iget_type(object.get());
    if (kind == H5I_DATASET) names.push_back(prefix + name);
    if (kind == H5I_GROUP) collect_datasets(object.get(), prefix + name + "/", depth + 1, names);
  }
}

// H5Lexists wants every intermediate group to exist.
bool link_exists(hid_t file, const std::string& name) {
  for (size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    if (H5Lexists(file, name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

}  // namespace

File File::open(const std::filesystem::path& path) {
  const Session session;
  const std::string name = path.string();
  require_regular_file(name);
  if (H5Fis_hdf5(name.c_str()) <= 0) {
    fail("{}: is not an HDF5 file (it begins with '{}'); convert it with a script of datasets/", name,
         first_bytes(name));
  }
  Handle id(H5Fopen(name.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!id) fail_to_open(name);
  return {name, std::move(id)};
}

std::vector<std::string> File::datasets() const {
  const Session session;
  std::vector<std::string> names;
  const Handle root(H5Gopen2(id_.get(), "/", H5P_DEFAULT), H5Gclose);
  if (root) collect_datasets(root.get(), "/", 0, names);
  return names;
}

bool File::has_dataset(const std::string& name) const {
  const Session session;
  if (name.size() < 2 || !link_exists(id_.get(), name)) return false;
  const Handle object(H5Oopen(id_.get(), name.c_str(), H5P_DEFAULT), H5Oclose);
  return object && H5Iget_type(object.get()) == H5I_DATASET;
}

Dataset File::dataset(const std::string& name) const {
  const Session session;
  if (!has_dataset(name)) {
    const std::vector<std::string> there = datasets();
    refuse("{}: there is no dataset '{}'{}; the file holds: {}", path_, name, did_you_mean(name, there),
           there.empty() ? "no dataset at all" : join(there));
  }
  // Rows are read chunk by chunk and kept by the caller: HDF5's own chunk cache would only hold them twice.
  const Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_chunk_cache(access.get(), 1, 0, 1.0);
  Handle id(H5Dopen2(id_.get(), name.c_str(), access.get()), H5Dclose);
  if (!id) fail("{}: dataset '{}' cannot be opened: {}", path_, name, error_text());
  return {std::move(id), name, path_};
}

}  // namespace lockstep::h5
