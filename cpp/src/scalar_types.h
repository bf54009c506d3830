// Element types as torch names them in C++.
#pragma once

#include <c10/core/ScalarType.h>

#include "datatypes.h"

namespace aoti {

// Every Datatype has one.
at::ScalarType ToScalarType(const Datatype& datatype);

// Null for a type that the protocol does not know.
const Datatype* FromScalarType(at::ScalarType type);

}  // namespace aoti
