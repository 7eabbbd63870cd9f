// SPDX-License-Identifier: Apache-2.0
#include "plan_check.h"

#include <array>
#include <string>

#include "generate_schema.h"
#include "graphfeed/error.h"
#include "schema.h"

namespace graphfeed {
namespace {

std::string text_of(const Tensor& tensor, const std::array<int64_t, 2>& values) {
  std::string text = std::to_string(values[0]);
  if (tensor.ndim > 1) text += " x " + std::to_string(values[1]);
  return text;
}

// What of a tensor is not as it was bound; empty where all is.
std::string difference(const Tensor& bound, const Tensor& now) {
  if (now.dtype != bound.dtype || now.device != bound.device) return "has another type or device";
  if (now.ndim != bound.ndim) return "has another rank";
  for (size_t d = 0; d < 2 && static_cast<int32_t>(d) < now.ndim; ++d) {
    if (now.shape[d] != bound.shape[d]) {
      return "was resized from " + text_of(bound, bound.shape) + " to " + text_of(now, now.shape);
    }
    if (now.shape[d] > 1 && now.strides[d] != bound.strides[d]) {
      return "has strides " + text_of(now, now.strides) + " in place of " +
             text_of(bound, bound.strides);
    }
  }
  return now.data == bound.data ? "" : "has moved";
}

template <class Destination, class Schema>
void check_all(std::span<const Destination> bound, std::span<const Destination> destinations,
               const Schema& schema) {
  if (destinations.size() != bound.size()) {
    throw Error(ErrorKind::kValue, "plan: destinations",
                "expected " + std::to_string(bound.size()) + ", as many as are bound, got " +
                    std::to_string(destinations.size()));
  }
  for (size_t k = 0; k < bound.size(); ++k) {
    for (const auto& spec : schema) {
      const auto& before = bound[k].*spec.member;
      const auto& now = destinations[k].*spec.member;
      std::string what;
      if (before && now) what = difference(*before, *now);
      if (before && !now) what = "is missing";
      if (!before && now) what = "is new";
      if (what.empty()) continue;
      throw Error(ErrorKind::kValue, "plan: destination " + std::to_string(k) + ": " + spec.name,
                  what + " since it was bound");
    }
  }
}

}  // namespace

void check_destinations(std::span<const Metadata> bound, std::span<const Metadata> destinations) {
  check_all(bound, destinations, kSchema);
}

void check_destinations(std::span<const GeneratedMetadata> bound,
                        std::span<const GeneratedMetadata> destinations) {
  check_all(bound, destinations, kGeneratedSchema);
}

void check_copies(const CopyTemplate* copy) {
  if (copy != nullptr) return;
  throw Error(ErrorKind::kValue, "plan", "generates from a batch state, and copies no source");
}

void check_generates(const GenerationTemplate* generation) {
  if (generation != nullptr) return;
  throw Error(ErrorKind::kValue, "plan", "copies a source, and generates from no batch state");
}

}  // namespace graphfeed
