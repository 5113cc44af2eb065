// Early returns for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CLIKART_CONCAT_(a, b) a##b
#define CLIKART_CONCAT(a, b) CLIKART_CONCAT_(a, b)

// Returns the status of `expression` from this function unless it is OK.
#define CLIKART_RETURN_IF_ERROR(expression)          \
  do {                                               \
    absl::Status clikart_status = (expression);      \
    if (!clikart_status.ok()) return clikart_status; \
  } while (false)

// `target` = the value of the StatusOr `expression`, or returns its status.
#define CLIKART_ASSIGN_OR_RETURN(target, expression) \
  CLIKART_ASSIGN_OR_RETURN_(CLIKART_CONCAT(clikart_result_, __LINE__), target, expression)
#define CLIKART_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  target = *std::move(result)
