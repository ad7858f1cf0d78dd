// Formats and draws the progress. The caller decides when to call update().
#include "deploy/cli/src/output/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {
namespace {

constexpr size_t kMaxBarWidth = 40;
constexpr size_t kMinBarWidth = 10;

std::string clock(double seconds) {
  const auto whole = static_cast<uint64_t>(std::ceil(std::min(seconds, 360'000.0)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, ProgressOptions options, uint64_t now_ns)
    : out_(out), options_(options), begin_ns_(now_ns), drawn_ns_(now_ns) {}

std::string ProgressBar::line(double fraction, uint64_t count, uint64_t now_ns) const {
  const double seconds = static_cast<double>(now_ns - begin_ns_) / 1e9;
  std::string text = fmt::format("{} {}", with_thousands_separators(count), options_.unit);
  if (seconds > 0) {
    text +=
        fmt::format("  {} {}/s", with_thousands_separators(static_cast<uint64_t>(static_cast<double>(count) / seconds)),
                    options_.unit);
  }
  if (fraction < 0) return text;
  fraction = std::min(fraction, 1.0);
  // Assumes that the rest goes as fast as the part so far.
  if (fraction > 0) text += "  ETA " + clock(seconds / fraction * (1 - fraction));
  text = fmt::format("{:3.0f} %  {}", std::floor(fraction * 100), text);
  if (!options_.terminal) return text;
  const size_t room = options_.width > text.size() + 6 ? options_.width - text.size() - 6 : 0;
  if (room < kMinBarWidth) return text;
  const size_t bar = std::min(room, kMaxBarWidth);
  const auto full = static_cast<size_t>(fraction * static_cast<double>(bar));
  return fmt::format("[{}{}] {}", std::string(full, '#'), std::string(bar - full, '.'), text);
}

void ProgressBar::update(double fraction, uint64_t count, uint64_t now_ns) {
  // Writes to a terminal are slow, so most calls end here.
  if (now_ns - drawn_ns_ < (options_.terminal ? options_.redraw_ns : options_.line_ns)) return;
  drawn_ns_ = now_ns;
  if (options_.terminal) {
    out_ << "\r\x1b[K" << line(fraction, count, now_ns) << std::flush;
    drawn_ = true;
  } else {
    out_ << line(fraction, count, now_ns) << std::endl;
  }
}

void ProgressBar::clear() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool standard_error_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace loam::cli
