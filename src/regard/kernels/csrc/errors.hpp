// What goes wrong in a kernel, as a code and a text: no exception leaves the library.
#pragma once

namespace regard {

// Numbered as in `kernels/bindings.py`.
enum Status : int { kOk = 0, kOutOfMemory = 1, kBadArgument = 2, kUnexpected = 3 };

// Throws std::invalid_argument with this text unless it holds.
void require(bool holds, const char* text);

// Keep the text of the exception that is being handled for `regard_last_error`; return its code.
Status current_exception_status() noexcept;

// Do the work of a function that Python calls.
template <typename Work>
int guarded(const Work& work) noexcept {
  try {
    work();
    return kOk;
  } catch (...) {
    return current_exception_status();
  }
}

}  // namespace regard
