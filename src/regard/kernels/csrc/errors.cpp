#include "errors.hpp"

#include <new>
#include <stdexcept>
#include <string>

namespace regard {
namespace {

thread_local std::string last_error;

Status kept(Status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {  // no memory for a text
    last_error.clear();
  }
  return status;
}

}  // namespace

void require(bool holds, const char* text) {
  if (!holds) throw std::invalid_argument(text);
}

Status current_exception_status() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc& error) {
    return kept(kOutOfMemory, error.what());
  } catch (const std::length_error& error) {  // a vector larger than there can be
    return kept(kOutOfMemory, error.what());
  } catch (const std::invalid_argument& error) {
    return kept(kBadArgument, error.what());
  } catch (const std::exception& error) {
    return kept(kUnexpected, error.what());
  } catch (...) {
    return kept(kUnexpected, "an exception without a text");
  }
}

}  // namespace regard

extern "C" {

// The text of the last error in this thread.
const char* regard_last_error() { return regard::last_error.c_str(); }

// Fails as asked, so that tests see what becomes of it.
int regard_fail(int status) {
  return regard::guarded([=] {
    switch (status) {
      case regard::kOk: return;
      case regard::kOutOfMemory: throw std::bad_alloc();
      case regard::kBadArgument: throw std::invalid_argument("asked to fail");
      case regard::kUnexpected: throw std::runtime_error("asked to fail");
      default: throw status;
    }
  });
}
}
