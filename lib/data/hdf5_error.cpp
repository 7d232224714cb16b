#include "lockstep/data/hdf5_error.h"

#include <hdf5.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep::h5 {
namespace {

std::vector<std::string> error_stack() {
  std::vector<std::string> texts;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
        if (entry->desc != nullptr) static_cast<std::vector<std::string>*>(out)->emplace_back(entry->desc);
        return 0;
      },
      &texts);
  return texts;
}

// The number that follows `label` in a text; -1 where there is none.
long long number_after(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  long long value = -1;
  if (at != std::string::npos) std::sscanf(text.c_str() + at + label.size(), "%lld", &value);
  return value;
}

}  // namespace

std::string error_text() {
  std::vector<std::string> texts = error_stack();
  if (texts.size() > 3) texts.resize(3);
  return texts.empty() ? "HDF5 gives no reason" : "HDF5 says: " + join(texts, "; ");
}

void fail_to_open(const std::string& path) {
  const std::string text = join(error_stack(), "; ");
  if (text.find("truncated file") != std::string::npos) {
    const long long expected = number_after(text, "stored_eof = ") + number_after(text, "base_addr = ");
    std::error_code ignored;
    fail(
        "{}: truncated: the file has {} bytes but should have {}; copy or create it again (an interrupted "
        "download, a full "
        "disk or a killed writer leaves such files)",
        path, std::filesystem::file_size(path, ignored), expected);
  }
  if (text.find("unable to lock file") != std::string::npos) {
    const long long reason = number_after(text, "errno = ");
    constexpr long long held = 11;  // EAGAIN
    if (reason == held) {
      fail(
          "{}: locked by another process that has it open for writing; close that program (a notebook, a "
          "converter) and start "
          "again, or set HDF5_USE_FILE_LOCKING=FALSE if you are sure that it writes no more",
          path);
    }
    fail("{}: cannot be locked (errno {}): its file system has no locks; set HDF5_USE_FILE_LOCKING=FALSE",
         path, reason);
  }
  if (text.find("already open for write") != std::string::npos) {
    fail(
        "{}: marked as open for writing: close the writer, or if it was killed clear the mark with `h5clear "
        "-s {}`",
        path, path);
  }
  fail(
      "{}: cannot be opened as HDF5, the file is damaged or its writer never closed it; create it again ({})",
      path, error_text());
}

}  // namespace lockstep::h5
