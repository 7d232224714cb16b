#include "lockstep/comm/mpi_collectives.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr int exchange_tag = 1;

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

/// Part r of `count` elements cut into n parts: the first count % n parts have one more.
struct Part {
  int64_t offset;
  int64_t count;
};
Part part_of(int64_t count, int64_t n, int64_t r) {
  int64_t base = count / n;
  int64_t rest = count % n;
  return {r * base + std::min(r, rest), base + (r < rest ? 1 : 0)};
}

}  // namespace

MpiCollectives::MpiCollectives(MPI_Comm parent, CollectiveLimits limits)
    : comm_(parent), limits_(limits), rank_(comm_.rank()), size_(comm_.size()) {
  limits_.chunk_bytes = std::clamp<int64_t>(limits_.chunk_bytes, 1, INT_MAX);
}

std::byte* MpiCollectives::scratch(int64_t bytes) {
  if (bytes > scratch_size_) {
    scratch_.reset();  // before the new one, so that both never exist
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    scratch_size_ = bytes;
  }
  return scratch_.get();
}

int64_t MpiCollectives::part_elements(int64_t item, int64_t buffers) const {
  int64_t bytes = std::min(
      {limits_.part_bytes, limits_.chunk_bytes, limits_.scratch_bytes / std::max<int64_t>(buffers, 1)});
  return std::max<int64_t>(bytes / item, 1);
}

template <class Call>
void MpiCollectives::in_chunks(int64_t bytes, Call call) const {
  for (int64_t at = 0; at < bytes; at += limits_.chunk_bytes) {
    call(at, static_cast<int>(std::min(limits_.chunk_bytes, bytes - at)));
  }
}

void MpiCollectives::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  requests_.clear();
  expected_.clear();
  for (const Incoming& in : receives) {
    in_chunks(in.bytes, [&](int64_t at, int n) {
      check_mpi(MPI_Irecv(static_cast<std::byte*>(in.data) + at, n, MPI_BYTE, in.peer, exchange_tag,
                          comm_.get(), &requests_.emplace_back()),
                "receiving from a rank");
      expected_.push_back(n);
    });
  }
  for (const Outgoing& out : sends) {
    in_chunks(out.bytes, [&](int64_t at, int n) {
      check_mpi(MPI_Isend(static_cast<const std::byte*>(out.data) + at, n, MPI_BYTE, out.peer, exchange_tag,
                          comm_.get(), &requests_.emplace_back()),
                "sending to a rank");
    });
  }
  statuses_.resize(requests_.size());
  int code = MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "exchanging with other ranks");
  for (size_t i = 0; i < statuses_.size(); ++i) {
    if (code == MPI_ERR_IN_STATUS && statuses_[i].MPI_ERROR != MPI_SUCCESS) {
      fail("exchanging with rank {}: {} (do all ranks pass tensors of the same size?)",
           statuses_[i].MPI_SOURCE, mpi_error_text(statuses_[i].MPI_ERROR));
    }
    if (i < expected_.size()) {
      int got = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &got);
      if (got != expected_[i]) {
        fail("rank {} sent {} bytes where {} were expected: the ranks pass tensors of different sizes",
             statuses_[i].MPI_SOURCE, got, expected_[i]);
      }
    }
  }
}

void MpiCollectives::barrier() { check_mpi(MPI_Barrier(comm_.get()), "barrier"); }

void MpiCollectives::broadcast(void* data, int64_t bytes, int root) {
  if (size_ == 1) return;
  in_chunks(bytes, [&](int64_t at, int n) {
    check_mpi(MPI_Bcast(static_cast<std::byte*>(data) + at, n, MPI_BYTE, root, comm_.get()), "broadcast");
  });
}

