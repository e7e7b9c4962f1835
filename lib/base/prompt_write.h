// Writes that neither wait nor end the process, for output that is worth less than the job. The
// target may be a full pipe, a stopped terminal, a pipe without a reader, or a file at its limit.
#pragma once

#include <csignal>
#include <cstddef>
#include <string_view>

namespace gyre {

// While it lives, SIGPIPE and SIGXFSZ that this thread's writes bring about are held, and are gone
// when it ends: the program hears of none, whatever its masks and handlers are. One that was
// pending before stays.
class WriteSignalsHeld {
 public:
  WriteSignalsHeld();
  ~WriteSignalsHeld();
  WriteSignalsHeld(const WriteSignalsHeld&) = delete;
  WriteSignalsHeld& operator=(const WriteSignalsHeld&) = delete;

 private:
  sigset_t ours_, mask_before_;
};

// How many bytes went out; the rest did not fit now, or never will. A disk may take its time.
std::size_t write_promptly(int descriptor, std::string_view bytes);

}  // namespace gyre
