// SPDX-License-Identifier: Apache-2.0
// The library as TVM FFI functions, their arguments unpacked by hand.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "calls.h"
#include "generate_calls.h"
#include "generate_schema.h"
#include "graphfeed/dlpack.h"
#include "graphfeed/graphfeed.h"
#include "kernel_options.h"
#include "python_arguments.h"
#include "schema.h"

namespace graphfeed {
namespace {

namespace ffi = tvm::ffi;
using Packed = std::span<const TVMFFIAny>;

const char* text_of(ErrorKind kind) {
  constexpr const char* kNames[] = {"TypeError", "ValueError", "RuntimeError"};
  return kNames[static_cast<size_t>(kind)];
}

// Runs `body` and hands an exception to the caller; TVM's macro would add a backtrace of our
// frames.
template <class Body>
int guarded(Body body) {
  TVM_FFI_SAFE_CALL_BEGIN();
  try {
    body();
  } catch (const Error& error) {
    throw ffi::Error(text_of(error.kind()), error.what(), "");
  }
  TVM_FFI_SAFE_CALL_END();
}

// What a Python caller gave, of which TVM FFI made one of its own types.
std::string python_name_of(const std::string& type) {
  if (type == "ffi.Array" || type == "ffi.List") return "list";
  if (type == "ffi.Str" || type == "ffi.SmallStr") return "str";
  if (type == "ffi.Bytes" || type == "ffi.SmallBytes") return "bytes";
  if (type == "ffi.Map" || type == "ffi.Dict") return "dict";
  if (type == "ffi.BigInt") return "int beyond 64 bits";
  if (type == "ffi.Tensor") return "tensor";
  if (type == "ffi.OpaquePyObject") return "object";
  return type;
}

class PackedArguments : public Arguments {
 public:
  explicit PackedArguments(Packed packed) : packed_(packed) {}

  [[nodiscard]] size_t size() const override { return packed_.size(); }

  [[nodiscard]] bool is_none(size_t i) const override {
    return packed_[i].type_index == kTVMFFINone;
  }

  [[nodiscard]] std::optional<int64_t> integer(size_t i) const override {
    if (packed_[i].type_index != kTVMFFIInt) return std::nullopt;
    return packed_[i].v_int64;
  }

  bool read(size_t i, std::optional<Tensor>& tensor) const override {
    const TVMFFIAny& argument = packed_[i];
    if (argument.type_index == kTVMFFITensor) {
      from_dlpack(*TVMFFITensorGetDLTensorPtr(argument.v_obj), tensor.emplace());
    } else if (argument.type_index == kTVMFFIDLTensorPtr) {
      from_dlpack(*static_cast<const DLTensor*>(argument.v_ptr), tensor.emplace());
    }
    return tensor.has_value();
  }

  [[nodiscard]] std::string type_name(size_t i) const override {
    return python_name_of(ffi::TypeIndexToTypeKey(packed_[i].type_index));
  }

  // TVM FFI takes it from the first torch tensor of a call.
  [[nodiscard]] Stream current_stream(int32_t cuda_device) const override {
    return TVMFFIEnvGetStream(kDLCUDA, cuda_device);
  }

