#include "deploy/cli/src/host/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace loam::cli {
namespace {

constexpr std::string_view kFlags =
    "processor\t: 0\nflags\t\t: fpu cx16 avx2 bmi1 bmi2 fma movbe f16c abm\nbugs\t: none\n";

/// A host of files; each test spoils one of them.
class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    std::string pattern = ::testing::TempDir() + "loam_doctor_XXXXXX";
    options_.root = mkdtemp(pattern.data());
    options_.memory_bytes = uint64_t{1} << 30;
    options_.locked_limit = ~uint64_t{0};
    options_.files_limit = 65'536;
    write("/proc/cpuinfo", std::string(kFlags));
    write("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    4194304 kB\n");
    write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    write("/proc/sys/vm/max_map_count", "65530\n");
    write("/proc/sys/vm/overcommit_memory", "0\n");
    write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  }
  ~DoctorTest() override { std::filesystem::remove_all(options_.root); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(options_.root + path).parent_path());
    std::ofstream(options_.root + path) << text;
  }
  Finding find(const std::string& topic) {
    const std::vector<Finding> findings = run_checks(options_);
    const auto found =
        std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.topic == topic; });
    EXPECT_NE(found, findings.end()) << topic;
    return found == findings.end() ? Finding{} : *found;
  }
  void expect_fixable(const std::string& topic, CheckResult result, const std::string& part) {
    const Finding finding = find(topic);
    EXPECT_EQ(finding.result, result) << topic;
    EXPECT_NE(finding.observation.find(part), std::string::npos) << finding.observation;
    EXPECT_FALSE(finding.fix.empty()) << topic << ": it must say what to do";
  }

  DoctorOptions options_;
};

TEST_F(DoctorTest, ReportsNoProblemOnGoodHost) {
  for (const Finding& finding : run_checks(options_)) {
    if (finding.topic == "time of day") continue;  // of the real host
    EXPECT_EQ(finding.result, CheckResult::kOk) << finding.topic << ": " << finding.observation;
    EXPECT_TRUE(finding.fix.empty()) << finding.topic;
  }
}

TEST_F(DoctorTest, NamesMissingProcessorFeatures) {
  write("/proc/cpuinfo", "flags\t\t: fpu cx16\n");
  EXPECT_EQ(find("processor").result, CheckResult::kError) << "the first line counts too";
  write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 bmi1 bmi2 fma movbe f16c abm\nbugs: cx16\n");
  expect_fixable("processor", CheckResult::kError, "it lacks cx16");
}

TEST_F(DoctorTest, ComparesMemoryWithWhatANodeTakes) {
  options_.memory_bytes = uint64_t{8} << 30;
  expect_fixable("memory", CheckResult::kError, "4 GiB available, a storage node needs 8 GiB");
}

TEST_F(DoctorTest, ReportsEachPoorSetting) {
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  expect_fixable("huge pages", CheckResult::kWarning, "'never'");
  options_.locked_limit = 64 * 1024;
  expect_fixable("locked memory", CheckResult::kWarning, "limited to 64 KiB");
  options_.files_limit = 256;
  expect_fixable("open files", CheckResult::kWarning, "limited to 256");
  write("/proc/sys/vm/max_map_count", "1000\n");
  expect_fixable("memory mappings", CheckResult::kWarning, "limited to 1000");
  write("/proc/sys/vm/overcommit_memory", "2\n");
  expect_fixable("overcommit", CheckResult::kWarning, "vm.overcommit_memory = 2");
  write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  expect_fixable("clock", CheckResult::kWarning, "'hpet'");
}

