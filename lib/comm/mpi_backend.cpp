#include "lockstep/comm/mpi_backend.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "lockstep/comm/tensor_bytes.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = MpiBackend::Tensors;
using c10d::OpType;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

void check_tensor(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) fail("{}: a tensor is undefined", what);
  if (!tensor.device().is_cpu())
    fail("{}: the MPI backend moves CPU tensors, this one is on {}", what, tensor.device().str());
  if (tensor.layout() != at::kStrided) fail("{}: the MPI backend moves dense tensors, not sparse ones", what);
}

const at::Tensor& only(const Tensors& tensors, const char* what) {
  if (tensors.size() != 1) fail("{}: one tensor is expected, not {}", what, tensors.size());
  check_tensor(tensors[0], what);
  return tensors[0];
}

const Tensors& only(const std::vector<Tensors>& lists, int size, const char* what) {
  if (lists.size() != 1 || static_cast<int>(lists[0].size()) != size) {
    fail("{}: one list of {} tensors (one a rank) is expected", what, size);
  }
  for (const at::Tensor& tensor : lists[0]) check_tensor(tensor, what);
  return lists[0];
}

void check_same(const at::Tensor& a, const at::Tensor& b, const char* what) {
  if (a.scalar_type() != b.scalar_type() || a.numel() != b.numel()) {
    fail("{}: tensors of {} x {} and {} x {} must have the same type and number of elements", what, a.numel(),
         c10::toString(a.scalar_type()), b.numel(), c10::toString(b.scalar_type()));
  }
}

Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  if (!can_reduce(tensor.scalar_type())) {
    fail("tensors of type {} cannot be reduced over ranks", c10::toString(tensor.scalar_type()));
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduction::sum;
    case c10d::ReduceOp::AVG:
      if (!tensor.is_floating_point()) {
        fail("the average of {} tensors over ranks is not defined; use SUM, or convert to a floating type",
             c10::toString(tensor.scalar_type()));
      }
      return Reduction::average;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::product;
    case c10d::ReduceOp::MIN:
      return Reduction::minimum;
    case c10d::ReduceOp::MAX:
      return Reduction::maximum;
    default:
      fail("the MPI backend reduces by SUM, AVG, PRODUCT, MIN or MAX");
  }
}

int check_root(int64_t root, int size, const char* what) {
  if (root < 0 || root >= size) fail("{}: root {} is not a rank of {}", what, root, size);
  return static_cast<int>(root);
}

const char* element_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    default:
      return c10::toString(tensor.scalar_type());
  }
}

at::Tensor contiguous(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  return tensor.contiguous();
}

/// A tensor that a collective writes: its own memory where that is contiguous, else a buffer that is copied
/// back.
class Output {
 public:
  /// `reads`: the collective also reads it.
  Output(at::Tensor user, bool reads) : user_(std::move(user)) {
    at::NoGradGuard no_grad;
    if (user_.is_contiguous()) {
      buffer_ = user_;
    } else if (reads) {
      buffer_ = user_.contiguous();
    } else {
      buffer_ = at::empty(user_.sizes(), user_.options().memory_format(at::MemoryFormat::Contiguous));
    }
  }
  void* data() const { return buffer_.mutable_data_ptr(); }
  int64_t count() const { return buffer_.numel(); }
  int64_t bytes() const { return bytes_of(buffer_); }
  at::ScalarType type() const { return buffer_.scalar_type(); }
  void finish() const {
    if (buffer_.is_same(user_)) return;
    at::NoGradGuard no_grad;
    user_.copy_(buffer_);
  }

 private:
  at::Tensor user_;
  at::Tensor buffer_;
};

std::vector<Output> outputs_of(const Tensors& tensors, bool reads) {
  std::vector<Output> outputs;
  outputs.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) outputs.emplace_back(tensor, reads);
  return outputs;
}

Tensors contiguous(const Tensors& tensors) {
  Tensors all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) all.push_back(contiguous(tensor));
  return all;
}

