#include "common/admin/web_access.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr const char* kToken = "0123456789abcdef-secret";

/// A token file in a temporary folder.
class WebAccessTest : public ::testing::Test {
 protected:
  WebAccessTest() {
    std::string folder = ::testing::TempDir() + "web_access_XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    file_ = folder_ / "token";
    write(std::string(kToken) + "\n");
  }
  ~WebAccessTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) {
    std::ofstream(file_) << text;
    std::filesystem::permissions(file_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  /// Returns the status of the refusal; 0 if the change is allowed.
  unsigned refused(HttpRequest request) const {
    const WebAccess access("127.0.0.1:7410", file_);
    const auto reply = access.refuse_change(request);
    return reply ? reply->status : 0;
  }
  static HttpRequest good() {
    HttpRequest request;
    request.method = "POST";
    request.path = "/api/EndSession";
    request.host = "localhost:7410";
    request.authorization = std::string("Bearer ") + kToken;
    request.content_type = "application/json";
    return request;
  }

  std::filesystem::path folder_;
  std::filesystem::path file_;
};

TEST_F(WebAccessTest, HostMustBeThisServer) {
  const WebAccess access("status.example:7410", "");
  for (const char* host : {"localhost", "LOCALHOST:9", "127.0.0.1:7410", "10.1.2.3", "[::1]:7410",
                           "[fe80::1%eth0]:7410", "status.example:7410"}) {
    EXPECT_TRUE(access.check_host(host).ok()) << host;
  }
  for (const char* host :
       {"", "attacker.example", "127.0.0.1.attacker.example:7410", "localhost.attacker.example", ":7410", "[", "[]"}) {
    EXPECT_EQ(access.check_host(host).code(), StatusCode::kInvalidArgument) << host;
  }
}

TEST_F(WebAccessTest, AChangeNeedsTheToken) {
  EXPECT_EQ(refused(good()), 0u);
  HttpRequest request = good();
  request.authorization = "";
  EXPECT_EQ(refused(request), 401u);
  for (const char* wrong : {"Bearer ", "Bearer 0123456789abcdef-secreT", "Bearer 0123456789abcdef-secret!", "Basic x",
                            "0123456789abcdef-secret"}) {
    request.authorization = wrong;
    EXPECT_EQ(refused(request), 401u) << wrong;
  }
}

TEST_F(WebAccessTest, AChangeFromAnotherPageIsRefused) {
  HttpRequest request = good();
  request.origin = "http://localhost:7410";
  EXPECT_EQ(refused(request), 0u);
  for (const char* origin : {"http://localhost:7411", "https://localhost:7410", "http://attacker.example", "null"}) {
    request.origin = origin;
    EXPECT_EQ(refused(request), 403u) << origin;
  }
  request = good();
  request.content_type = "text/plain";
  EXPECT_EQ(refused(request), 415u);
}

TEST_F(WebAccessTest, WithoutATokenFileNothingChanges) {
  const WebAccess access("127.0.0.1:7410", "");
  EXPECT_FALSE(access.allows_changes());
  const auto reply = access.refuse_change(good());
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->status, 403u);
  EXPECT_NE(reply->body.find("--admin-token-file"), std::string::npos) << "the reply says what to do: " << reply->body;
}

TEST_F(WebAccessTest, ATokenFileIsCheckedAndMayBeReplaced) {
  EXPECT_EQ(read_token(file_).value(), kToken);
  write("another-token-0123456789\n");
  EXPECT_EQ(refused(good()), 401u) << "the new token counts at once";
  write(std::string(kMinTokenLength - 1, 'x') + "\n");
  EXPECT_EQ(read_token(file_).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(good()), 500u);
  write(std::string(1'024, 'x') + "\n");
  EXPECT_TRUE(read_token(file_).ok());
  write(std::string(1'025, 'x') + "\n");
  EXPECT_EQ(read_token(file_).code(), StatusCode::kInvalidArgument);
  write(std::string(kToken) + "\n");
  std::filesystem::permissions(file_, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_NE(read_token(file_).status().message().find("chmod"), std::string_view::npos);
  EXPECT_EQ(read_token(folder_ / "none").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam
