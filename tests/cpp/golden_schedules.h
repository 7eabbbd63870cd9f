// SPDX-License-Identifier: Apache-2.0
// Reads tests/data/schedules, what published kernels wrote, and draws the lengths they were given.
// The format is in that folder's README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace graphfeed {

struct GoldenCase {
  std::map<std::string, uint64_t> columns;
  // Of a case kept in full, by name; a word that no consumer reads is nothing.
  std::map<std::string, std::vector<std::optional<int32_t>>> outputs;

  [[nodiscard]] int64_t at(const std::string& column) const {
    return static_cast<int64_t>(columns.at(column));
  }
};

// Throws std::runtime_error where the file is not there or not as described.
std::vector<GoldenCase> read_golden(const std::string& file);

enum class LengthKind : uint8_t { kZero, kEqual, kUniform, kEdges, kSparse, kSkewed, kOneLong };
inline constexpr int kNumLengthKinds = 7;

std::vector<int32_t> draw_lengths(int64_t rows, LengthKind kind, int64_t limit, uint64_t seed);

inline constexpr uint64_t kEmptyHash = 0xcbf29ce484222325;
uint64_t hash_of(std::span<const int32_t> words, uint64_t hash = kEmptyHash);

}  // namespace graphfeed
