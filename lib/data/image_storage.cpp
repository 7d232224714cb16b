#include "lockstep/data/image_storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// The type's memory format for H5Dread.
h5::Handle memory_type(PixelType type) {
  if (type == PixelType::f16) return h5::half_float_type();
  const h5::Session session;
  hid_t native = H5T_NATIVE_UINT8;
  if (type == PixelType::i16) native = H5T_NATIVE_INT16;
  if (type == PixelType::u16) native = H5T_NATIVE_UINT16;
  if (type == PixelType::f32) native = H5T_NATIVE_FLOAT;
  if (type == PixelType::f64) native = H5T_NATIVE_DOUBLE;
  return {H5Tcopy(native), H5Tclose};
}

// A read-only mapping of part of a file. Shared and never written: the kernel may drop its pages at any time.
class Mapping {
 public:
  Mapping(const std::string& path, int64_t offset, int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t begin = offset / page * page;
    length_ = static_cast<size_t>(offset - begin + bytes);
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail("{}: cannot be opened: {}", path, std::strerror(errno));
    address_ = mmap(nullptr, length_, PROT_READ, MAP_SHARED, descriptor, begin);
    const int reason = errno;
    ::close(descriptor);
    if (address_ == MAP_FAILED)
      fail("{}: {} bytes cannot be mapped: {}", path, length_, std::strerror(reason));
    data_ = static_cast<const std::byte*>(address_) + (offset - begin);
    // A small file is read ahead whole; of a large one the kernel's own read-ahead would fetch pages that
    // random order never uses.
    constexpr size_t small = size_t{256} << 20;
    madvise(address_, length_, length_ <= small ? MADV_WILLNEED : MADV_RANDOM);
    advise_ = length_ > small;
  }
  ~Mapping() {
    if (address_ != MAP_FAILED) munmap(address_, length_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::byte* data() const { return data_; }

  // Starts reading a stretch that is about to be used.
  void will_need(const std::byte* from, int64_t bytes) const {
    if (!advise_) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / page * page;
    const uintptr_t end = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes);
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
  }

 private:
  void* address_ = MAP_FAILED;
  size_t length_ = 0;
  const std::byte* data_ = nullptr;
  bool advise_ = false;
};

// Calls use(first position, count) for each run of consecutive rows in a list.
template <class Use>
void for_each_run(std::span<const int64_t> rows, Use&& use) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    use(begin, end - begin);
    begin = end;
  }
}

class MappedImages : public ImageStorage {
 public:
  MappedImages(const h5::Dataset& images, PixelType type)
      : row_bytes_(images.row_elements() * pixel_bytes(type)),
        mapping_(images.file(), *images.file_offset(), images.rows() * row_bytes_) {}

  void read(std::span<const int64_t> rows, const Visit& visit) const override {
    constexpr int64_t worth_a_call = 16 << 10;
    for_each_run(rows, [&](size_t begin, size_t count) {
      const auto bytes = static_cast<int64_t>(count) * row_bytes_;
      if (bytes >= worth_a_call) mapping_.will_need(row(rows[begin]), bytes);
    });
    for (size_t i = 0; i < rows.size(); ++i) visit(i, row(rows[i]));
  }
  bool mapped() const override { return true; }
  int64_t chunk_rows() const override { return 1; }
  int64_t chunk_bytes() const override { return row_bytes_; }

 private:
  const std::byte* row(int64_t number) const { return mapping_.data() + number * row_bytes_; }
  int64_t row_bytes_;
  Mapping mapping_;
};

// Base of what is read through the library. The file stays open as long as its dataset is read.
class LibraryImages : public ImageStorage {
 public:
  LibraryImages(h5::File file, h5::Dataset images, PixelType type)
      : file_(std::move(file)),
        images_(std::move(images)),
        type_(memory_type(type)),
        row_bytes_(images_.row_elements() * pixel_bytes(type)) {}
  bool mapped() const override { return false; }

 protected:
  h5::File file_;
  h5::Dataset images_;
  h5::Handle type_;
  int64_t row_bytes_;
};

// Contiguous but foreign (byte order, never written, external), or one row a chunk: runs of rows.
class RunImages : public LibraryImages {
 public:
  using LibraryImages::LibraryImages;
  void read(std::span<const int64_t> rows, const Visit& visit) const override {
    constexpr size_t most = 64;  // bounds the buffer
    std::vector<std::byte> buffer;
    for_each_run(rows, [&](size_t begin, size_t count) {
      for (size_t done = 0; done < count; done += most) {
        const size_t now = std::min(most, count - done);
        buffer.resize(now * static_cast<size_t>(row_bytes_));
        images_.read_rows(rows[begin + done], static_cast<int64_t>(now), type_.get(), buffer.data());
        for (size_t i = 0; i < now; ++i)
          visit(begin + done + i, buffer.data() + i * static_cast<size_t>(row_bytes_));
      }
    });
  }
  int64_t chunk_rows() const override { return 1; }
  int64_t chunk_bytes() const override { return row_bytes_; }
};

