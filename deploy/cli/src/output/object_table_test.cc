#include "deploy/cli/src/output/object_table.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string print(OutputFormat format) {
  const Json objects = {{{"id", 7}, {"name", "reader"}, {"age_ns", 7'800'000'000}, {"rest", true}}, {{"id", 1'234}}};
  std::ostringstream out;
  print_objects(format,
                {number_column("session", "id"), text_column("client", "name"), duration_column("age", "age_ns"),
                 made_column("note", [](const Json& one) { return one.contains("rest") ? "rests" : "-"; })},
                objects, out);
  return out.str();
}

TEST(ObjectTable, PrintsARowForEachObject) {
  EXPECT_EQ(print(OutputFormat::kTable),
            "session  client  age     note\n"
            "-------  ------  ------  -----\n"
            "      7  reader  7.80 s  rests\n"
            "   1234          0 ns    -\n");
}

TEST(ObjectTable, PrintsEveryFormat) {
  EXPECT_EQ(print(OutputFormat::kCsv), "session,client,age,note\n7,reader,7.80 s,rests\n1234,\"\",0 ns,-\n");
  EXPECT_EQ(print(OutputFormat::kJson),
            "{\"session\":7,\"client\":\"reader\",\"age\":\"7.80 s\",\"note\":\"rests\"}\n"
            "{\"session\":1234,\"client\":\"\",\"age\":\"0 ns\",\"note\":\"-\"}\n");
}

TEST(ObjectTable, PrintsTheHeaderOfAnEmptyList) {
  std::ostringstream out;
  print_objects(OutputFormat::kTable, {text_column("client", "name")}, Json::array(), out);
  EXPECT_EQ(out.str(), "client\n------\n");
}

}  // namespace
}  // namespace loam::cli
