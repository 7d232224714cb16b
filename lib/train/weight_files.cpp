#include "lockstep/train/weight_files.h"

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/core/log.h"

namespace lockstep {

LoadReport load_weights_file(Model& model, const std::string& path) {
  const SafetensorsFile file(path);
  const WeightSource source{path, file.names(), [&file](const std::string& name) { return file.tensor(name); }};
  LoadReport report = load_weights(model, source);
  log::info("{}", report.text(path));
  return report;
}

}  // namespace lockstep