/// CPU time of the thread that queues work, read by the progress thread: what it did not use of a
/// collective's duration it spent blocked (in Future::wait, which cannot be observed otherwise, or waiting
/// for a core).
class CallerClock {
 public:
  CallerClock() { usable_ = pthread_getcpuclockid(pthread_self(), &id_) == 0; }
  double blocked(const timespec& before, double elapsed) const {
    timespec now{};
    if (!usable_ || before.tv_sec < 0 || clock_gettime(id_, &now) != 0) return 0;
    double used = static_cast<double>(now.tv_sec - before.tv_sec) +
                  1e-9 * static_cast<double>(now.tv_nsec - before.tv_nsec);
    return std::clamp(elapsed - used, 0.0, elapsed);
  }
  timespec now() const {
    timespec time{};
    if (!usable_ || clock_gettime(id_, &time) != 0) time.tv_sec = -1;
    return time;
  }

 private:
  clockid_t id_{};
  bool usable_ = false;
};

}  // namespace

MpiBackend::MpiBackend(MPI_Comm parent, MpiBackendOptions options)
    : Backend(
          [&] {
            int rank = 0;
            MPI_Comm_rank(parent, &rank);
            return rank;
          }(),
          [&] {
            int size = 1;
            MPI_Comm_size(parent, &size);
            return size;
          }()),
      engine_(std::make_shared<Engine>(parent, options)),
      chunk_bytes_(std::clamp<int64_t>(options.limits.chunk_bytes, 1, INT_MAX)) {
  if (options.threaded) progress_ = std::make_unique<ProgressThread>();
}

MpiBackend::~MpiBackend() = default;

template <class Body>
double MpiBackend::execute(Engine& engine, const Description& what, const Body& body) {
  std::lock_guard lock(engine.mutex);
  auto start = Clock::now();
  {
    std::optional<Watchdog::Scope> scope;
    if (engine.watchdog) {
      scope.emplace(engine.watchdog->enter(Watchdog::Channel::collective, to_string(what.kind).data(),
                                           what.bytes, what.element));
    }
    body(engine.collectives);
  }
  double elapsed = seconds_between(start, Clock::now());
  engine.stats->add(what.kind, what.bytes, elapsed);
  return elapsed;
}

template <class Body>
MpiBackend::WorkPtr MpiBackend::run(const Description& what, Tensors results, Body body) {
  auto work = c10::make_intrusive<MpiWork>(what.type, std::move(results), engine_->stats);
  if (!progress_) {
    engine_->stats->add_exposed(execute(*engine_, what, body));
    work->complete();
    return work;
  }
  progress_->queue([engine = engine_, what, work, caller = CallerClock(), body = std::move(body)] {
    try {
      timespec before = caller.now();
      double elapsed = execute(*engine, what, body);
      if (work->future_taken()) engine->stats->add_exposed(caller.blocked(before, elapsed));
      work->complete();
    } catch (...) {
      work->fail(std::current_exception());
    }
  });
  return work;
}

