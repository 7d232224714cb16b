#include "lockstep/models/model.h"

namespace lockstep {

void bind(config::Section& section, ModelConfig& config) {
  section.field(
      "name", &config.name,
      "the network: small_cnn, resnet18/34/50, mobilenet_v2, vgg11, vit_tiny/small/base, or one that a "
      "program of yours registered");
  section.field("weights", &config.weights,
                "safetensors file to start from, with torchvision's names; empty: random weights");
  section.field(
      "freeze", &config.freeze,
      "parameters whose name starts with one of these are not trained; \"*\": all but the classifier");
  section
      .field("channels_last", &config.channels_last,
             "memory format of images and convolution weights; auto: where it is faster for this model and "
             "device")
      .one_of({"auto", "true", "false"});
  section.field("sync_batch_norm", &config.sync_batch_norm, "batch-norm statistics over all ranks");
  section.field("dropout", &config.dropout, "probability that overrides the model's own; -1 keeps it")
      .at_least(-1)
      .below(1);
  section.field("options", &config.options,
                "further keys of the model: patch_size (vit_*), or those of a registered model");
  if (config.dropout < 0 && config.dropout != -1) {
    section.problem("dropout", "expected a probability from 0 to below 1, or -1 to keep the model's own");
  }
}

}  // namespace lockstep
