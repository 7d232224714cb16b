#include "lockstep/telemetry/timing_file.h"

#include <hdf5.h>

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/data/hdf5_error.h"
#include "lockstep/data/hdf5_file.h"

namespace lockstep {
namespace {

using h5::Handle;

// Which dimension of a dataset grows with the steps: rank × step × phase, rank × step, step.
struct Growing {
  Handle id;
  int step_axis = 0;
  std::vector<hsize_t> dims;
};

std::vector<std::string> phase_names() {
  std::vector<std::string> names;
  for (int p = 0; p < phase_count; ++p) names.emplace_back(to_string(static_cast<Phase>(p)));
  return names;
}

// One open timing file, without the rules of what to keep. Every use needs a Session.
class Writer {
 public:
  Writer(const std::filesystem::path& path, const std::vector<std::string>& hosts)
      : path_(path.string()), ranks_(static_cast<int64_t>(hosts.size())) {
    Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    // Nobody else writes it, some file systems have no locks, and people read it while the run goes on.
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(access.get(), false, true);
#endif
    file_ = Handle(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
    if (!file_) problem("cannot create");
    const auto ranks = static_cast<hsize_t>(ranks_);
    // Chunks of about 64 KiB hold whole steps of all ranks, since that is how they arrive.
    const hsize_t steps = std::clamp<hsize_t>(8192 / (ranks * phase_count), 16, 512);
    seconds_ = growing("/seconds", H5T_IEEE_F64LE, 1, {ranks, steps, phase_count});
    samples_ = growing("/samples", H5T_STD_I64LE, 1, {ranks, steps});
    steps_ = growing("/steps", H5T_STD_I64LE, 0, {steps});
    write_texts("/phases", phase_names());
    write_texts("/hosts", hosts);
    write_texts("/memory_kinds", {"resident", "device"});
    const hsize_t memory_dims[] = {ranks, 2};
    Handle space(H5Screate_simple(2, memory_dims, nullptr), H5Sclose);
    memory_ = Handle(
        H5Dcreate2(file_.get(), "/memory", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Dclose);
    const std::vector<int64_t> zeros(static_cast<size_t>(ranks_) * 2, 0);
    if (!memory_ ||
        H5Dwrite(memory_.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()) < 0) {
      problem("cannot write /memory to");
    }
    write_format();
    set_number("keep_every", 1);
    set_number("complete", 0);
    flush();
  }

  int64_t steps() const { return static_cast<int64_t>(steps_.dims[0]); }

  // `seconds` and `samples` in the file's order: rank, step (, phase).
  void append(std::span<const int64_t> steps, std::span<const int64_t> samples,
              std::span<const double> seconds) {
    append_to(seconds_, H5T_NATIVE_DOUBLE, steps.size(), seconds.data());
    append_to(samples_, H5T_NATIVE_INT64, steps.size(), samples.data());
    append_to(steps_, H5T_NATIVE_INT64, steps.size(), steps.data());
  }

  // Steps [first, first + steps.size()) in the file's order.
  void read(int64_t first, std::span<int64_t> steps, std::span<int64_t> samples, std::span<double> seconds) {
    read_from(seconds_, H5T_NATIVE_DOUBLE, first, steps.size(), seconds.data());
    read_from(samples_, H5T_NATIVE_INT64, first, steps.size(), samples.data());
    read_from(steps_, H5T_NATIVE_INT64, first, steps.size(), steps.data());
  }

  void write_memory(std::span<const int64_t> memory) {
    if (H5Dwrite(memory_.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory.data()) < 0) {
      problem("cannot write /memory to");
    }
  }

  void set_number(const char* name, int64_t value) {
    Handle attribute;
    if (H5Aexists(file_.get(), name) > 0) {
      attribute = Handle(H5Aopen(file_.get(), name, H5P_DEFAULT), H5Aclose);
    } else {
      Handle space(H5Screate(H5S_SCALAR), H5Sclose);
      attribute = Handle(H5Acreate2(file_.get(), name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
    }
    if (!attribute || H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value) < 0)
      problem("cannot write an attribute to");
  }

  void flush() {
    if (H5Fflush(file_.get(), H5F_SCOPE_LOCAL) < 0) problem("cannot write");
  }

 private:
  [[noreturn]] void problem(const char* what) const { fail("{} {}: {}", what, path_, h5::error_text()); }

  Growing growing(const char* name, hid_t type, int step_axis, const std::vector<hsize_t>& chunk) {
    Growing out;
    out.step_axis = step_axis;
    out.dims = chunk;
    out.dims[static_cast<size_t>(step_axis)] = 0;
    std::vector<hsize_t> most = chunk;
    most[static_cast<size_t>(step_axis)] = H5S_UNLIMITED;
    const int rank = static_cast<int>(chunk.size());
    Handle space(H5Screate_simple(rank, out.dims.data(), most.data()), H5Sclose);
    Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(layout.get(), rank, chunk.data());
    out.id = Handle(H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
                    H5Dclose);
    if (!out.id) problem("cannot make a dataset in");
    return out;
  }

  void write_texts(const char* name, const std::vector<std::string>& texts) {
    const hsize_t count = texts.size();
    Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), H5T_VARIABLE);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    Handle id(H5Dcreate2(file_.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
              H5Dclose);
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    if (!id || H5Dwrite(id.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) < 0) {
      problem("cannot write text to");
    }
  }

  void write_format() {
    const char* format = "lockstep-timing-1";
    Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), H5T_VARIABLE);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    Handle id(H5Acreate2(file_.get(), "format", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (!id || H5Awrite(id.get(), type.get(), &format) < 0) problem("cannot write an attribute to");
  }

  // The part of `data` from step `first` on, as a selection in the file.
  static Handle select(const Growing& data, int64_t first, size_t count) {
    std::vector<hsize_t> start(data.dims.size(), 0), size = data.dims;
    start[static_cast<size_t>(data.step_axis)] = static_cast<hsize_t>(first);
    size[static_cast<size_t>(data.step_axis)] = count;
    Handle space(H5Screate_simple(static_cast<int>(data.dims.size()), data.dims.data(), nullptr), H5Sclose);
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr);
    return space;
  }

  static Handle memory_space(const Growing& data, size_t count) {
    std::vector<hsize_t> size = data.dims;
    size[static_cast<size_t>(data.step_axis)] = count;
    return {H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose};
  }

  void append_to(Growing& data, hid_t type, size_t count, const void* values) {
    hsize_t& length = data.dims[static_cast<size_t>(data.step_axis)];
    const auto first = static_cast<int64_t>(length);
    length += count;
    if (H5Dset_extent(data.id.get(), data.dims.data()) < 0) problem("cannot extend a dataset of");
    const Handle in_file = select(data, first, count), in_memory = memory_space(data, count);
    if (H5Dwrite(data.id.get(), type, in_memory.get(), in_file.get(), H5P_DEFAULT, values) < 0)
      problem("cannot write");
  }

  void read_from(Growing& data, hid_t type, int64_t first, size_t count, void* values) {
    const Handle in_file = select(data, first, count), in_memory = memory_space(data, count);
    if (H5Dread(data.id.get(), type, in_memory.get(), in_file.get(), H5P_DEFAULT, values) < 0)
      problem("cannot read back");
  }

  std::string path_;
  int64_t ranks_;
  Handle file_;  // declared before what lies in it, so that it closes last
  Growing seconds_, samples_, steps_;
  Handle memory_;
};

// Steps of all ranks in the order of the file, which is not the order of arrival.
struct Columns {
  Columns(size_t n, size_t ranks) : steps(n), samples(n * ranks), seconds(n * ranks * phase_count) {}
  std::vector<int64_t> steps, samples;
  std::vector<double> seconds;

