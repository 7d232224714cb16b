#include "lockstep/data/chunk_cache.h"

namespace lockstep {

std::shared_ptr<ChunkCache::Entry> ChunkCache::find_or_add(const Key& key, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second->place);
    return found->second;
  }
  while (!recent_.empty() && held_ + bytes > capacity_) {
    const auto oldest = entries_.find(recent_.back());
    held_ -= oldest->second->bytes;
    entries_.erase(oldest);
    recent_.pop_back();
  }
  auto entry = std::make_shared<Entry>();
  entry->bytes = bytes;
  recent_.push_front(key);
  entry->place = recent_.begin();
  entries_.emplace(key, entry);
  held_ += bytes;
  return entry;
}

std::shared_ptr<const ChunkCache::Block> ChunkCache::get(const void* owner, int64_t number, int64_t bytes,
                                                         const Decode& decode) {
  const std::shared_ptr<Entry> entry = find_or_add({owner, number}, bytes);
  const std::lock_guard lock(entry->mutex);
  if (!entry->ready) {  // also after a decode that threw: the next one tries again
    entry->block->resize(static_cast<size_t>(bytes));
    decode(*entry->block);
    entry->ready = true;
    const std::lock_guard counting(mutex_);
    ++decoded_;
  }
  return entry->block;
}

int64_t ChunkCache::decoded() const {
  const std::lock_guard lock(mutex_);
  return decoded_;
}

}  // namespace lockstep
