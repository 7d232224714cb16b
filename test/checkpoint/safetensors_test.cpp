#include "lockstep/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "lockstep/core/error.h"
#include "lockstep/core/files.h"
#include "temporary_folder.h"

using namespace lockstep;

namespace {

const std::vector<std::pair<const char*, at::ScalarType>> types = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool}};

at::Tensor counting(at::ScalarType type) {
  at::Tensor values = at::arange(24, at::kLong).view({2, 3, 4});
  return (type == at::kBool ? values.remainder(2) : values).to(type);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.equal(b);
}

bool peer(const char* what, const std::filesystem::path& path) {
  return std::system(
             fmt::format("{} {} {} {}", LOCKSTEP_PYTHON, SAFETENSORS_PEER, what, path.string()).c_str()) == 0;
}

const bool has_python = std::system(LOCKSTEP_PYTHON " -c 'import safetensors' 2>/dev/null") == 0;

}  // namespace

TEST_CASE("tensors of all types read back, with metadata") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  std::vector<NamedWeight> weights = {{"scalar", at::scalar_tensor(0.5, at::kFloat)},
                                      {"empty", at::empty({0, 7})}};
  auto all = types;
  all.insert(all.end(), {{"U16", at::kUInt16}, {"C64", at::kComplexFloat}});
  for (const auto& [name, type] : all) weights.push_back({std::string("t.") + name, counting(type)});
  write_safetensors(path, weights, {{"format", "pt"}, {"é", "line\nbreak"}});
  const SafetensorsFile file(path);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"é", "line\nbreak"}});
  CHECK(file.names().size() == weights.size());
  for (const NamedWeight& weight : weights) {
    CAPTURE(weight.name);
    CHECK(file.contains(weight.name));
    CHECK(same(file.tensor(weight.name), weight.tensor));
    CHECK(reinterpret_cast<uintptr_t>(file.tensor(weight.name).const_data_ptr()) %
              weight.tensor.element_size() ==
          0);
  }
  const at::Tensor f8 = counting(at::kFloat).to(at::kFloat8_e4m3fn);
  write_safetensors(path, {{"f8", f8}});
  CHECK(SafetensorsFile(path).tensor("f8").to(at::kFloat).equal(f8.to(at::kFloat)));
}

TEST_CASE("memory format, views, conjugation and sparseness leave no trace") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  const at::Tensor image = at::rand({2, 3, 4, 5}), complex = at::rand({3, 2}, at::kComplexFloat);
  std::vector<NamedWeight> weights = {{"channels_last", image.contiguous(at::MemoryFormat::ChannelsLast)},
                                      {"transposed", image.transpose(0, 3)},
                                      {"sliced", image.slice(2, 1, 4, 2)},
                                      {"expanded", at::rand({3, 1}).expand({3, 4})},
                                      {"conjugated", complex.conj()},
                                      {"sparse", at::eye(4).to_sparse()},
                                      {"parameter", at::rand({3}).requires_grad_()}};
  write_safetensors(path, weights);
  const SafetensorsFile file(path);
  for (const NamedWeight& weight : weights) {
    CAPTURE(weight.name);
    const at::Tensor back = file.tensor(weight.name);
    CHECK(back.is_contiguous());
    CHECK(same(back, weight.tensor.to_dense().resolve_conj()));
  }
}

TEST_CASE("the same tensors in another order make the same file") {
  const TemporaryFolder folder;
  const NamedWeight a{"a", counting(at::kFloat)}, b{"b", counting(at::kDouble)}, c{"c", counting(at::kChar)};
  write_safetensors(folder / "1", {a, b, c}, {{"x", "1"}, {"y", "2"}});
  write_safetensors(folder / "2", {c, a, b}, {{"y", "2"}, {"x", "1"}});
  CHECK(read_file(folder / "1") == read_file(folder / "2"));
}