// Chunks of several rows: every chunk that a batch touches is decoded once and kept.
class ChunkedImages : public LibraryImages {
 public:
  ChunkedImages(h5::File file, h5::Dataset images, PixelType type, std::shared_ptr<ChunkCache> cache)
      : LibraryImages(std::move(file), std::move(images), type),
        cache_(std::move(cache)),
        rows_(stored_chunk_rows(images_)) {}

  void read(std::span<const int64_t> rows, const Visit& visit) const override {
    std::vector<size_t> order(rows.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] < rows[b]; });
    // To and fro: a batch starts with the chunks that the last one ended with, which a full cache still
    // holds.
    if (backwards_.exchange(!backwards_)) std::reverse(order.begin(), order.end());
    std::shared_ptr<const ChunkCache::Block> block;
    int64_t current = -1;
    for (const size_t position : order) {
      const int64_t number = rows[position] / rows_;
      if (number != current) block = decoded(number);
      current = number;
      visit(position, block->data() + (rows[position] % rows_) * row_bytes_);
    }
  }
  int64_t chunk_rows() const override { return rows_; }
  int64_t chunk_bytes() const override { return rows_ * row_bytes_; }

 private:
  std::shared_ptr<const ChunkCache::Block> decoded(int64_t number) const {
    const int64_t first = number * rows_;
    const int64_t count = std::min(rows_, images_.rows() - first);
    return cache_->get(this, number, count * row_bytes_, [&](ChunkCache::Block& out) {
      images_.read_rows(first, count, type_.get(), out.data());
    });
  }
  std::shared_ptr<ChunkCache> cache_;
  int64_t rows_;
  mutable std::atomic<bool> backwards_ = false;
};

}  // namespace

std::string pixel_name(PixelType type) {
  switch (type) {
    case PixelType::u8:
      return "uint8";
    case PixelType::i16:
      return "int16";
    case PixelType::u16:
      return "uint16";
    case PixelType::f16:
      return "float16";
    case PixelType::f32:
      return "float32";
    case PixelType::f64:
      return "float64";
  }
  return "?";
}

int64_t pixel_bytes(PixelType type) {
  switch (type) {
    case PixelType::u8:
      return 1;
    case PixelType::f32:
      return 4;
    case PixelType::f64:
      return 8;
    default:
      return 2;
  }
}

bool is_float(PixelType type) { return type >= PixelType::f16; }

std::optional<PixelType> pixel_type_of(const h5::Dataset& images) {
  const size_t bytes = images.type_bytes();
  if (images.type_class() == H5T_INTEGER) {
    if (bytes == 1 && images.is_unsigned()) return PixelType::u8;
    if (bytes == 2) return images.is_unsigned() ? PixelType::u16 : PixelType::i16;
  }
  if (images.type_class() == H5T_FLOAT) {
    if (bytes == 2) return PixelType::f16;
    if (bytes == 4) return PixelType::f32;
    if (bytes == 8) return PixelType::f64;
  }
  return std::nullopt;
}

bool can_be_mapped(const h5::Dataset& images, PixelType type) {
  return images.stored_as(memory_type(type).get()) && images.filters().empty() &&
         images.file_offset().has_value();
}

int64_t stored_chunk_rows(const h5::Dataset& images) {
  return images.chunk().empty() ? 1 : std::min(images.chunk().front(), std::max<int64_t>(1, images.rows()));
}

std::unique_ptr<ImageStorage> open_image_storage(h5::File file, h5::Dataset images, PixelType type,
                                                 std::shared_ptr<ChunkCache> cache) {
  static_assert(std::endian::native == std::endian::little, "half floats are mapped as little-endian");
  if (can_be_mapped(images, type)) return std::make_unique<MappedImages>(images, type);
  if (stored_chunk_rows(images) > 1) {
    return std::make_unique<ChunkedImages>(std::move(file), std::move(images), type, std::move(cache));
  }
  return std::make_unique<RunImages>(std::move(file), std::move(images), type);
}

double read_amplification(int64_t chunk_rows, int64_t chunks, int64_t window_chunks, int64_t cached_chunks,
                          int64_t batch) {
  if (chunk_rows <= 1 || chunks < 1 || batch < 1) return 1;
  const auto window = static_cast<double>(window_chunks > 0 ? std::min(window_chunks, chunks) : chunks);
  const double missed = 1 - static_cast<double>(cached_chunks) / window;
  if (missed <= 0) return 1;
  const double touched = window * (1 - std::pow(1 - 1 / window, static_cast<double>(batch)));
  return std::max(1.0, touched * missed * static_cast<double>(chunk_rows) / static_cast<double>(batch));
}

}  // namespace lockstep