TEST_F(DoctorTest, ReportsProblemsOfRdmaPorts) {
  EXPECT_EQ(find("RDMA").observation, "no device; tcp:// needs none");
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1";
  write(port + "/state", "4: ACTIVE\n");
  write(port + "/link_layer", "Ethernet\n");
  write(port + "/rate", "100 Gb/sec (4X EDR)\n");
  write(port + "/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  expect_fixable("RDMA mlx5_0 port 1", CheckResult::kWarning, "active, Ethernet, 100 Gb/sec (4X EDR), GIDs: 0");
  write(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
  write(port + "/gid_attrs/ndevs/1", "eth7\n");
  write("/sys/class/net/eth7/mtu", "1500\n");
  expect_fixable("RDMA mlx5_0 port 1", CheckResult::kWarning, "GIDs: 1, MTU of eth7 1500");
  write("/sys/class/net/eth7/mtu", "4200\n");
  write("/sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  write("/sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
  EXPECT_EQ(find("RDMA mlx5_0 port 1").result, CheckResult::kOk);
  expect_fixable("RDMA mlx5_0 port 2", CheckResult::kWarning, "is 1: DOWN");
  expect_fixable("RDMA rxe0 port 1", CheckResult::kWarning, "state is not readable");
}

TEST_F(DoctorTest, ReportsUnreadableFiles) {
  std::filesystem::remove_all(options_.root + "/proc");
  expect_fixable("processor", CheckResult::kWarning, "/proc/cpuinfo is not readable");
  expect_fixable("memory", CheckResult::kWarning, "/proc/meminfo is not readable");
}

/// A socket that listens on a free port of an IPv4 address.
class Listener {
 public:
  explicit Listener(uint32_t host) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(host);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(descriptor_, 1), 0);
    EXPECT_EQ(getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(descriptor_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const { return port_; }
  std::string topic() const { return "port " + std::to_string(port_); }

 private:
  int descriptor_;
  uint16_t port_ = 0;
};

TEST_F(DoctorTest, FindsAPortInUse) {
  std::string topic;
  {
    const Listener taken(INADDR_LOOPBACK);
    topic = taken.topic();
    options_.ports = {taken.port()};
    expect_fixable(topic, CheckResult::kWarning,
                   "cannot be used on all addresses of this host: Address already in use");
    options_.address = "127.0.0.1";
    expect_fixable(topic, CheckResult::kWarning, "cannot be used on 127.0.0.1: Address already in use");
  }
  EXPECT_EQ(find(topic).observation, "free on 127.0.0.1");
  options_.address.clear();
  EXPECT_EQ(find(topic).result, CheckResult::kOk);
  EXPECT_EQ(find(topic).observation, "free on all addresses of this host");
}

TEST_F(DoctorTest, FindsAPortInUseOnAnotherAddress) {
  const Listener taken(INADDR_LOOPBACK + 1);
  options_.ports = {taken.port()};
  expect_fixable(taken.topic(), CheckResult::kWarning, "Address already in use");
  options_.address = "127.0.0.2";
  expect_fixable(taken.topic(), CheckResult::kWarning, "cannot be used on 127.0.0.2: Address already in use");
  options_.address = "127.0.0.1";
  EXPECT_EQ(find(taken.topic()).result, CheckResult::kOk);
}

TEST_F(DoctorTest, FindsAPortInUseOnTheWildcard) {
  const Listener taken(INADDR_ANY);
  options_.ports = {taken.port()};
  for (const char* address : {"", "127.0.0.1", "127.0.0.2"}) {
    options_.address = address;
    expect_fixable(taken.topic(), CheckResult::kWarning, "Address already in use");
  }
}

TEST_F(DoctorTest, FindsAnIpv6PortInUse) {
  const int taken = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof address;
  if (taken < 0 || bind(taken, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    if (taken >= 0) close(taken);
    GTEST_SKIP() << "this host has no IPv6";
  }
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  options_.ports = {ntohs(address.sin6_port)};
  const std::string topic = "port " + std::to_string(options_.ports[0]);
  expect_fixable(topic, CheckResult::kWarning, "Address already in use");
  options_.address = "::1";
  expect_fixable(topic, CheckResult::kWarning, "Address already in use");
  options_.address = "127.0.0.1";
  EXPECT_EQ(find(topic).result, CheckResult::kOk);
  close(taken);
}

TEST_F(DoctorTest, NamesAnAddressOfAnotherHost) {
  options_.ports = {7400};
  options_.address = "192.0.2.1";  // an address for documentation, which no host has
  expect_fixable("port 7400", CheckResult::kWarning, "cannot be used on 192.0.2.1: ");
  options_.address = "no host";
  expect_fixable("port 7400", CheckResult::kWarning, "'no host' has no address");
}

}  // namespace
}  // namespace loam::cli
