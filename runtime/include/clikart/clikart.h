// clikart: layers that read the same input, joined into one generated kernel.
#pragma once

#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "clikart/tensor.h"
#include "clikart/warmup.h"