void MpiCollectives::all_reduce_small(void* data, int64_t count, int64_t item, c10::ScalarType type,
                                      Reduction reduction) {
  int64_t bytes = count * item;
  auto n = static_cast<int>(bytes);
  sources_.clear();
  if (size_ == 2) {
    std::byte* other = scratch(bytes);
    MPI_Status status;
    int peer = 1 - rank_;
    check_mpi(MPI_Sendrecv(data, n, MPI_BYTE, peer, exchange_tag, other, n, MPI_BYTE, peer, exchange_tag,
                           comm_.get(), &status),
              "all_reduce");
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != n)
      fail("rank {} sent {} bytes where {} were expected: the ranks pass tensors of different sizes", peer,
           got, n);
    sources_.push_back(rank_ == 0 ? data : other);
    sources_.push_back(rank_ == 0 ? other : data);
  } else {
    std::byte* all = scratch(bytes * size_);
    check_mpi(MPI_Allgather(data, n, MPI_BYTE, all, n, MPI_BYTE, comm_.get()), "all_reduce");
    for (int p = 0; p < size_; ++p) sources_.push_back(all + p * bytes);
  }
  ordered_reduce(data, sources_, count, type, reduction);
}

void MpiCollectives::all_reduce_segment(std::byte* data, int64_t count, int64_t item, c10::ScalarType type,
                                        Reduction reduction) {
  Part mine = part_of(count, size_, rank_);
  int64_t stride = (mine.count * item + 63) / 64 * 64;
  std::byte* received = scratch(stride * (size_ - 1));
  sends_.clear();
  receives_.clear();
  sources_.assign(static_cast<size_t>(size_), data + mine.offset * item);
  for (int step = 1; step < size_;
       ++step) {  // rank r starts with r+1, so that nobody is everybody's first partner
    int to = (rank_ + step) % size_;
    int from = (rank_ + size_ - step) % size_;
    Part theirs = part_of(count, size_, to);
    sends_.push_back({to, data + theirs.offset * item, theirs.count * item});
    std::byte* place = received + (step - 1) * stride;
    receives_.push_back({from, place, mine.count * item});
    sources_[static_cast<size_t>(from)] = place;
  }
  exchange(sends_, receives_);
  ordered_reduce(data + mine.offset * item, sources_, mine.count, type, reduction);
  sends_.clear();
  receives_.clear();
  for (int step = 1; step < size_; ++step) {
    int to = (rank_ + step) % size_;
    int from = (rank_ + size_ - step) % size_;
    Part theirs = part_of(count, size_, from);
    sends_.push_back({to, data + mine.offset * item, mine.count * item});
    receives_.push_back({from, data + theirs.offset * item, theirs.count * item});
  }
  exchange(sends_, receives_);
}

void MpiCollectives::all_reduce(void* data, int64_t count, c10::ScalarType type, Reduction reduction) {
  auto item = static_cast<int64_t>(c10::elementSize(type));
  if (size_ == 1 || count == 0) {
    const void* own = data;
    ordered_reduce(data, std::span(&own, 1), count, type, reduction);
    return;
  }
  int64_t bytes = count * item;
  if (bytes <= std::min(limits_.small_bytes, limits_.chunk_bytes) && bytes * size_ <= limits_.scratch_bytes) {
    return all_reduce_small(data, count, item, type, reduction);
  }
  int64_t segment = part_elements(item, size_ - 1) * size_;
  for (int64_t at = 0; at < count; at += segment) {
    all_reduce_segment(static_cast<std::byte*>(data) + at * item, std::min(segment, count - at), item, type,
                       reduction);
  }
}

void MpiCollectives::reduce(void* data, int64_t count, c10::ScalarType type, Reduction reduction, int root) {
  auto item = static_cast<int64_t>(c10::elementSize(type));
  auto* bytes = static_cast<std::byte*>(data);
  if (rank_ != root) {
    Outgoing out{root, data, 0};
    int64_t part = part_elements(item, size_ - 1);
    for (int64_t at = 0; at < count; at += part) {
      out.data = bytes + at * item;
      out.bytes = std::min(part, count - at) * item;
      exchange({&out, 1}, {});
    }
    return;
  }
  int64_t part = part_elements(item, size_ - 1);
  for (int64_t at = 0; at < count; at += part) {
    int64_t n = std::min(part, count - at);
    std::byte* received = scratch(n * item * std::max(size_ - 1, 1));
    receives_.clear();
    sources_.clear();
    for (int p = 0; p < size_; ++p) {
      if (p == root) {
        sources_.push_back(bytes + at * item);
        continue;
      }
      receives_.push_back({p, received, n * item});
      sources_.push_back(received);
      received += n * item;
    }
    exchange({}, receives_);
    ordered_reduce(bytes + at * item, sources_, n, type, reduction);
  }
}