 private:
  Packed packed_;
};

// Calls `function` with the items of the tuple whose address is the only argument.
template <class Function>
auto call_with_tuple(const Call& call, Function function) {
  call.expect_count(1);
  return function(PythonArguments(call.integer(0, "tuple")));
}

// (plan), on torch's current stream: of one argument, since a step pays for each.
void run_plan_here(const Call& call) {
  call.expect_count(1);
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  const Device device = plan.device();
  plan.run(device.type == DeviceType::kCuda ? torch_stream(device.id) : nullptr);
}

// (address of an object that a call made).
template <class Object>
void delete_made(const Call& call) {
  call.expect_count(1);
  const std::unique_ptr<Object> made(reinterpret_cast<Object*>(call.integer(0, "address")));
}

template <class Value>
std::optional<Value> optional_value(const TVMFFIAny& argument) {
  if (argument.type_index == kTVMFFINone) return std::nullopt;
  return ffi::AnyView::CopyFromTVMFFIAny(argument).cast<Value>();
}

// (cache_directory, read_only_directories, nvrtc_path, nvrtc_hints, max_cache_bytes, prebuilt),
// None for a default; lists of directories are joined by colons.
void set_kernel_options_packed(const Call& call, Packed packed) {
  call.expect_count(6);
  KernelOptions options;
  options.cache_directory = optional_value<std::string>(packed[0]);
  if (const auto path = optional_value<std::string>(packed[1])) {
    options.read_only_directories = split_path(*path);
  }
  options.nvrtc_path = optional_value<std::string>(packed[2]);
  options.nvrtc_hints = split_path(optional_value<std::string>(packed[3]).value_or(""));
  if (const auto bytes = optional_value<int64_t>(packed[4])) options.max_cache_bytes = *bytes;
  options.prebuilt = optional_value<bool>(packed[5]);
  set_kernel_options(std::move(options));
}

void warmup_device(const Call& call) {
  call.expect_count(1);
  const int64_t device = call.integer(0, "device");
  if (device < 0 || device > INT32_MAX) {
    throw Error(ErrorKind::kValue, "warmup: device",
                "expected a CUDA ordinal, got " + std::to_string(device));
  }
  warmup(cuda(static_cast<int32_t>(device)));
}

bool set_tensor_class_of(const Call& call) {
  call.expect_count(2);
  return set_tensor_class(call.integer(0, "exchange_api"), call.integer(1, "tensor_class"));
}

// (callback), called with each warning's text; None for silence.
void set_log_callback_packed(const Call& call, Packed packed) {
  call.expect_count(1);
  const auto callback = optional_value<ffi::Function>(packed[0]);
  if (!callback) return set_log_callback(nullptr);
  set_log_callback([call = *callback](const std::string& text) { call(text); });
}

ffi::Array<ffi::Any> prebuilt_kernels_packed() {
  const PrebuiltKernels kernels = prebuilt_kernels();
  ffi::Array<ffi::String> architectures;
  for (const std::string& arch : kernels.architectures) architectures.push_back(arch);
  return {architectures, kernels.compiler, static_cast<int64_t>(kernels.minimum_driver)};
}

ffi::Array<ffi::Any> cuda_driver_packed() {
  const CudaDriver driver = cuda_driver();
  ffi::Array<ffi::Any> devices;
  for (const CudaDevice& device : driver.devices) {
    devices.push_back(ffi::Array<ffi::Any>{device.name, device.compute_capability_major,
                                           device.compute_capability_minor, device.architecture,
                                           device.no_prebuilt});
  }
  return {driver.version, driver.minimum_version, driver.problem, devices};
}

ffi::Array<ffi::Any> runtime_compiler_packed() {
  const RuntimeCompiler compiler = runtime_compiler();
  ffi::Array<ffi::String> architectures;
  for (const std::string& arch : compiler.architectures) architectures.push_back(arch);
  return {compiler.version, compiler.path, compiler.found_by, architectures, compiler.problem};
}

ffi::Array<ffi::Any> packed_state(const CacheState& state) {
  ffi::Array<ffi::Any> entries;
  for (const CacheEntry& entry : state.entries) {
    entries.push_back(ffi::Array<ffi::Any>{entry.architecture, entry.path, entry.bytes,
                                           entry.modified, entry.defect});
  }
  return {state.directory, state.exists, state.problem, entries};
}

// (directory, read_only, read).
ffi::Array<ffi::Any> cache_state_packed(const Call& call, Packed packed) {
  call.expect_count(3);
  return packed_state(cache_state(optional_value<std::string>(packed[0]).value_or(""),
                                  optional_value<bool>(packed[1]).value_or(false),
                                  optional_value<bool>(packed[2]).value_or(false)));
}

// (directory).
ffi::Array<ffi::Any> clear_cache_packed(const Call& call, Packed packed) {
  call.expect_count(1);
  return packed_state(clear_cache(optional_value<std::string>(packed[0]).value_or("")));
}

// (architecture, directory, kernel).
bool fill_cache_packed(const Call& call, Packed packed) {
  call.expect_count(3);
  return fill_cache(optional_value<std::string>(packed[0]).value_or(""),
                    optional_value<std::string>(packed[1]).value_or(""),
                    static_cast<int>(call.integer(2, "kernel")));
}

}  // namespace
}  // namespace graphfeed

