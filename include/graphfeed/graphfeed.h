// SPDX-License-Identifier: Apache-2.0
// The whole public C++ API.
#pragma once

#include "graphfeed/cache.h"
#include "graphfeed/capture.h"
#include "graphfeed/copy.h"
#include "graphfeed/error.h"
#include "graphfeed/generate.h"
#include "graphfeed/kernels.h"
#include "graphfeed/metadata.h"
#include "graphfeed/plan.h"
#include "graphfeed/system.h"
#include "graphfeed/tensor.h"
#include "graphfeed/version.h"
