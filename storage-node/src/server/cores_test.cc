#include "storage-node/src/server/cores.h"

#include <string>

#include <gtest/gtest.h>
#include <sched.h>

#include "common/base/thread.h"

namespace loam::storage {
namespace {

/// Returns a core that this process may use.
unsigned some_core() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  unsigned core = 0;
  while (core + 1 < CPU_SETSIZE && !CPU_ISSET(core, &allowed)) ++core;
  return core;
}

TEST(Cores, ListsAndRanges) {
  const std::string one = std::to_string(some_core());
  EXPECT_TRUE(parse_cores("").value().empty());
  EXPECT_EQ(parse_cores(one).value(), std::vector{some_core()});
  EXPECT_EQ(parse_cores(one + "-" + one).value(), std::vector{some_core()});
  EXPECT_EQ(parse_cores(one + "," + one).value(), (std::vector{some_core(), some_core()}));
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  if (!CPU_ISSET(some_core() + 1, &allowed)) GTEST_SKIP() << "two neighbouring cores are needed for a range";
  EXPECT_EQ(parse_cores(one + "-" + std::to_string(some_core() + 1)).value(),
            (std::vector{some_core(), some_core() + 1}));
}

TEST(Cores, InvalidListsAreRefusedWithAReason) {
  for (const char* text : {",", "0,", "0,,0", "-1", "0-", "x", "0x", "0 1", "1-0", "99999999999"}) {
    EXPECT_EQ(parse_cores(text).code(), StatusCode::kInvalidArgument) << text;
  }
  for (const char* text : {"1000000", "0-1000000"}) {
    const Status status = parse_cores(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("may use"), std::string::npos) << status.to_string();
  }
}

TEST(Cores, AThreadRunsOnItsCoreAlone) {
  cpu_set_t seen;
  CPU_ZERO(&seen);
  Thread thread("pinned", [&] {
    pin_to_core(some_core());
    static_cast<void>(sched_getaffinity(0, sizeof(seen), &seen));
  });
  thread.join();
  EXPECT_EQ(CPU_COUNT(&seen), 1);
  EXPECT_TRUE(CPU_ISSET(some_core(), &seen));
}

}  // namespace
}  // namespace loam::storage
