#include "deploy/cli/src/cluster/cluster_folder.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deploy/local/templates.h"

namespace loam::cli {
namespace {

class ClusterFolderTest : public ::testing::Test {
 protected:
  ClusterFolderTest() {
    std::string pattern = ::testing::TempDir() + "loam_folder_XXXXXX";
    options_.directory = std::filesystem::path(mkdtemp(pattern.data())) / "cluster";
    options_.free_ports = true;
  }
  ~ClusterFolderTest() override { std::filesystem::remove_all(options_.directory.parent_path()); }
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  FolderOptions options_;
};

TEST_F(ClusterFolderTest, OpenReadsWhatCreateWrote) {
  options_.nodes = 3;
  options_.memory = "64MiB";
  options_.node_settings = {{"scan-threads", "2"}};
  auto created = ClusterFolder::create(options_);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  auto read = ClusterFolder::open(options_.directory);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->members().size(), 4u);
  EXPECT_EQ(read->manager().name, "commit-manager");
  EXPECT_EQ(read->manager().program(), "loam-commit-manager");
  std::set<uint16_t> ports;
  for (size_t i = 0; i < 4; ++i) {
    const Member& member = read->members()[i];
    EXPECT_EQ(member.name, created->members()[i].name);
    EXPECT_EQ(member.address, created->members()[i].address);
    EXPECT_EQ(port_of(member.admin_address), port_of(member.address) + kAdminPortOffset);
    ports.insert({port_of(member.address), port_of(member.admin_address)});
    EXPECT_EQ(text_of(read->config_file(member)).find('{'), std::string::npos) << text_of(read->config_file(member));
  }
  EXPECT_EQ(ports.size(), 8u);
  const std::string node = text_of(read->config_file(*read->member("node-3")));
  EXPECT_NE(node.find("manager = \"" + read->manager().address + "\"\n"), std::string::npos) << node;
  EXPECT_NE(node.find("memory = \"64MiB\"\n"), std::string::npos) << node;
  EXPECT_NE(node.find("scan-threads = 2\n"), std::string::npos) << node;
  EXPECT_NE(text_of(read->config_file(read->manager())).find("nodes = 3\n"), std::string::npos);
}

TEST_F(ClusterFolderTest, ReportsMissingFolderAndMember) {
  EXPECT_EQ(ClusterFolder::open(options_.directory).code(), StatusCode::kNotFound);
  auto folder = ClusterFolder::create(options_);
  ASSERT_TRUE(folder.ok());
  const auto missing = folder->member("node-7");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("commit-manager, node-1, node-2"), std::string_view::npos);
}

TEST_F(ClusterFolderTest, ReportsDamagedDescription) {
  ASSERT_TRUE(ClusterFolder::create(options_).ok());
  for (const char* text :
       {"", "{", "[]", "{}", R"({"members":[]})", R"({"members":[1]})", R"({"members":[{"name":"a"}]})",
        R"({"members":[{"name":"a","role":"storage-node","address":"","admin_address":""}]})"}) {
    std::ofstream(options_.directory / "cluster.json", std::ios::trunc) << text;
    EXPECT_EQ(ClusterFolder::open(options_.directory).code(), StatusCode::kMalformed) << text;
  }
}

TEST_F(ClusterFolderTest, LimitsNumberOfNodes) {
  for (const unsigned nodes : {0u, kMaxLocalNodes + 1}) {
    options_.nodes = nodes;
    EXPECT_EQ(ClusterFolder::create(options_).code(), StatusCode::kInvalidArgument);
  }
  options_.nodes = kMaxLocalNodes;
  EXPECT_TRUE(ClusterFolder::create(options_).ok());
}

TEST_F(ClusterFolderTest, ReportsUnwritableFolder) {
  std::ofstream(options_.directory.string()) << "a file";
  EXPECT_EQ(ClusterFolder::create(options_).code(), StatusCode::kInternal);
}

TEST_F(ClusterFolderTest, NewClusterRemovesStoredManagerState) {
  std::filesystem::create_directories(options_.directory / "commit-manager.data");
  std::ofstream(options_.directory / "node-1.log") << "kept\n";
  ASSERT_TRUE(ClusterFolder::create(options_).ok());
  EXPECT_FALSE(std::filesystem::exists(options_.directory / "commit-manager.data"));
  EXPECT_EQ(text_of(options_.directory / "node-1.log"), "kept\n");
}

TEST(PortTest, PortOfListenerIsNotFree) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_FALSE(port_is_free(ntohs(address.sin_port)));
  close(fd);
}

TEST(PortTest, ParsesPortOfAddress) {
  EXPECT_EQ(port_of("tcp://127.0.0.1:7400"), 7400);
  EXPECT_EQ(port_of("[::1]:80"), 80);
  for (const char* none : {"", "127.0.0.1", "host:", "host:70000", "host:1x"}) EXPECT_EQ(port_of(none), 0) << none;
}

TEST(TemplateTest, ReplacesPlaceholders) {
  EXPECT_EQ(substitute("{a} and {b}, {a}", {{"a", "{b}"}, {"b", "2"}}), "{b} and 2, {b}");
  EXPECT_EQ(substitute("a = \"{a}\"", {{"a", "x\"y"}}), "a = \"x\\\"y\"");
  EXPECT_EQ(substitute("} {", {}), "} {");
  EXPECT_EQ(substitute("{none}", {{"a", "1"}}), "{none}");
  EXPECT_NE(local::kCommitManagerTemplate.find("{nodes}"), std::string_view::npos);
  EXPECT_NE(local::kStorageNodeTemplate.find("{manager}"), std::string_view::npos);
}

TEST(TemplateTest, SetsLines) {
  std::string toml = "# nodes = 7\nnodes = 2\n";
  set_toml_value(toml, {"nodes", "3"});
  set_toml_value(toml, {"name", "a \"b\""});
  set_toml_value(toml, {"fast", "true"});
  EXPECT_EQ(toml, "# nodes = 7\nnodes = 3\nname = \"a \\\"b\\\"\"\nfast = true\n");
}

}  // namespace
}  // namespace loam::cli
