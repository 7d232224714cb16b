#include "lockstep/models/model.h"
#include "lockstep/models/vision/mobilenet_v2.h"
#include "lockstep/models/vision/resnet.h"
#include "lockstep/models/vision/small_cnn.h"
#include "lockstep/models/vision/vgg.h"
#include "lockstep/models/vision/vit.h"

namespace lockstep {
namespace {

/// A factory of `Network(config, shape, further…)`.
template <class Network, class... Further>
ModelFactory maker(Further... further) {
  return [=](const ModelConfig& config, const ModelShape& shape) -> std::shared_ptr<Model> {
    return std::make_shared<Network>(config, shape, further...);
  };
}

}  // namespace

void register_vision_models(ModelRegistry& registry) {
  using Layers = std::array<int64_t, 4>;
  registry.add("small_cnn", maker<SmallCnn>(), "two convolutions and a hidden layer; any image size");
  registry.add("resnet18", maker<ResNet>(ResNet::Kind::basic, Layers{2, 2, 2, 2}), "ResNet-18");
  registry.add("resnet34", maker<ResNet>(ResNet::Kind::basic, Layers{3, 4, 6, 3}), "ResNet-34");
  registry.add("resnet50", maker<ResNet>(ResNet::Kind::bottleneck, Layers{3, 4, 6, 3}), "ResNet-50");
  registry.add("mobilenet_v2", maker<MobileNetV2>(), "MobileNet v2, width 1");
  registry.add("vgg11", maker<Vgg11>(), "VGG-11 without batch norm; images of at least 32 pixels");
  registry.add("vit_tiny", maker<VisionTransformer>(VitSize{192, 12, 3}),
               "vision transformer, 192 wide, 12 blocks");
  registry.add("vit_small", maker<VisionTransformer>(VitSize{384, 12, 6}),
               "vision transformer, 384 wide, 12 blocks");
  registry.add("vit_base", maker<VisionTransformer>(VitSize{768, 12, 12}),
               "vision transformer, 768 wide, 12 blocks");
}

}  // namespace lockstep
