#include "lockstep/data/hdf5_file.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "data/hdf5_writer.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<std::string> texts = {"", "plain", "äöü 漢字 🙂", "exactly16bytes!!",
                                        "longer than fifteen bytes, with spaces"};

void write_fixed(Writer& writer, const std::string& name, H5T_str_t padding) {
  // The width is that of the longest text, so that it has no terminator at all when padding is not NULLTERM.
  const size_t longest = texts.back().size() + (padding == H5T_STR_NULLTERM ? 1 : 0);
  std::vector<char> fields(texts.size() * longest, padding == H5T_STR_SPACEPAD ? ' ' : '\0');
  for (size_t i = 0; i < texts.size(); ++i)
    std::memcpy(fields.data() + i * longest, texts[i].data(), texts[i].size());
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, longest);
  H5Tset_strpad(type, padding);
  H5Tset_cset(type, H5T_CSET_UTF8);
  writer.dataset(name, {texts.size()}, type, type, fields.data());
  H5Tclose(type);
}

void write_variable(Writer& writer, const std::string& name, H5T_cset_t characters, H5T_str_t padding) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, characters);
  H5Tset_strpad(type, padding);
  writer.dataset(name, {texts.size()}, type, type, pointers.data());
  H5Tclose(type);
}

void write_strings(const std::string& path) {
  Writer writer(path);
  write_variable(writer, "/variable_utf8", H5T_CSET_UTF8, H5T_STR_NULLTERM);
  write_variable(writer, "/variable_ascii_nullpad", H5T_CSET_ASCII, H5T_STR_NULLPAD);
  write_fixed(writer, "/fixed_nullterm", H5T_STR_NULLTERM);
  write_fixed(writer, "/fixed_nullpad", H5T_STR_NULLPAD);
  write_fixed(writer, "/fixed_spacepad", H5T_STR_SPACEPAD);
  writer.labels("/numbers", {1, 2, 3});
}

void write_plain(const std::string& path) {
  Writer writer(path);
  writer.bytes<uint8_t>("/train/images", {100, 28, 28}, std::vector<uint8_t>(100 * 784, 7));
  writer.labels("/train/labels", std::vector<int64_t>(100, 1));
}

std::string copy_part(const std::string& from, const std::string& to, size_t bytes) {
  std::ifstream in(from, std::ios::binary);
  std::string content(bytes, '\0');
  in.read(content.data(), static_cast<std::streamsize>(bytes));
  std::ofstream(to, std::ios::binary) << content;
  return to;
}

}  // namespace

TEST_CASE("a file that is not there, a folder, an empty file and other formats are told apart") {
  const TemporaryFolder folder;
  check_holds(thrown([&] { h5::File::open(folder.file("absent.h5")); }), {"absent.h5", "no such file"});
  check_holds(thrown([&] { h5::File::open(folder.file("")); }), {"is a folder"});
  std::ofstream(folder.file("empty.h5")).close();
  check_holds(thrown([&] { h5::File::open(folder.file("empty.h5")); }), {"empty.h5", "is empty"});
  std::ofstream(folder.file("photo.h5")) << "PNG not HDF5 at all, though long enough to be read";
  check_holds(thrown([&] { h5::File::open(folder.file("photo.h5")); }),
              {"photo.h5", "not an HDF5 file", "PNG not HDF5"});
}

// BR-032
TEST_CASE("a truncated file is named with its actual and its expected size") {
  const TemporaryFolder folder;
  const std::string whole = folder.file("whole.h5");
  write_plain(whole);
  const size_t bytes = std::filesystem::file_size(whole);
  const std::string half = copy_part(whole, folder.file("half.h5"), bytes / 2);
  check_holds(thrown([&] { h5::File::open(half); }),
              {"half.h5", "truncated", std::to_string(bytes / 2), std::to_string(bytes)});
  const std::string one_less = copy_part(whole, folder.file("one_less.h5"), bytes - 1);
  check_holds(thrown([&] { h5::File::open(one_less); }),
              {"truncated", std::to_string(bytes - 1), std::to_string(bytes)});
  // What a writer leaves that was killed before it closed the file.
  const std::string stub = copy_part(whole, folder.file("stub.h5"), 96);
  check_holds(thrown([&] { h5::File::open(stub); }), {"stub.h5", "96 bytes"});
}

