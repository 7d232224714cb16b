#include "lockstep/comm/mpi_store.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <thread>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('/') + 1); }

/// "0", "7", "prefix/3": the id of a communicator of all ranks.
bool is_broadcast_key(std::string_view key) {
  std::string_view name = last_part(key);
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_gathered_key(std::string_view key) { return last_part(key).starts_with("UniqueNCCLID:"); }

/// Waits for a request for at most `limit`.
void finish(MPI_Request request, std::chrono::milliseconds limit, const std::string& key) {
  auto end = std::chrono::steady_clock::now() + limit;
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "handing out a unique id");
    if (done == 0 && std::chrono::steady_clock::now() > end) {
      fail(
          "the ranks did not all ask for NCCL's unique id '{}' within {} s: another rank failed before, or "
          "connects another group",
          key, limit.count() / 1000);
    }
    if (done == 0) std::this_thread::yield();
  }
}

}  // namespace

MpiStore::MpiStore(MPI_Comm parent) : shared_(std::make_shared<Shared>(parent)) {}

c10::intrusive_ptr<c10d::Store> MpiStore::clone() {
  auto copy = c10::intrusive_ptr<MpiStore>::reclaim(new MpiStore(shared_));
  copy->setTimeout(timeout_);
  return copy;
}

MpiStore::Value MpiStore::broadcast(const std::string& key, Value value) {
  // One message of fixed size that holds key and value, so that ranks asking for different keys are told
  // instead of mixing ids.
  constexpr size_t most = 1024;
  struct Packet {
    uint32_t key_length;
    uint32_t value_length;
    char data[most];
  } packet{};
  std::lock_guard lock(shared_->broadcast_mutex);
  if (shared_->rank == 0) {
    if (key.size() + value.size() > most)
      fail("unique id '{}' of {} bytes is too long for the store", key, value.size());
    packet.key_length = static_cast<uint32_t>(key.size());
    packet.value_length = static_cast<uint32_t>(value.size());
    std::memcpy(packet.data, key.data(), key.size());
    std::memcpy(packet.data + key.size(), value.data(), value.size());
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(&packet, sizeof packet, MPI_BYTE, 0, shared_->comm.get(), &request),
            "handing out a unique id");
  finish(request, timeout_, key);
  std::string sent(packet.data, packet.key_length);
  if (sent != key) fail("rank 0 hands out unique id '{}' while this rank asks for '{}'", sent, key);
  const char* start = packet.data + packet.key_length;
  return Value(start, start + packet.value_length);
}

void MpiStore::set(const std::string& key, const Value& value) {
  if (is_broadcast_key(key)) {
    if (shared_->rank != 0)
      fail(
          "store key '{}' is for rank 0 to set (a unique id of a point-to-point communicator? those are not "
          "used)",
          key);
    broadcast(key, value);
  }
  std::lock_guard lock(shared_->mutex);
  shared_->values[key] = value;
}

MpiStore::Value MpiStore::get(const std::string& key) {
  {
    std::lock_guard lock(shared_->mutex);
    auto found = shared_->values.find(key);
    if (found != shared_->values.end()) return found->second;
  }
  if (!is_broadcast_key(key) || shared_->rank == 0) {
    fail(
        "store key '{}' was not set on this rank, and this store never waits: it only hands out NCCL's "
        "unique ids",
        key);
  }
  Value value = broadcast(key, {});
  std::lock_guard lock(shared_->mutex);
  return shared_->values[key] = value;
}

void MpiStore::share_unique_ids() {
  std::string mine;
  {
    std::lock_guard lock(shared_->mutex);
    for (const auto& [key, value] : shared_->values) {
      if (!is_gathered_key(key)) continue;
      mine += fmt::format("{} {} {}", key.size(), value.size(), key);
      mine.append(value.begin(), value.end());
    }
  }
  std::lock_guard lock(shared_->broadcast_mutex);
  auto n = static_cast<size_t>(shared_->size);
  int length = static_cast<int>(mine.size());
  std::vector<int> lengths(n);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm comm = shared_->comm.get();
  check_mpi(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm, &request),
            "handing out unique ids");
  finish(request, timeout_, "UniqueNCCLID");
  std::vector<int> offsets(n);
  int total = 0;
  for (size_t p = 0; p < n; ++p) {
    offsets[p] = total;
    total += lengths[p];
  }
  std::string all(static_cast<size_t>(total), '\0');
  check_mpi(MPI_Iallgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(),
                            MPI_BYTE, comm, &request),
            "handing out unique ids");
  finish(request, timeout_, "UniqueNCCLID");
  std::lock_guard values_lock(shared_->mutex);
  for (const char *at = all.data(), *end = at + all.size(); at < end;) {
    size_t key_size = 0;
    size_t value_size = 0;
    at = std::from_chars(at, end, key_size).ptr + 1;
    at = std::from_chars(at, end, value_size).ptr + 1;
    std::string key(at, key_size);
    at += key_size;
    shared_->values[key] = Value(at, at + value_size);
    at += value_size;
  }
}

std::vector<MpiStore::Value> MpiStore::multiGet(const std::vector<std::string>& keys) {
  if (std::any_of(keys.begin(), keys.end(), [](const auto& key) { return is_gathered_key(key); }))
    share_unique_ids();
  std::vector<Value> values;
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void MpiStore::multiSet(const std::vector<std::string>& keys, const std::vector<Value>& values) {
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values.at(i));
}

MpiStore::Value MpiStore::compareSet(const std::string& key, const Value& expected, const Value& desired) {
  std::lock_guard lock(shared_->mutex);
  auto found = shared_->values.find(key);
  if (found == shared_->values.end()) {
    if (!expected.empty()) return expected;
    return shared_->values[key] = desired;
  }
  if (found->second == expected) found->second = desired;
  return found->second;
}

int64_t MpiStore::add(const std::string& key, int64_t value) {
  std::lock_guard lock(shared_->mutex);
  Value& stored = shared_->values[key];
  int64_t sum = value;
  if (!stored.empty()) sum += std::stoll(std::string(stored.begin(), stored.end()));
  std::string text = std::to_string(sum);
  stored.assign(text.begin(), text.end());
  return sum;
}

bool MpiStore::deleteKey(const std::string& key) {
  std::lock_guard lock(shared_->mutex);
  return shared_->values.erase(key) > 0;
}

bool MpiStore::check(const std::vector<std::string>& keys) {
  std::lock_guard lock(shared_->mutex);
  return std::all_of(keys.begin(), keys.end(),
                     [this](const auto& key) { return shared_->values.contains(key); });
}

int64_t MpiStore::getNumKeys() {
  std::lock_guard lock(shared_->mutex);
  return static_cast<int64_t>(shared_->values.size());
}

void MpiStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!check({key})) fail("store key '{}' was not set on this rank, and this store never waits", key);
  }
}

void MpiStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) { wait(keys); }

}  // namespace lockstep
