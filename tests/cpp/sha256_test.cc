// SPDX-License-Identifier: Apache-2.0
#include "sha256.h"

#include <gtest/gtest.h>

namespace graphfeed {
namespace {

std::string digest_of(std::string_view data) { return hex_of(sha256(data)); }

TEST(Sha256, MatchesTheStandardsExamples) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The padding takes another block from 56 bytes on. Digests by coreutils sha256sum.
TEST(Sha256, PadsAtEveryBlockBoundary) {
  EXPECT_EQ(digest_of(std::string(55, 'x')),
            "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(digest_of(std::string(56, 'x')),
            "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(digest_of(std::string(63, 'x')),
            "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  EXPECT_EQ(digest_of(std::string(64, 'x')),
            "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EXPECT_EQ(digest_of(std::string(65, 'x')),
            "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
}

TEST(Sha256, TakesBytesAsTheyAre) {
  EXPECT_EQ(digest_of(std::string_view("\0\xff\x80", 3)),
            "f742b965f156c10374bc23aea96e3a8aff8facd6fc079defeaa30219ad86f211");
}

}  // namespace
}  // namespace graphfeed
