// SPDX-License-Identifier: Apache-2.0
// An output that starts as a sentinel, in storage bigger than asked for, so that a stray write, one
// left out and one made twice show.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace graphfeed {

class GuardedWords {
 public:
  static constexpr int32_t kUntouched = -7'777'777;
  static constexpr int64_t kGuard = 16;  // words before the output, and behind it

  explicit GuardedWords(int64_t size)
      : words_(static_cast<size_t>(size + 2 * kGuard), kUntouched) {}

  void put(int64_t i, int32_t value) {
    int32_t& word = words_.at(static_cast<size_t>(kGuard + i));
    EXPECT_EQ(word, kUntouched) << "word " << i << " is put twice";
    word = value;
  }

  // The output, all of it written, and nothing else.
  [[nodiscard]] std::vector<int32_t> take() const {
    const auto untouched = [](int32_t word) { return word == kUntouched; };
    const auto first = words_.begin() + kGuard;
    const auto last = words_.end() - kGuard;
    EXPECT_TRUE(std::all_of(words_.begin(), first, untouched));
    EXPECT_TRUE(std::none_of(first, last, untouched));
    EXPECT_TRUE(std::all_of(last, words_.end(), untouched));
    return {first, last};
  }

  // All of the storage, to be written to by other means.
  [[nodiscard]] std::span<int32_t> storage() { return words_; }

 private:
  std::vector<int32_t> words_;
};

}  // namespace graphfeed
