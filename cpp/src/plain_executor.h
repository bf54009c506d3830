// Stateless models: each run depends on its inputs alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batch.h"
#include "checks.h"
#include "executor.h"

namespace aoti {

class PlainExecutor final : public Executor {
 public:
  // `model` is the name that messages begin with. `manifest` and `statistics` must outlive this.
  PlainExecutor(std::string model, const Manifest& manifest, std::shared_ptr<Runner> runner,
                const Statistics& statistics);

  // Requests that do not fit are answered at once; the others run in as few runs as the manifest
  // allows. When a joined run fails, its requests run again one by one: the one at fault fails
  // alone.
  void Execute(std::span<Request> requests) override;

 private:
  int64_t RowsOf(size_t member) const;
  void ExecuteRun(const RunPlan& plan, std::span<Request> requests);
  // Throws nothing: what the model throws is the result's status.
  Result<std::vector<OutputTensor>> RunModel(const RunPlan& plan, Timeline& times);
  Status CheckOutputs(const RunPlan& plan, const std::vector<OutputTensor>& outputs);
  void Scatter(const RunPlan& plan, const std::vector<OutputTensor>& outputs,
               std::span<Request> requests);

  const std::string model_;
  const Manifest& manifest_;
  const std::shared_ptr<Runner> runner_;
  const Statistics& statistics_;
  const RequestChecker checker_;
  Gatherer gatherer_;
  std::vector<CheckedRequest> checked_;          // grows to the largest batch
  std::vector<const CheckedRequest*> accepted_;  // null: answered with an error already
  std::vector<const CheckedRequest*> members_;   // of the run in progress
  std::vector<int64_t> sizes_;                   // of each symbol in the run in progress
};

}  // namespace aoti
