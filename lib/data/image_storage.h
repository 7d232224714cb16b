#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/data/chunk_cache.h"
#include "lockstep/data/hdf5_file.h"

namespace lockstep {

/// How a pixel is held in memory, in this machine's byte order.
enum class PixelType { u8, i16, u16, f16, f32, f64 };

std::string pixel_name(PixelType type);  ///< "uint8" …
int64_t pixel_bytes(PixelType type);
bool is_float(PixelType type);

/// The pixel type a dataset's values convert to without loss (any byte order); none for types that images
/// cannot have.
std::optional<PixelType> pixel_type_of(const h5::Dataset& images);

/// Rows (samples) of one dataset of images, as raw bytes. Thread-safe.
class ImageStorage {
 public:
  /// `position` counts in the list of rows asked for; `row` is valid during the call and not aligned.
  using Visit = std::function<void(size_t position, const std::byte* row)>;
  virtual ~ImageStorage() = default;
  /// Visits every row asked for, once, in any order.
  virtual void read(std::span<const int64_t> rows, const Visit& visit) const = 0;
  virtual bool mapped() const = 0;
  /// Rows that are decoded together; 1 where a single row costs nothing extra.
  virtual int64_t chunk_rows() const = 0;
  virtual int64_t chunk_bytes() const = 0;  ///< of one such group of rows, decoded
};

/// Maps the dataset read-only into memory when it lies in the file as one plain block in this machine's
/// format: no copy, no lock, and its pages belong to the page cache, not to this process's data. The file
/// must not be truncated while it is mapped. Otherwise reads through HDF5 under its lock, whole chunks at a
/// time, which `cache` keeps.
std::unique_ptr<ImageStorage> open_image_storage(h5::File file, h5::Dataset images, PixelType type,
                                                 std::shared_ptr<ChunkCache> cache);

/// What open_image_storage() would do, without doing it.
bool can_be_mapped(const h5::Dataset& images, PixelType type);
int64_t stored_chunk_rows(const h5::Dataset& images);

/// Rows decoded for each row used when batches of `batch` samples are drawn at random from windows of
/// `window_chunks` chunks (0: from all `chunks`) and `cached_chunks` of them stay decoded. 1: each is decoded
/// once.
double read_amplification(int64_t chunk_rows, int64_t chunks, int64_t window_chunks, int64_t cached_chunks,
                          int64_t batch);

}  // namespace lockstep
