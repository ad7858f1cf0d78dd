#include "common/net/transport/address.h"

#include <gtest/gtest.h>

namespace loam::net {
namespace {

TEST(Address, ParseReadsWhatToStringWrites) {
  for (const char* text : {"tcp://127.0.0.1:7400", "tcp://[::1]:0", "rdma://node-3.example:65535", "sim://a_1:1",
                           "tcp://[fe80::1%eth0]:80"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_EQ(address->to_string(), text);
  }
  const auto address = *Address::parse("tcp://[::1]:7400");
  EXPECT_EQ(address.scheme, Scheme::kTcp);
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 7400);
}

TEST(Address, ParseErrorsExplainTheFormat) {
  struct Case {
    const char* text;
    const char* mistake;
  };
  for (const Case& c :
       {Case{"", "no scheme"}, Case{"127.0.0.1:7400", "no scheme"}, Case{"http://a:1", "scheme is not"},
        Case{"tcp://a", "no port"}, Case{"tcp://:1", "no host"}, Case{"tcp://a:", "port is not"},
        Case{"tcp://a:65536", "port is not"}, Case{"tcp://a:-1", "port is not"}, Case{"tcp://a:1x", "port is not"},
        Case{"tcp://a b:1", "character"}, Case{"tcp://[::1:1", "bracket"}, Case{"tcp://[a%b]:1", "IPv6"},
        Case{"tcp://[::1]1", "no port"}, Case{"tcp://fe80::1:1", "brackets"}}) {
    const auto address = Address::parse(c.text);
    ASSERT_FALSE(address.ok()) << c.text;
    EXPECT_EQ(address.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(address.status().message().find(c.mistake), std::string_view::npos)
        << c.text << ": " << address.status().to_string();
    EXPECT_NE(address.status().message().find("tcp://127.0.0.1:7400"), std::string_view::npos);
  }
  EXPECT_LT(Address::parse(std::string(10'000, 'x')).status().message().size(), 500u);
}

}  // namespace
}  // namespace loam::net