TEST_CASE("a file whose writer was killed before closing is refused as damaged") {
  const TemporaryFolder folder;
  const std::string path = folder.file("killed.h5");
  const pid_t child = fork();
  if (child == 0) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Gcreate2(file, "/train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    raise(SIGKILL);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const std::string text = thrown([&] { h5::File::open(path); });
  INFO(text);
  CHECK(text.find("killed.h5") != std::string::npos);
}

// BR-030
TEST_CASE("a file that another process holds open for writing is reported as locked, with the remedy") {
  const TemporaryFolder folder;
  const std::string path = folder.file("held.h5");
  write_plain(path);
  int ready[2], leave[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(leave) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    char byte = file >= 0 ? 'y' : 'n';
    if (write(ready[1], &byte, 1) == 1 && read(leave[0], &byte, 1) == 1) H5Fclose(file);
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  REQUIRE(byte == 'y');
  check_holds(thrown([&] { h5::File::open(path); }),
              {"held.h5", "locked by another process", "HDF5_USE_FILE_LOCKING=FALSE"});
  REQUIRE(write(leave[1], &byte, 1) == 1);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(thrown([&] { h5::File::open(path); }).empty());  // and free again afterwards
  for (const int end : {ready[0], ready[1], leave[0], leave[1]}) close(end);
}

TEST_CASE("two readers hold a file at the same time") {
  const TemporaryFolder folder;
  write_plain(folder.file("a.h5"));
  const h5::File first = h5::File::open(folder.file("a.h5"));
  const h5::File second = h5::File::open(folder.file("a.h5"));
  CHECK(first.datasets() == second.datasets());
}

TEST_CASE("a missing dataset is refused with those there are and the nearest name") {
  const TemporaryFolder folder;
  write_plain(folder.file("a.h5"));
  const h5::File file = h5::File::open(folder.file("a.h5"));
  CHECK(file.datasets() == std::vector<std::string>{"/train/images", "/train/labels"});
  CHECK(file.has_dataset("/train/images"));
  CHECK_FALSE(file.has_dataset("/train"));
  CHECK_FALSE(file.has_dataset("/nothing/here"));
  CHECK_FALSE(file.has_dataset("/"));
  check_holds(thrown([&] { file.dataset("/train/image"); }),
              {"a.h5", "'/train/image'", "did you mean '/train/images'", "/train/labels"});
  CHECK_THROWS_AS(file.dataset("/test/images"), UsageError);
  CHECK_THROWS_AS(file.dataset("/train"), UsageError);
}

// BR-034
TEST_CASE("texts are the same whichever way they are stored") {
  const TemporaryFolder folder;
  write_strings(folder.file("texts.h5"));
  const h5::File file = h5::File::open(folder.file("texts.h5"));
  for (const char* name : {"/variable_utf8", "/variable_ascii_nullpad", "/fixed_nullterm", "/fixed_nullpad",
                           "/fixed_spacepad"}) {
    INFO(name);
    const h5::Dataset dataset = file.dataset(name);
    CHECK(dataset.read_strings(0, 5) == texts);
    CHECK(dataset.read_strings(2, 1) == std::vector<std::string>{texts[2]});
    CHECK(dataset.read_strings(1, 0).empty());
    CHECK_THROWS_AS(dataset.read_strings(3, 3), Error);
  }
  check_holds(thrown([&] { file.dataset("/numbers").read_strings(0, 3); }),
              {"texts.h5", "/numbers", "int64"});
}

TEST_CASE("reading texts again and again takes no more memory") {
  const TemporaryFolder folder;
  write_strings(folder.file("texts.h5"));
  const h5::File file = h5::File::open(folder.file("texts.h5"));
  const h5::Dataset variable = file.dataset("/variable_utf8");
  const h5::Dataset fixed = file.dataset("/fixed_spacepad");
  const auto read_many = [&](int times) {
    for (int i = 0; i < times; ++i) {
      REQUIRE(variable.read_strings(0, 5).size() == 5);
      REQUIRE(fixed.read_strings(0, 5).size() == 5);
    }
  };
  read_many(1000);
  const int64_t before = resident_bytes();
  read_many(10000);
  CHECK(resident_bytes() - before < (2 << 20));
}

TEST_CASE("attributes are read from any string and number type, and may be missing") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.text("/", "class_names", {"cat", "dog"});
    writer.numbers("/", "mean", {0.25, 0.5});
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 6);
    H5Tset_strpad(fixed, H5T_STR_NULLPAD);
    const hid_t text = H5Acreate2(writer.id(), "layout", fixed, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(text, fixed, "NHWC\0\0");
    const int whole = 3;
    const hid_t number = H5Acreate2(writer.id(), "count", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(number, H5T_NATIVE_INT, &whole);
    H5Aclose(number);
    H5Aclose(text);
    H5Tclose(fixed);
    H5Sclose(space);
  }
  const h5::File file = h5::File::open(folder.file("a.h5"));
  CHECK(h5::text_attribute(file.id(), "class_names", "a.h5") == std::vector<std::string>{"cat", "dog"});
  CHECK(h5::text_attribute(file.id(), "layout", "a.h5") == std::vector<std::string>{"NHWC"});
  CHECK(h5::text_attribute(file.id(), "absent", "a.h5").empty());
  CHECK(h5::number_attribute(file.id(), "mean", "a.h5") == std::vector<double>{0.25, 0.5});
  CHECK(h5::number_attribute(file.id(), "count", "a.h5") == std::vector<double>{3});
  CHECK(h5::number_attribute(file.id(), "absent", "a.h5").empty());
  check_holds(thrown([&] { h5::text_attribute(file.id(), "mean", "a.h5"); }), {"a.h5", "mean", "float64"});
  check_holds(thrown([&] { h5::number_attribute(file.id(), "layout", "a.h5"); }), {"layout", "string"});
}

TEST_CASE("datasets describe their type and storage") {
  const TemporaryFolder folder;
  const std::vector<uint8_t> values(12 * 6, 1);
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/plain", {12, 6}, values);
    writer.bytes<uint8_t>("/packed", {12, 6}, values, {.chunk = {5, 6}, .gzip = 4, .shuffle = true});
    writer.dataset("/foreign", {12, 6}, H5T_STD_I32BE, H5T_NATIVE_UINT8, values.data());
    writer.dataset("/half", {12, 6}, h5::half_float_type().get(), H5T_NATIVE_UINT8, values.data());
    writer.dataset("/unwritten", {12, 6}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, nullptr);
  }
  const h5::File file = h5::File::open(folder.file("a.h5"));
  const h5::Dataset plain = file.dataset("/plain");
  CHECK(plain.type_name() == "uint8");
  CHECK(plain.storage() == "contiguous");
  CHECK(plain.shape() == std::vector<int64_t>{12, 6});
  CHECK(plain.row_elements() == 6);
  CHECK(plain.file_offset().has_value());
  const h5::Dataset packed = file.dataset("/packed");
  CHECK(packed.storage() == "chunks of 5×6, shuffle, gzip 4");
  CHECK(packed.chunk() == std::vector<int64_t>{5, 6});
  CHECK_FALSE(packed.file_offset().has_value());
  CHECK(file.dataset("/foreign").type_name() == "big-endian int32");
  CHECK(file.dataset("/half").type_name() == "float16");
  CHECK_FALSE(file.dataset("/unwritten").file_offset().has_value());
  uint8_t rows[12] = {};
  plain.read_rows(10, 2, H5T_NATIVE_UINT8, rows);
  CHECK(std::count(std::begin(rows), std::end(rows), 1) == 12);
  CHECK_THROWS_AS(plain.read_rows(11, 2, H5T_NATIVE_UINT8, rows), Error);
  CHECK_THROWS_AS(plain.read_rows(-1, 1, H5T_NATIVE_UINT8, rows), Error);
}

TEST_CASE("the library's own error stack stays silent, and its printer is put back") {
  const TemporaryFolder folder;
  H5E_auto2_t before = nullptr, after = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data);
  write_plain(folder.file("whole.h5"));
  const std::string half = copy_part(folder.file("whole.h5"), folder.file("half.h5"), 5000);
  // stderr into a file while it fails
  const std::string captured = folder.file("stderr");
  std::fflush(stderr);
  const int keep = dup(2);
  REQUIRE(std::freopen(captured.c_str(), "w", stderr) != nullptr);
  const std::string text = thrown([&] { h5::File::open(half); });
  std::fflush(stderr);
  dup2(keep, 2);
  close(keep);
  CHECK(text.find("truncated") != std::string::npos);
  CHECK(std::filesystem::file_size(captured) == 0);
  H5Eget_auto2(H5E_DEFAULT, &after, &data);
  CHECK((before == after));
}

TEST_CASE("the library says what it is") {
  CHECK(h5::version().find('.') != std::string::npos);
#ifdef H5_HAVE_THREADSAFE
  CHECK(h5::thread_safe());
#else
  CHECK_FALSE(h5::thread_safe());
#endif
}