void MpiCollectives::reduce_scatter(void* output, std::span<const void* const> inputs, int64_t count,
                                    c10::ScalarType type, Reduction reduction) {
  auto item = static_cast<int64_t>(c10::elementSize(type));
  auto* out = static_cast<std::byte*>(output);
  int64_t part = part_elements(item, size_ - 1);
  auto at_input = [&](int p, int64_t at) {
    return static_cast<const std::byte*>(inputs[static_cast<size_t>(p)]) + at * item;
  };
  for (int64_t at = 0; at < count; at += part) {
    int64_t n = std::min(part, count - at);
    std::byte* received = scratch(n * item * std::max(size_ - 1, 1));
    sends_.clear();
    receives_.clear();
    sources_.assign(static_cast<size_t>(size_), at_input(rank_, at));
    for (int step = 1; step < size_; ++step) {
      int to = (rank_ + step) % size_;
      int from = (rank_ + size_ - step) % size_;
      sends_.push_back({to, at_input(to, at), n * item});
      receives_.push_back({from, received, n * item});
      sources_[static_cast<size_t>(from)] = received;
      received += n * item;
    }
    exchange(sends_, receives_);
    ordered_reduce(out + at * item, sources_, n, type, reduction);
  }
}

void MpiCollectives::all_gather(const void* input, std::span<void* const> outputs, int64_t bytes) {
  sends_.clear();
  receives_.clear();
  for (int step = 1; step < size_; ++step) {
    int to = (rank_ + step) % size_;
    int from = (rank_ + size_ - step) % size_;
    sends_.push_back({to, input, bytes});
    receives_.push_back({from, outputs[static_cast<size_t>(from)], bytes});
  }
  exchange(sends_, receives_);
  copy(outputs[static_cast<size_t>(rank_)], input, bytes);
}

void MpiCollectives::all_gather_flat(const void* input, void* output, int64_t bytes) {
  auto* out = static_cast<std::byte*>(output);
  if (bytes <= limits_.chunk_bytes) {  // the library chooses the algorithm by size and ranks
    bool in_place = input == out + rank_ * bytes;
    auto n = static_cast<int>(bytes);
    check_mpi(MPI_Allgather(in_place ? MPI_IN_PLACE : input, n, MPI_BYTE, output, n, MPI_BYTE, comm_.get()),
              "all_gather");
    return;
  }
  std::vector<void*> outputs;
  for (int p = 0; p < size_; ++p) outputs.push_back(out + p * bytes);
  all_gather(input, outputs, bytes);
}

void MpiCollectives::gather(const void* input, std::span<void* const> outputs, int64_t bytes, int root) {
  if (rank_ != root) {
    Outgoing out{root, input, bytes};
    exchange({&out, 1}, {});
    return;
  }
  receives_.clear();
  for (int p = 0; p < size_; ++p) {
    if (p != root) receives_.push_back({p, outputs[static_cast<size_t>(p)], bytes});
  }
  exchange({}, receives_);
  copy(outputs[static_cast<size_t>(root)], input, bytes);
}

void MpiCollectives::scatter(void* output, std::span<const void* const> inputs, int64_t bytes, int root) {
  if (rank_ != root) {
    Incoming in{root, output, bytes};
    exchange({}, {&in, 1});
    return;
  }
  sends_.clear();
  for (int p = 0; p < size_; ++p) {
    if (p != root) sends_.push_back({p, inputs[static_cast<size_t>(p)], bytes});
  }
  exchange(sends_, {});
  copy(output, inputs[static_cast<size_t>(root)], bytes);
}

void MpiCollectives::all_to_all(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  sends_.clear();
  receives_.clear();
  for (int step = 1; step < size_; ++step) {
    sends_.push_back(sends[static_cast<size_t>((rank_ + step) % size_)]);
    receives_.push_back(receives[static_cast<size_t>((rank_ + size_ - step) % size_)]);
  }
  exchange(sends_, receives_);
  const Outgoing& own = sends[static_cast<size_t>(rank_)];
  const Incoming& place = receives[static_cast<size_t>(rank_)];
  if (own.bytes != place.bytes) {
    fail("all_to_all: rank {} sends itself {} bytes but expects {}", rank_, own.bytes, place.bytes);
  }
  copy(place.data, own.data, own.bytes);
}

}  // namespace lockstep
