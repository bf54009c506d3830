#include "plain_executor.h"

#include <utility>

#include "server.h"

namespace aoti {

PlainExecutor::PlainExecutor(std::string model, const Manifest& manifest,
                             std::shared_ptr<Runner> runner, const Statistics& statistics)
    : model_(std::move(model)),
      manifest_(manifest),
      runner_(std::move(runner)),
      statistics_(statistics),
      checker_(model_, manifest),
      gatherer_(manifest, runner_->place()) {}

void PlainExecutor::Execute(std::span<Request> requests) {
  if (checked_.size() < requests.size()) checked_.resize(requests.size());
  accepted_.assign(requests.size(), nullptr);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status = checker_.Check(requests[i].handle(), checked_[i]);
    if (status.ok()) {
      accepted_[i] = &checked_[i];
    } else {
      requests[i].Fail(status);
      requests[i].Close(Timeline::Now());
    }
  }
  for (const RunPlan& plan : PlanRuns(manifest_, accepted_)) ExecuteRun(plan, requests);
}

void PlainExecutor::ExecuteRun(const RunPlan& plan, std::span<Request> requests) {
  Timeline times = Timeline::Now();
  Result<std::vector<OutputTensor>> outputs = RunModel(plan, times);
  if (!outputs.ok() && plan.members.size() > 1) {
    // One of them made the model fail, such as by an id past its table; the others must not pay for
    // it.
    for (const size_t member : plan.members) ExecuteRun({{member}, RowsOf(member)}, requests);
    return;
  }
  Status status = outputs.status();
  try {
    if (status.ok()) status = CheckOutputs(plan, *outputs);
    if (status.ok()) Scatter(plan, *outputs, requests);
  } catch (...) {
    status = CurrentException();
  }
  times.end_ns = NowNs();
  if (!status.ok()) status = Status(status.code(), model_ + ": " + status.message());
  for (const size_t member : plan.members) {
    if (!status.ok()) requests[member].Fail(status);
    requests[member].Close(times);
  }
  if (outputs.ok()) statistics_.ReportRun(static_cast<uint64_t>(plan.rows), times);
}

int64_t PlainExecutor::RowsOf(size_t member) const {
  return manifest_.wire == Wire::kRows ? accepted_[member]->symbols[*manifest_.batch_symbol] : 1;
}

Result<std::vector<OutputTensor>> PlainExecutor::RunModel(const RunPlan& plan, Timeline& times) {
  try {
    members_.clear();
    for (const size_t member : plan.members) members_.push_back(accepted_[member]);
    AOTI_ASSIGN_OR_RETURN(const auto inputs, gatherer_.Gather(members_, plan.rows));
    times.compute_start_ns = NowNs();
    times.compute_end_ns = times.compute_start_ns;
    Result<std::vector<OutputTensor>> outputs = runner_->Run(inputs);
    times.compute_end_ns = NowNs();
    return outputs;
  } catch (...) {
    return CurrentException();
  }
}

Status PlainExecutor::CheckOutputs(const RunPlan& plan, const std::vector<OutputTensor>& outputs) {
  if (outputs.size() != manifest_.outputs.size()) {
    return Internal("the package gave " + std::to_string(outputs.size()) +
                    " outputs, the manifest has " + std::to_string(manifest_.outputs.size()));
  }
  // A joined run differs from each of its requests in the rows alone.
  sizes_ = accepted_[plan.members.front()]->symbols;
  if (manifest_.wire == Wire::kRows) sizes_[*manifest_.batch_symbol] = plan.rows;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = manifest_.outputs[i];
    const OutputTensor& output = outputs[i];
    bool fits = output.shape.size() == spec.shape.size();
    for (size_t axis = 0; fits && axis < spec.shape.size(); ++axis) {
      const Dim& dim = spec.shape[axis];
      switch (dim.kind) {
        case Dim::Kind::kFixed:
          fits = output.shape[axis] == dim.size;
          break;
        case Dim::Kind::kSymbol:
          fits = output.shape[axis] == sizes_[dim.symbol];
          break;
        case Dim::Kind::kExpression:
          // One that this backend cannot compute was told when the model was loaded.
          fits = !dim.expression || dim.expression->Evaluate(sizes_) == output.shape[axis];
          break;
      }
    }
    if (output.datatype != spec.datatype || !fits) {
      return Internal("output '" + spec.name + "': the manifest has " +
                      std::string(spec.datatype->wire_name) + " " + spec.ShapeText() +
                      ", the package gave " +
                      (output.datatype == nullptr ? "an unknown type"
                                                  : std::string(output.datatype->wire_name)) +
                      " " + ShapeText(output.shape));
    }
  }
  return {};
}

void PlainExecutor::Scatter(const RunPlan& plan, const std::vector<OutputTensor>& outputs,
                            std::span<Request> requests) {
  const bool rows_wire = manifest_.wire == Wire::kRows;
  std::vector<OutputSlice> slices(outputs.size());
  std::vector<std::vector<int64_t>> shapes(outputs.size());
  std::vector<size_t> offsets(outputs.size(), 0);
  for (const size_t member : plan.members) {
    const int64_t rows = RowsOf(member);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const OutputTensor& output = outputs[i];
      shapes[i] = output.shape;
      if (rows_wire) shapes[i][0] = rows;
      // Equal rows: the bytes of the run divide by its rows.
      const size_t bytes = plan.rows == 0 ? 0
                                          : output.bytes / static_cast<size_t>(plan.rows) *
                                                static_cast<size_t>(rows);
      slices[i] = {&manifest_.outputs[i].name, output.datatype, shapes[i],
                   output.data + offsets[i],   output.place,    bytes};
      offsets[i] += bytes;
    }
    requests[member].Answer(slices);
  }
}

}  // namespace aoti
