#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/registry.h"
#include "lockstep/data/data_config.h"
#include "lockstep/data/dataset.h"

namespace lockstep {

/// Opens one split of a dataset: (configuration, files, split, training, element type of the input,
/// channels-last). Called on every rank; must not communicate.
using DatasetFactory = std::function<std::shared_ptr<Dataset>(
    const DataConfig&, const std::vector<std::string>&, const std::string&, bool, at::ScalarType, bool)>;
using DatasetRegistry = Registry<DatasetFactory>;

/// hdf5_images.
void register_datasets(DatasetRegistry& registry);

}  // namespace lockstep