  void set(size_t at, size_t rank, int64_t of_samples, const double* of_phases) {
    samples[rank * steps.size() + at] = of_samples;
    std::copy_n(of_phases, phase_count, &seconds[(rank * steps.size() + at) * phase_count]);
  }
};

}  // namespace

struct TimingFile::State {
  State(const std::filesystem::path& to, const std::vector<std::string>& of_hosts, int64_t max_steps)
      : path(to), hosts(of_hosts), thinning(max_steps), writer(std::make_unique<Writer>(to, of_hosts)) {}

  std::filesystem::path path;
  std::vector<std::string> hosts;
  Thinning thinning;
  std::unique_ptr<Writer> writer;

  void append(std::span<const StepRow> rows, const std::vector<size_t>& kept);
  void halve();
};

TimingFile::TimingFile(const std::filesystem::path& path, const std::vector<std::string>& hosts,
                       int64_t max_steps) {
  const h5::Session session;
  state_ = std::make_unique<State>(path, hosts, max_steps);
}

TimingFile::~TimingFile() {
  const h5::Session session;
  state_.reset();
}

int64_t TimingFile::kept() const { return state_->writer->steps(); }
int64_t TimingFile::keep_every() const { return state_->thinning.every(); }

void TimingFile::append(std::span<const StepRow> rows) {
  State& s = *state_;
  const h5::Session session;
  const size_t ranks = s.hosts.size();
  std::vector<size_t> kept;
  for (size_t step = 0; step < rows.size() / ranks; ++step) {
    if (s.thinning.full(s.writer->steps() + static_cast<int64_t>(kept.size()))) {
      s.append(rows, kept);
      kept.clear();
      s.halve();
    }
    if (s.thinning.next()) kept.push_back(step);
  }
  s.append(rows, kept);
  s.writer->flush();
}

void TimingFile::State::append(std::span<const StepRow> rows, const std::vector<size_t>& kept) {
  if (kept.empty()) return;
  const size_t ranks = hosts.size();
  Columns columns(kept.size(), ranks);
  for (size_t i = 0; i < kept.size(); ++i) {
    columns.steps[i] = rows[kept[i] * ranks].step;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const StepRow& row = rows[kept[i] * ranks + rank];
      columns.set(i, rank, row.samples, row.seconds.data());
    }
  }
  writer->append(columns.steps, columns.samples, columns.seconds);
}

// Copies every other step into a new file that then takes the old one's place, so that a reader never sees
// half of it.
void TimingFile::State::halve() {
  thinning.halve();
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  auto thinned = std::make_unique<Writer>(temporary, hosts);
  thinned->set_number("keep_every", thinning.every());
  const size_t ranks = hosts.size();
  const auto total = static_cast<size_t>(writer->steps());
  constexpr size_t block = 1024;  // even, so that each block starts with a step to keep
  for (size_t first = 0; first < total; first += block) {
    const size_t count = std::min(block, total - first), half = (count + 1) / 2;
    Columns all(count, ranks), every_other(half, ranks);
    writer->read(static_cast<int64_t>(first), all.steps, all.samples, all.seconds);
    for (size_t i = 0; i < half; ++i) {
      every_other.steps[i] = all.steps[2 * i];
      for (size_t rank = 0; rank < ranks; ++rank) {
        const size_t at = rank * count + 2 * i;
        every_other.set(i, rank, all.samples[at], &all.seconds[at * phase_count]);
      }
    }
    thinned->append(every_other.steps, every_other.samples, every_other.seconds);
  }
  thinned->flush();
  // The open file keeps writing to the same inode under its new name.
  std::filesystem::rename(temporary, path);
  writer = std::move(thinned);
}

void TimingFile::close(std::span<const int64_t> memory) {
  State& s = *state_;
  const h5::Session session;
  s.writer->write_memory(memory);
  s.writer->set_number("complete", 1);
  s.writer->flush();
}

}  // namespace lockstep