// What TVM FFI looks up as `name`; `body` sees `packed`, the same as `arguments` and as `call`, and
// assigns `result` if it returns one.
#define GRAPHFEED_EXPORT(name, body)                                                               \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##name(void*, const TVMFFIAny* first, int32_t count, \
                                                     TVMFFIAny* returned) {                        \
    using namespace graphfeed;                                                                     \
    [[maybe_unused]] const Packed packed(first, static_cast<size_t>(count));                       \
    const PackedArguments arguments(packed);                                                       \
    [[maybe_unused]] const Call call{#name, arguments};                                            \
    [[maybe_unused]] ffi::Any& result = *reinterpret_cast<ffi::Any*>(returned);                    \
    return guarded([&] { body; });                                                                 \
  }

GRAPHFEED_EXPORT(copy, call_copy(arguments))
GRAPHFEED_EXPORT(fused_metadata_copy, call_fused_metadata_copy(arguments))
GRAPHFEED_EXPORT(fused_metadata_copy_multi, call_fused_metadata_copy_multi(arguments))
GRAPHFEED_EXPORT(generate, call_generate(arguments))
GRAPHFEED_EXPORT(generate_tuple, call_with_tuple(call, call_generate))
GRAPHFEED_EXPORT(plan_generate, result = reinterpret_cast<int64_t>(call_plan_generate(arguments)))
GRAPHFEED_EXPORT(plan_generate_tuple,
                 result = reinterpret_cast<int64_t>(call_with_tuple(call, call_plan_generate)))
GRAPHFEED_EXPORT(plan_run_batch, call_plan_run_batch(arguments))
GRAPHFEED_EXPORT(plan_run_batch_tuple, call_with_tuple(call, call_plan_run_batch))
GRAPHFEED_EXPORT(plan_check_generated, call_plan_check_generated(arguments))
GRAPHFEED_EXPORT(plan_check_generated_tuple, call_with_tuple(call, call_plan_check_generated))
GRAPHFEED_EXPORT(node_repoint_batch, call_node_repoint_batch(arguments))
GRAPHFEED_EXPORT(node_repoint_batch_tuple, call_with_tuple(call, call_node_repoint_batch))
GRAPHFEED_EXPORT(fused_dsa_decode_metadata, call_fused_dsa_decode(arguments))
GRAPHFEED_EXPORT(fused_dsa_decode_metadata_tuple, call_with_tuple(call, call_fused_dsa_decode))
GRAPHFEED_EXPORT(fused_dsa_target_verify_metadata, call_fused_dsa_target_verify(arguments))
GRAPHFEED_EXPORT(fused_dsa_target_verify_metadata_tuple,
                 call_with_tuple(call, call_fused_dsa_target_verify))
GRAPHFEED_EXPORT(fused_dsa_draft_extend_metadata, call_fused_dsa_draft_extend(arguments))
GRAPHFEED_EXPORT(fused_dsa_draft_extend_metadata_tuple,
                 call_with_tuple(call, call_fused_dsa_draft_extend))
GRAPHFEED_EXPORT(set_tensor_class, result = set_tensor_class_of(call))
GRAPHFEED_EXPORT(copy_tuple, call_with_tuple(call, call_copy))
GRAPHFEED_EXPORT(fused_metadata_copy_tuple, call_with_tuple(call, call_fused_metadata_copy))
GRAPHFEED_EXPORT(fused_metadata_copy_multi_tuple,
                 call_with_tuple(call, call_fused_metadata_copy_multi))
GRAPHFEED_EXPORT(plan, result = reinterpret_cast<int64_t>(call_plan(arguments)))
GRAPHFEED_EXPORT(plan_tuple, result = reinterpret_cast<int64_t>(call_with_tuple(call, call_plan)))
GRAPHFEED_EXPORT(plan_run, call_plan_run(arguments))
GRAPHFEED_EXPORT(plan_run_here, run_plan_here(call))
GRAPHFEED_EXPORT(plan_run_tuple, call_with_tuple(call, call_plan_run))
GRAPHFEED_EXPORT(plan_check, call_plan_check(arguments))
GRAPHFEED_EXPORT(plan_check_tuple, call_with_tuple(call, call_plan_check))
GRAPHFEED_EXPORT(plan_delete, delete_made<Plan>(call))
GRAPHFEED_EXPORT(plan_start, call_plan_start(arguments))
GRAPHFEED_EXPORT(plan_start_tuple, call_with_tuple(call, call_plan_start))
GRAPHFEED_EXPORT(plan_fork, result = reinterpret_cast<int64_t>(call_plan_fork(arguments)))
GRAPHFEED_EXPORT(branch_join, call_branch_join(arguments))
GRAPHFEED_EXPORT(branch_delete, delete_made<Branch>(call))
GRAPHFEED_EXPORT(plan_node, result = reinterpret_cast<int64_t>(call_plan_node(arguments)))
GRAPHFEED_EXPORT(node_repoint, call_node_repoint(arguments))
GRAPHFEED_EXPORT(node_repoint_tuple, call_with_tuple(call, call_node_repoint))
GRAPHFEED_EXPORT(node_delete, delete_made<GraphNode>(call))
GRAPHFEED_EXPORT(set_kernel_options, set_kernel_options_packed(call, packed))
GRAPHFEED_EXPORT(warmup, warmup_device(call))
GRAPHFEED_EXPORT(reset_failures, reset_failures())
GRAPHFEED_EXPORT(set_log_callback, set_log_callback_packed(call, packed))
GRAPHFEED_EXPORT(cache_directory, result = cache_directory())
GRAPHFEED_EXPORT(prebuilt_kernels, result = prebuilt_kernels_packed())
GRAPHFEED_EXPORT(cuda_driver, result = cuda_driver_packed())
GRAPHFEED_EXPORT(runtime_compiler, result = runtime_compiler_packed())
GRAPHFEED_EXPORT(cache_state, result = cache_state_packed(call, packed))
GRAPHFEED_EXPORT(clear_cache, result = clear_cache_packed(call, packed))
GRAPHFEED_EXPORT(fill_cache, result = fill_cache_packed(call, packed))
GRAPHFEED_EXPORT(num_kernels, result = num_kernels())
GRAPHFEED_EXPORT(kernels_prebuilt, result = kernel_stats().prebuilt)
GRAPHFEED_EXPORT(kernels_compiled, result = kernel_stats().compiled)
GRAPHFEED_EXPORT(kernel_disk_hits, result = kernel_stats().disk_hits)
GRAPHFEED_EXPORT(kernels_loaded, result = kernel_stats().loaded)
GRAPHFEED_EXPORT(version, result = std::string(kVersion))
GRAPHFEED_EXPORT(field_names, {
  ffi::Array<ffi::String> names;
  for (const FieldSpec& spec : kSchema) names.push_back(spec.name);
  result = names;
})
GRAPHFEED_EXPORT(generated_field_names, {
  ffi::Array<ffi::String> names;
  for (const GeneratedSpec& spec : kGeneratedSchema) names.push_back(spec.name);
  result = names;
})
