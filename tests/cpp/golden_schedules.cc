// SPDX-License-Identifier: Apache-2.0
#include "golden_schedules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "source_tree.h"

namespace graphfeed {
namespace {

uint64_t draw(uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t value_of(const std::string& column, const std::string& word) {
  if (column.ends_with("hash")) return std::stoull(word, nullptr, 16);
  return word.starts_with('-') ? static_cast<uint64_t>(std::stoll(word)) : std::stoull(word);
}

}  // namespace

std::vector<GoldenCase> read_golden(const std::string& file) {
  std::ifstream stream(in_source_tree("tests/data/schedules/" + file));
  if (!stream) throw std::runtime_error(file + ": cannot be read");
  std::vector<std::string> columns;
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "#") continue;
    if (name == "case") cases.emplace_back();
    size_t column = 0;
    for (std::string word; words >> word; ++column) {
      if (name == "columns") {
        columns.push_back(word);
      } else if (name == "case") {
        cases.back().columns[columns.at(column)] = value_of(columns.at(column), word);
      } else if (word.starts_with('.') || word.starts_with('?')) {
        cases.back().outputs[name].emplace_back();
      } else {
        cases.back().outputs[name].emplace_back(std::stoi(word));
      }
    }
    if (name == "case" && column != columns.size()) throw std::runtime_error(line);
  }
  return cases;
}

std::vector<int32_t> draw_lengths(int64_t rows, LengthKind kind, int64_t limit, uint64_t seed) {
  constexpr std::array<uint64_t, 18> kEdges{0,    1,    63,   64,    65,     255,
                                            256,  257,  511,  512,   513,    2047,
                                            2048, 2049, 4096, 65536, 131072, 1048576};
  const auto most = static_cast<uint64_t>(limit);
  const uint64_t m = most + 1;
  const uint64_t long_row = seed % static_cast<uint64_t>(std::max<int64_t>(rows, 1));
  std::vector<int32_t> lengths;
  for (uint64_t row = 0; row < static_cast<uint64_t>(rows); ++row) {
    const uint64_t a = draw(seed);
    const uint64_t b = draw(seed);
    const std::array<uint64_t, kNumLengthKinds> by_kind{
        0,
        most,
        a % m,
        std::min(kEdges[a % kEdges.size()], most),
        b % 4 == 0 ? a % m : 0,
        (a % m) >> (b % 20),
        row == long_row ? most : a % std::min<uint64_t>(m, 300)};
    lengths.push_back(static_cast<int32_t>(by_kind[static_cast<size_t>(kind)]));
  }
  return lengths;
}

uint64_t hash_of(std::span<const int32_t> words, uint64_t hash) {
  for (const int32_t word : words) hash = (hash ^ static_cast<uint32_t>(word)) * 0x100000001b3;
  return hash;
}

}  // namespace graphfeed