TEST_CASE("tensors outlive the file object and its removal") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  const at::Tensor values = at::rand({1000});
  write_safetensors(path, {{"w", values}});
  at::Tensor part;
  {
    const SafetensorsFile file(path);
    part = file.tensor("w").slice(0, 500);
  }
  std::filesystem::remove(path);
  CHECK(part.equal(values.slice(0, 500)));
}

TEST_CASE("a tensor that the file does not align is read all the same") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  const std::string json = R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}   )";
  const uint64_t length = json.size();
  REQUIRE(length % 8 != 0);
  const double values[] = {1.5, -2.5};
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8) << json;
  out.write(reinterpret_cast<const char*>(values), 16);
  out.close();
  CHECK(SafetensorsFile(path).tensor("w").equal(at::tensor({1.5, -2.5}, at::kDouble)));
}

TEST_CASE("what cannot be written is refused by name, and an existing file stays") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  const at::Tensor one = at::ones({2});
  write_safetensors(path, {{"old", one}});
  auto refused = [&](const std::vector<NamedWeight>& weights, const char* text) {
    CHECK_THROWS_WITH_AS(write_safetensors(path, weights), doctest::Contains(text), Error);
  };
  refused({{"w", one}, {"w", one}}, "w.safetensors: tensor 'w' is given twice");
  refused({{"w", at::Tensor()}}, "tensor 'w' is undefined");
  refused({{"", one}}, "cannot be the name");
  refused({{"__metadata__", one}}, "'__metadata__' cannot be the name");
  refused({{"\xff", one}}, "not UTF-8");
  refused({{"w", at::zeros({2}, at::kComplexDouble)}},
          "tensor 'w': safetensors files cannot hold tensors of type ComplexDouble");
  CHECK(SafetensorsFile(path).names() == std::vector<std::string>{"old"});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("files that cannot be opened and tensors that are not there are named") {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  CHECK_THROWS_WITH_AS(SafetensorsFile{path}, doctest::Contains("w.safetensors: cannot open: No such file"),
                       Error);
  CHECK_THROWS_WITH_AS(SafetensorsFile{folder.path()}, doctest::Contains("Is a directory"), Error);
  write_safetensors(path, {{"conv.weight", at::ones({2})}});
  CHECK_THROWS_WITH_AS(SafetensorsFile(path).tensor("conv.wieght"),
                       doctest::Contains("no tensor 'conv.wieght' (did you mean 'conv.weight'?)"), Error);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  CHECK_THROWS_WITH_AS(SafetensorsFile{path}, doctest::Contains("truncated"), Error);
  std::filesystem::resize_file(path, 0);
  CHECK_THROWS_WITH_AS(SafetensorsFile{path}, doctest::Contains("has 0 bytes"), Error);
}

TEST_CASE("python's safetensors reads what is written here" * doctest::skip(!has_python)) {
  const TemporaryFolder folder;
  std::vector<NamedWeight> weights = {{"scalar", at::scalar_tensor(0.5, at::kFloat)},
                                      {"empty", at::empty({0, 7})},
                                      {"ünïcode \"name\"", at::ones({3})}};
  for (const auto& [name, type] : types) weights.push_back({std::string("t.") + name, counting(type)});
  write_safetensors(folder / "w.safetensors", weights, {{"format", "pt"}, {"note", "line\nbreak"}});
  CHECK(peer("read", folder / "w.safetensors"));
}

TEST_CASE("what python's safetensors writes is read here" * doctest::skip(!has_python)) {
  const TemporaryFolder folder;
  const auto path = folder / "w.safetensors";
  REQUIRE(peer("write", path));
  const SafetensorsFile file(path);
  for (const auto& [name, type] : types) CHECK(same(file.tensor(std::string("t.") + name), counting(type)));
  CHECK(same(file.tensor("scalar"), at::scalar_tensor(0.5, at::kFloat)));
  CHECK(file.tensor("empty").sizes() == at::IntArrayRef{0, 7});
  CHECK(file.metadata().at("format") == "pt");
}
