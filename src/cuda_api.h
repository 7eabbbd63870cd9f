// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's binary interface that graphfeed uses, declared here so that neither
// CUDA's headers nor its libraries are needed to build. Layouts are those of cuda.h 12.4 to 13.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphfeed {

using CUdevice = int;          // equal to the ordinal
using CUdeviceptr = uint64_t;  // device address
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;    // of any context; may be cast to CUfunction to be launched
using CUfunction = struct CUfunc_st*;  // of one context
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;

// The codes that are told apart; the driver returns others too.
enum class CUresult : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kStreamCaptureUnsupported = 900,  // first of the errors about stream capture
  kStreamCaptureInvalidated = 901,
  kStreamCaptureImplicit = 906,
  kStreamCaptureWrongThread = 908,  // last of them
};

enum class CUdeviceAttribute : int {
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};

enum class CUstreamCaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class CUstreamCaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;       // cuStreamCreate
inline constexpr unsigned kEventDisableTiming = 2;      // cuEventCreate
inline constexpr unsigned kAddCaptureDependencies = 0;  // cuStreamUpdateCaptureDependencies
inline constexpr unsigned kSetCaptureDependencies = 1;

enum class CUlaunchAttributeId : int {
  kIgnore = 0,
  kProgrammaticStreamSerialization = 6,
  kPriority = 8,
};

union CUlaunchAttributeValue {
  char pad[64];
  int programmatic_stream_serialization_allowed;
  int priority;
};

struct CUlaunchAttribute {
  CUlaunchAttributeId id;
  char pad[4];
  CUlaunchAttributeValue value;
};

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;     // blocks
  unsigned block_x, block_y, block_z;  // threads
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;  // [num_attributes]; may be null
  unsigned num_attributes;
};

// Second and third version, which are alike.
struct CUkernelNodeParams {
  CUfunction function;                 // may be null: then kernel and context count
  unsigned grid_x, grid_y, grid_z;     // blocks
  unsigned block_x, block_y, block_z;  // threads
  unsigned shared_bytes;
  void** params;  // a pointer to each parameter
  void** extra;
  CUkernel kernel;
  CUcontext context;  // null: the current one
};

struct CUgraphEdgeData {
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
};

}  // namespace graphfeed
