#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

/// Decoded blocks of rows, the most recently used ones kept up to a number of bytes. Thread-safe; a block
/// that several threads ask for is decoded once. A block in use stays alive whatever is thrown out.
class ChunkCache {
 public:
  using Block = std::vector<std::byte>;
  using Decode = std::function<void(Block& out)>;

  explicit ChunkCache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// The block with this key, decoded by `decode` (into `out`, already of the right size) unless it is held.
  std::shared_ptr<const Block> get(const void* owner, int64_t number, int64_t bytes, const Decode& decode);

  int64_t decoded() const;  ///< blocks decoded so far

 private:
  using Key = std::pair<const void*, int64_t>;
  struct Entry {
    std::mutex mutex;  // held while decoding
    bool ready = false;
    std::shared_ptr<Block> block = std::make_shared<Block>();
    int64_t bytes = 0;
    std::list<Key>::iterator place;
  };
  std::shared_ptr<Entry> find_or_add(const Key& key, int64_t bytes);

  mutable std::mutex mutex_;
  int64_t capacity_;
  int64_t held_ = 0;
  int64_t decoded_ = 0;
  std::list<Key> recent_;  // most recent first
  std::map<Key, std::shared_ptr<Entry>> entries_;
};

}  // namespace lockstep