MpiBackend::WorkPtr MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce");
  Reduction reduction = reduction_of(options.reduceOp, tensor);
  return run({OpType::ALLREDUCE, CollectiveKind::all_reduce, bytes_of(tensor), element_name(tensor)}, tensors,
             [out = Output(tensor, true), reduction](MpiCollectives& mpi) {
               mpi.all_reduce(out.data(), out.count(), out.type(), reduction);
               out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::allreduce_coalesced(Tensors& tensors,
                                                    const c10d::AllreduceCoalescedOptions& options) {
  if (tensors.empty()) fail("all_reduce of a list: the list is empty");
  std::vector<Reduction> reductions;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce of a list");
    reductions.push_back(reduction_of(options.reduceOp, tensor));
  }
  return run(
      {OpType::ALLREDUCE_COALESCED, CollectiveKind::all_reduce, bytes_of(tensors), element_name(tensors[0])},
      tensors, [outs = outputs_of(tensors, true), reductions](MpiCollectives& mpi) {
        for (size_t i = 0; i < outs.size(); ++i) {
          mpi.all_reduce(outs[i].data(), outs[i].count(), outs[i].type(), reductions[i]);
          outs[i].finish();
        }
      });
}

MpiBackend::WorkPtr MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  int root = check_root(options.rootRank, size_, "broadcast");
  return run({OpType::BROADCAST, CollectiveKind::broadcast, bytes_of(tensor), element_name(tensor)}, tensors,
             [out = Output(tensor, true), root](MpiCollectives& mpi) {
               mpi.broadcast(out.data(), out.bytes(), root);
               if (mpi.rank() != root) out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  Reduction reduction = reduction_of(options.reduceOp, tensor);
  int root = check_root(options.rootRank, size_, "reduce");
  return run({OpType::REDUCE, CollectiveKind::reduce, bytes_of(tensor), element_name(tensor)}, tensors,
             [out = Output(tensor, true), reduction, root](MpiCollectives& mpi) {
               mpi.reduce(out.data(), out.count(), out.type(), reduction, root);
               if (mpi.rank() == root) out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) {
  const at::Tensor& input = only(inputs, "all_gather");
  const Tensors& places = only(outputs, size_, "all_gather");
  check_same(input, places[static_cast<size_t>(rank_)], "all_gather");
  return run(
      {OpType::ALLGATHER, CollectiveKind::all_gather, bytes_of(places), element_name(input)}, places,
      [in = contiguous(input), outs = outputs_of(places, false)](MpiCollectives& mpi) {
        std::vector<Outgoing> sends;
        std::vector<Incoming> receives;
        for (int p = 0; p < mpi.size(); ++p) {
          sends.push_back({p, in.const_data_ptr(), bytes_of(in)});
          receives.push_back({p, outs[static_cast<size_t>(p)].data(), outs[static_cast<size_t>(p)].bytes()});
        }
        mpi.all_to_all(sends, receives);
        for (const Output& out : outs) out.finish();
      });
}

MpiBackend::WorkPtr MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

MpiBackend::WorkPtr MpiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions&) {
  if (outputs.empty() || outputs.size() != inputs.size())
    fail("all_gather: {} outputs for {} inputs", outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], "all_gather");
    check_tensor(outputs[i], "all_gather");
    if (outputs[i].scalar_type() != inputs[i].scalar_type() ||
        outputs[i].numel() != inputs[i].numel() * size_) {
      fail("all_gather: an output of {} x {} cannot hold {} inputs of {} x {}", outputs[i].numel(),
           c10::toString(outputs[i].scalar_type()), size_, inputs[i].numel(),
           c10::toString(inputs[i].scalar_type()));
    }
  }
  return run(
      {OpType::_ALLGATHER_BASE, CollectiveKind::all_gather, bytes_of(outputs), element_name(inputs[0])},
      outputs, [ins = contiguous(inputs), outs = outputs_of(outputs, false)](MpiCollectives& mpi) {
        for (size_t i = 0; i < ins.size(); ++i) {
          mpi.all_gather_flat(ins[i].const_data_ptr(), outs[i].data(), bytes_of(ins[i]));
          outs[i].finish();
        }
      });
}

MpiBackend::WorkPtr MpiBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  int root = check_root(options.rootRank, size_, "gather");
  Tensors places;
  if (rank_ == root) {
    places = only(outputs, size_, "gather");
    for (const at::Tensor& place : places) check_same(input, place, "gather");
  }
  return run({OpType::GATHER, CollectiveKind::gather, bytes_of(input), element_name(input)}, places,
             [in = contiguous(input), outs = outputs_of(places, false), root](MpiCollectives& mpi) {
               std::vector<void*> pointers;
               for (const Output& out : outs) pointers.push_back(out.data());
               mpi.gather(in.const_data_ptr(), pointers, bytes_of(in), root);
               for (const Output& out : outs) out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  int root = check_root(options.rootRank, size_, "scatter");
  Tensors sources;
  if (rank_ == root) {
    sources = only(inputs, size_, "scatter");
    for (const at::Tensor& source : sources) check_same(output, source, "scatter");
  }
  return run({OpType::SCATTER, CollectiveKind::scatter, bytes_of(output), element_name(output)}, outputs,
             [ins = contiguous(sources), out = Output(output, false), root](MpiCollectives& mpi) {
               std::vector<const void*> pointers;
               for (const at::Tensor& in : ins) pointers.push_back(in.const_data_ptr());
               mpi.scatter(out.data(), pointers, out.bytes(), root);
               out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter_lists(OpType type, Tensors& outputs,
                                                     std::vector<Tensors> inputs, const c10d::ReduceOp& op) {
  std::vector<Reduction> reductions;
  int64_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_tensor(outputs[i], "reduce_scatter");
    for (const at::Tensor& input : inputs[i]) check_same(outputs[i], input, "reduce_scatter");
    reductions.push_back(reduction_of(op, outputs[i]));
    bytes += bytes_of(outputs[i]) * size_;
    inputs[i] = contiguous(inputs[i]);
  }
  return run(
      {type, CollectiveKind::reduce_scatter, bytes, element_name(outputs[0])}, outputs,
      [inputs = std::move(inputs), outs = outputs_of(outputs, false), reductions](MpiCollectives& mpi) {
        std::vector<const void*> pointers;
        for (size_t i = 0; i < outs.size(); ++i) {
          pointers.clear();
          for (const at::Tensor& input : inputs[i]) pointers.push_back(input.const_data_ptr());
          mpi.reduce_scatter(outs[i].data(), pointers, outs[i].count(), outs[i].type(), reductions[i]);
          outs[i].finish();
        }
      });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  only(outputs, "reduce_scatter");
  only(inputs, size_, "reduce_scatter");
  return reduce_scatter_lists(OpType::REDUCE_SCATTER, outputs, inputs, options.reduceOp);
}

MpiBackend::WorkPtr MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  if (outputs.empty() || outputs.size() != inputs.size()) {
    fail("reduce_scatter: {} outputs for {} inputs", outputs.size(), inputs.size());
  }
  std::vector<Tensors> parts;
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], "reduce_scatter");
    check_tensor(outputs[i], "reduce_scatter");
    if (inputs[i].numel() != outputs[i].numel() * size_) {
      fail("reduce_scatter: an input of {} elements does not make {} outputs of {}", inputs[i].numel(), size_,
           outputs[i].numel());
    }
    at::Tensor rows = inputs[i].contiguous().view({size_, outputs[i].numel()});
    parts.push_back(rows.unbind(0));
  }
  return reduce_scatter_lists(OpType::_REDUCE_SCATTER_BASE, outputs, std::move(parts), options.reduceOp);
}

