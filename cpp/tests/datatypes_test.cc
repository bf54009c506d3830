// Element types agree in all their names.
#include "datatypes.h"

#include <c10/core/ScalarType.h>
#include <gmock/gmock.h>

#include <set>

#include "scalar_types.h"

namespace aoti {
namespace {

TEST(Datatypes, EveryOneHasATypeOfTorchAndBack) {
  std::set<at::ScalarType> types;
  for (const Datatype& datatype : Datatypes()) {
    const at::ScalarType type = ToScalarType(datatype);
    EXPECT_EQ(FromScalarType(type), &datatype) << datatype.torch_name;
    EXPECT_EQ(c10::elementSize(type), datatype.bytes) << datatype.torch_name;
    EXPECT_EQ(FindDatatype(datatype.torch_name), &datatype);
    EXPECT_EQ(WireName(datatype.server), datatype.wire_name);
    types.insert(type);
  }
  EXPECT_EQ(types.size(), Datatypes().size());
  EXPECT_EQ(FromScalarType(at::kComplexFloat), nullptr);
}

}  // namespace
}  // namespace aoti
