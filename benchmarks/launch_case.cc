// SPDX-License-Identifier: Apache-2.0
#include "launch_case.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>

namespace graphfeed {
namespace {

constexpr int64_t kPages = kWidth / 64;
constexpr int64_t kFlashmlaRows = 66;
constexpr int64_t kFlashmlaColumns = 8;

constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";

constexpr int64_t padded(int64_t elements) { return (elements + 127) / 128 * 128; }
constexpr int64_t kBlockElements = 2 * padded(kBs) + 3 * padded(kBs + 1) + padded(kBs * kWidth) +
                                   padded(kBs * kPages) + padded(kFlashmlaRows * kFlashmlaColumns);
constexpr size_t kBlockBytes = static_cast<size_t>(kBlockElements) * sizeof(int32_t);

}  // namespace

Block::Block() {
  check(driver().cuMemAlloc(&memory_, kBlockBytes), "cuMemAlloc");
  fields_.cache_seqlens = take_vector(kBs);
  fields_.cu_seqlens_k = take_vector(kBs + 1);
  fields_.page_table_1 = take_table(kBs, kWidth);
  fields_.dsa_cache_seqlens = take_vector(kBs);
  fields_.dsa_cu_seqlens_k = take_vector(kBs + 1);
  fields_.real_page_table = take_table(kBs, kPages);
  fields_.flashmla_num_splits = take_vector(kBs + 1);
  fields_.flashmla_metadata = take_table(kFlashmlaRows, kFlashmlaColumns);
}

Block::~Block() { driver().cuMemFree(memory_); }

void Block::write(const std::vector<int32_t>& values) {
  check(driver().cuMemcpyHtoD(memory_, values.data(), kBlockBytes), "cuMemcpyHtoD");
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");  // the copy may return before it is done
}

void Block::reset() { write(std::vector<int32_t>(kBlockElements, kSentinel)); }

bool Block::is_copy_of(const std::vector<int32_t>& source) const {
  return read() == expected(source);
}

std::vector<int32_t> Block::read() const {
  std::vector<int32_t> values(kBlockElements);
  check(driver().cuMemcpyDtoH(values.data(), memory_, kBlockBytes), "cuMemcpyDtoH");
  return values;
}

// Written element by element.
std::vector<int32_t> Block::expected(const std::vector<int32_t>& source) const {
  std::vector<int32_t> values(kBlockElements, kSentinel);
  const auto expect = [&](const std::optional<Tensor>& field, int64_t skipped) {
    const int64_t first = static_cast<const int32_t*>(field->data) - address();
    const int64_t end = first + field->shape[0] * field->shape[1];
    for (int64_t i = first + skipped; i < end; ++i) {
      values[static_cast<size_t>(i)] = source[static_cast<size_t>(i)];
    }
  };
  expect(fields_.cache_seqlens, 0);
  expect(fields_.cu_seqlens_k, 1);
  expect(fields_.page_table_1, 0);
  expect(fields_.dsa_cache_seqlens, 0);
  expect(fields_.dsa_cu_seqlens_k, 1);
  expect(fields_.real_page_table, 0);
  expect(fields_.flashmla_num_splits, 0);
  expect(fields_.flashmla_metadata, 0);
  return values;
}

int32_t* Block::address() const { return std::bit_cast<int32_t*>(memory_); }

int32_t* Block::take(int64_t elements) {
  int32_t* taken = address() + taken_;
  taken_ += padded(elements);
  return taken;
}

Tensor Block::take_vector(int64_t size) { return vector_of(take(size), size, cuda(0)); }

Tensor Block::take_table(int64_t rows, int64_t columns) {
  return table_of(take(rows * columns), rows, columns, cuda(0), columns);
}

Source::Source(unsigned seed) : values(kBlockElements) {
  std::mt19937 random(seed);
  std::generate(values.begin(), values.end(),
                [&] { return static_cast<int32_t>(random() & 0xfffff); });
  block.write(values);
}

Case::Case(int num_destinations, CUstream on)
    : stream(on), text("bs 32 x 4096, N=" + std::to_string(num_destinations)) {
  for (int i = 0; i < num_destinations; ++i) {
    blocks.push_back(std::make_unique<Block>());
    destinations.push_back(blocks.back()->fields());
  }
  request.destinations = destinations;
}

bool Case::is_right(const std::string& function, const Source* from,
                    const std::function<void()>& call) const {
  for (const auto& block : blocks) block->reset();
  call();
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  for (const auto& block : blocks) {
    if (from == nullptr || block->is_copy_of(from->values)) continue;
    std::fprintf(stderr, "%s, %s: a destination is wrong\n", function.c_str(), text.c_str());
    return false;
  }
  return true;
}

CapturedGraph::CapturedGraph(CUstream stream, const std::function<void()>& record) {
  check(driver().cuStreamBeginCapture(stream, CUstreamCaptureMode::kThreadLocal),
        "cuStreamBeginCapture");
  record();
  check(driver().cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
  check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0),
        "cuGraphInstantiateWithFlags");
}

CapturedGraph::~CapturedGraph() {
  driver().cuGraphExecDestroy(executable_);
  driver().cuGraphDestroy(graph_);
}

void CapturedGraph::launch(CUstream stream) const {
  check(driver().cuGraphLaunch(executable_, stream), "cuGraphLaunch");
}

CUlibrary load_library(const void* image) {
  CUlibrary library{};
  check(driver().cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
  return library;
}

CUkernel find_kernel(CUlibrary library, const char* name) {
  CUkernel kernel{};
  check(driver().cuLibraryGetKernel(&kernel, library, name), "cuLibraryGetKernel");
  return kernel;
}

CUkernel empty_kernel() {
  static const CUkernel kernel = find_kernel(load_library(kEmptyKernel), "empty");
  return kernel;
}

double percentile(std::vector<double> samples, double percent) {
  const auto at = static_cast<size_t>(static_cast<double>(samples.size() - 1) * percent / 100);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at),
                   samples.end());
  return samples[at];
}

double clock_overhead_us() {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples(2000);
  for (double& sample : samples) {
    const auto start = Clock::now();
    sample = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  return percentile(std::move(samples), 50);
}

}  // namespace graphfeed
