// config.pbtxt with what it leaves out filled in from the manifest.
#pragma once

#include <string>
#include <string_view>

#include "manifest.h"
#include "status.h"

namespace aoti {

// `config` (the server's JSON of config.pbtxt) with the inputs, outputs, max_batch_size and
// dynamic_batching that it leaves out. What it says stays as it is, right or wrong: CheckConfig
// tells. A configuration that leaves nothing out comes back as the same text. The instance groups
// are the server's to complete: it takes none from a backend. INVALID_ARG for what is no
// configuration.
Result<std::string> CompleteConfig(std::string_view config, const Manifest& manifest);

}  // namespace aoti
