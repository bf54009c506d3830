// What a manifest must be beyond the types of its fields.
#pragma once

#include <string>

#include "manifest.h"
#include "status.h"

namespace aoti {

// The same rules as `_validate` in aoti_pack/manifest_parse.py, for the fields that this side
// reads: tests/fuzz holds the two against each other. INVALID_ARG names the field.
Status CheckManifest(const Manifest& manifest);

// Whether `path` names something below the folder that it is relative to.
bool StaysInside(const std::string& path);

}  // namespace aoti
