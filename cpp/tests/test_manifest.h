// Manifests for tests that need no package.
#pragma once

#include <gtest/gtest.h>

#include "json.h"
#include "manifest.h"

namespace aoti {

// A valid manifest: ids [b, n] and lengths [b] in, scores [b, n] out, rows up to 8.
inline Json ManifestJson() {
  Json json = Json::parse(R"({
    "schema": "2.0", "name": "ranker", "executor": "plain", "wire": "rows",
    "recipe": {"source": "m:recipe", "settings": {}},
    "package": {"path": "package/0123456789abcdef", "model_name": "model"},
    "files": [], "torch": "2.13.0+cpu", "torch_range": ["2.12", "2.14"], "options": {},
    "target": {"device": "cpu", "arch": "x86_64", "march": "native", "simd": "avx2",
               "cpu_features": [], "glibc": "2.36"},
    "dtype": "float32",
    "symbols": [{"name": "b", "min": 1, "max": 8}, {"name": "n", "min": 2, "max": 64}],
    "inputs": [
      {"name": "ids", "dtype": "int64", "datatype": "INT64", "shape": ["b", "n"], "mutated": false},
      {"name": "lengths", "dtype": "int64", "datatype": "INT64", "shape": ["b"], "mutated": false}],
    "outputs": [
      {"name": "scores", "dtype": "float32", "datatype": "FP32", "shape": ["b", "n"],
       "mutated": false}],
    "baked": [], "constants": [],
    "batching": {"proved": true, "symbol": "b", "max": 8, "reason": ""},
    "proof": {}
  })");
  json["package"]["sha256"] = std::string(64, 'a');
  return json;
}

inline Json Tensor(const char* name, const char* dtype, const char* datatype, Json shape) {
  return {{"name", name},
          {"dtype", dtype},
          {"datatype", datatype},
          {"shape", std::move(shape)},
          {"mutated", false}};
}

// The manifest `json`, which must be valid.
inline Manifest Parsed(const Json& json) {
  Result<Manifest> manifest = ParseManifest(json.dump());
  EXPECT_TRUE(manifest.ok()) << manifest.status().message();
  return manifest.ok() ? std::move(*manifest) : Manifest();
}

}  // namespace aoti