namespace {

/// Byte ranges of one rank each in a tensor cut along its first dimension.
struct Cuts {
  std::vector<int64_t> offsets;
  std::vector<int64_t> lengths;
};
Cuts cut_rows(const at::Tensor& tensor, std::vector<int64_t> splits, int size, const char* what) {
  int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % size != 0)
      fail("all_to_all: {} rows of the {} cannot be shared by {} ranks; give the splits", rows, what, size);
    splits.assign(static_cast<size_t>(size), rows / size);
  }
  int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  bool negative = std::any_of(splits.begin(), splits.end(), [](int64_t n) { return n < 0; });
  if (static_cast<int>(splits.size()) != size || sum != rows || negative) {
    fail("all_to_all: the {}'s splits must be {} numbers that add up to its {} rows", what, size, rows);
  }
  int64_t row_bytes = rows == 0 ? 0 : bytes_of(tensor) / rows;
  Cuts cuts;
  int64_t at = 0;
  for (int64_t n : splits) {
    cuts.offsets.push_back(at);
    cuts.lengths.push_back(n * row_bytes);
    at += n * row_bytes;
  }
  return cuts;
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits,
                                              std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions&) {
  check_tensor(output, "all_to_all");
  check_tensor(input, "all_to_all");
  if (output.scalar_type() != input.scalar_type()) fail("all_to_all: input and output differ in type");
  Cuts from = cut_rows(input, input_splits, size_, "input");
  Cuts to = cut_rows(output, output_splits, size_, "output");
  return run({OpType::ALLTOALL_BASE, CollectiveKind::all_to_all, bytes_of(input), element_name(input)},
             {output}, [in = contiguous(input), out = Output(output, false), from, to](MpiCollectives& mpi) {
               std::vector<Outgoing> sends;
               std::vector<Incoming> receives;
               const auto* source = static_cast<const std::byte*>(in.const_data_ptr());
               auto* place = static_cast<std::byte*>(out.data());
               for (int p = 0; p < mpi.size(); ++p) {
                 auto i = static_cast<size_t>(p);
                 sends.push_back({p, source + from.offsets[i], from.lengths[i]});
                 receives.push_back({p, place + to.offsets[i], to.lengths[i]});
               }
               mpi.all_to_all(sends, receives);
               out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  only(std::vector<Tensors>{outputs}, size_, "all_to_all");
  only(std::vector<Tensors>{inputs}, size_, "all_to_all");
  return run({OpType::ALLTOALL, CollectiveKind::all_to_all, bytes_of(inputs), element_name(inputs[0])},
             outputs, [ins = contiguous(inputs), outs = outputs_of(outputs, false)](MpiCollectives& mpi) {
               std::vector<Outgoing> sends;
               std::vector<Incoming> receives;
               for (int p = 0; p < mpi.size(); ++p) {
                 auto i = static_cast<size_t>(p);
                 sends.push_back({p, ins[i].const_data_ptr(), bytes_of(ins[i])});
                 receives.push_back({p, outs[i].data(), outs[i].bytes()});
               }
               mpi.all_to_all(sends, receives);
               for (const Output& out : outs) out.finish();
             });
}

MpiBackend::WorkPtr MpiBackend::message(OpType type, Tensors& tensors, int peer, int tag) {
  bool sends = type == OpType::SEND;
  const char* what = sends ? "send" : "recv";
  const at::Tensor& tensor = only(tensors, what);
  if (type != OpType::RECVANYSOURCE) check_root(peer, size_, what);
  if (tag < 0) fail("{}: tag {} is negative", what, tag);
  at::NoGradGuard no_grad;
  MessageWork::Parts parts;
  parts.tensor = tensor;
  parts.buffer =
      sends || tensor.is_contiguous() ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
  parts.expected = sends ? -1 : bytes_of(tensor);
  parts.peer = peer;
  parts.kind = sends ? CollectiveKind::send : CollectiveKind::recv;
  int64_t bytes = bytes_of(tensor);
  if (type == OpType::RECVANYSOURCE && bytes > chunk_bytes_) {
    fail("recv from any rank: {} bytes are more than the {} of one message; name the sender", bytes,
         chunk_bytes_);
  }
  auto* data = static_cast<std::byte*>(sends ? const_cast<void*>(parts.buffer.const_data_ptr())
                                             : parts.buffer.mutable_data_ptr());
  int64_t at = 0;
  do {  // an empty tensor is a message, too
    auto n = static_cast<int>(std::min(chunk_bytes_, bytes - at));
    MPI_Request& request = parts.requests.emplace_back();
    MPI_Comm comm = engine_->messages.get();
    if (sends) {
      check_mpi(MPI_Isend(data + at, n, MPI_BYTE, peer, tag, comm, &request), what);
    } else {
      check_mpi(MPI_Irecv(data + at, n, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, comm, &request),
                what);
    }
    at += n;
  } while (at < bytes);
  return c10::make_intrusive<MessageWork>(type, std::move(parts), engine_->stats, engine_->watchdog);
}

MpiBackend::WorkPtr MpiBackend::send(Tensors& tensors, int to, int tag) {
  return message(OpType::SEND, tensors, to, tag);
}
MpiBackend::WorkPtr MpiBackend::recv(Tensors& tensors, int from, int tag) {
  return message(OpType::RECV, tensors, from, tag);
}
MpiBackend::WorkPtr MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(OpType::RECVANYSOURCE, tensors, -1, tag);
}

MpiBackend::WorkPtr MpiBackend::barrier(const c10d::BarrierOptions&) {
  return run({OpType::BARRIER, CollectiveKind::barrier, 0, ""}, {},
             [](MpiCollectives& mpi) { mpi.barrier(); });
}

}  // namespace lockstep
