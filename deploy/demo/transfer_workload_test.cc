#include "deploy/demo/transfer_workload.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/env.h"
#include "common/base/log.h"
#include "deploy/cli/src/cluster/one_process.h"
#include "deploy/demo/client_report.h"

namespace loam::cli {
namespace {

class TransferWorkloadTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kAccounts = 20;  // few, so that transfers meet

  TransferWorkloadTest() {
    set_log_level(LogLevel::kWarning);
    OneProcessOptions options = OneProcessOptions::on_free_ports();
    options.node.memory_bytes = uint64_t{96} << 20;
    options.node.page_bytes = uint64_t{2} << 20;
    options.node.huge_pages = false;
    auto cluster = OneProcessCluster::start(options);
    LOAM_CHECK(cluster.ok(), "the cluster does not start");
    cluster_ = std::move(cluster).value();
    client_ = connect();
    std::string pattern = ::testing::TempDir() + "loam_movers_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~TransferWorkloadTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<client::Client> connect() const {
    auto client = client::Client::connect(cluster_->address());
    LOAM_CHECK(client.ok(), "a client does not connect");
    return std::move(client).value();
  }
  // Until the workload have made `transfers`, while `meanwhile` is called again and again.
  template <class Meanwhile>
  static void move(TransferWorkload& workload, uint64_t transfers, Meanwhile meanwhile) {
    const uint64_t end_ns = Env::now_ns() + 60'000'000'000;
    workload.start();
    while (workload.counts().transfers() < transfers && Env::now_ns() < end_ns) meanwhile();
    workload.stop();
    workload.join();
  }

  std::unique_ptr<OneProcessCluster> cluster_;
  std::unique_ptr<client::Client> client_;
  std::filesystem::path directory_;
};

TEST_F(TransferWorkloadTest, KeepsTotalAndRecordsEveryTransferInLedger) {
  auto tables = make_accounts(*client_, kAccounts);
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  const auto watcher = connect();
  TransferWorkload workload(*client_, *tables, {.client_number = 3, .fibers = 8, .seed = 5}, nullptr);
  unsigned scans = 0;
  move(workload, 500, [&] {
    const Status status = check_total(*watcher, *tables);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ++scans;
  });
  const TransferCounts counts = workload.counts();
  EXPECT_EQ(counts.fatal, "");
  EXPECT_GE(counts.transfers(), 500u);
  EXPECT_GT(scans, 0u);
  EXPECT_EQ(workload.fetch_and_reset_latencies().count(), counts.transfers());
  EXPECT_EQ(workload.fetch_and_reset_latencies().count(), 0u);
  EXPECT_GT(workload.fetch_and_reset_longest_stall().length_ns, 0u);
  EXPECT_EQ(workload.fetch_and_reset_longest_stall().end_ns, 0u);
  EXPECT_TRUE(check_total(*watcher, *tables).ok());
  const auto ledger = read_ledger(*watcher, *tables, 3, 8);
  ASSERT_TRUE(ledger.ok()) << ledger.status().to_string();
  EXPECT_EQ(*ledger, counts.acknowledged);
  EXPECT_EQ(*read_ledger(*watcher, *tables, 4, 8), std::vector<uint64_t>(8, 0));
}

TEST_F(TransferWorkloadTest, DetectsWrongTotal) {
  auto tables = make_accounts(*client_, kAccounts);
  ASSERT_TRUE(tables.ok());
  ASSERT_TRUE(check_total(*client_, *tables).ok());
  const auto add_one = [&](client::Transaction& transaction) -> Status {
    return transaction.update(tables->accounts, Key(7), {Value::int64(kOpeningBalance + 1)});
  };
  ASSERT_TRUE(client_->run_transaction(add_one).ok());
  const Status more = check_total(*client_, *tables);
  EXPECT_EQ(more.code(), StatusCode::kInternal);
  EXPECT_NE(more.message().find("20 accounts with 20001"), std::string_view::npos) << more.message();
  const auto remove = [&](client::Transaction& transaction) { return transaction.remove(tables->accounts, Key(7)); };
  ASSERT_TRUE(client_->run_transaction(remove).ok());
  EXPECT_EQ(check_total(*client_, *tables).code(), StatusCode::kInternal);
}

TEST_F(TransferWorkloadTest, UnexpectedErrorEndsFiber) {
  auto tables = make_accounts(*client_, kAccounts);
  ASSERT_TRUE(tables.ok());
  ASSERT_TRUE(client_->drop_table("ledger").ok());
  TransferWorkload workload(*client_, *tables, {.client_number = 0, .fibers = 2, .seed = 5}, nullptr);
  workload.start();
  workload.join();
  EXPECT_NE(workload.counts().fatal.find("kNoSuchTable"), std::string::npos) << workload.counts().fatal;
  EXPECT_EQ(workload.counts().transfers(), 0u);
}

TEST_F(TransferWorkloadTest, InFlightKeysOutliveWriter) {
  {
    auto in_flight_keys = InFlightKeys::create(directory_ / "in_flight_keys", 3);
    ASSERT_TRUE(in_flight_keys.ok());
    in_flight_keys->begin(0, 11, 12);
    in_flight_keys->begin(2, 13, 14);
    in_flight_keys->begin(1, 15, 16);
    in_flight_keys->end(1);
  }
  EXPECT_EQ(*InFlightKeys::read(directory_ / "in_flight_keys"), (std::vector<uint64_t>{11, 12, 13, 14}));
  EXPECT_EQ(InFlightKeys::read(directory_ / "none").code(), StatusCode::kNotFound);
  EXPECT_FALSE(InFlightKeys::create(directory_ / "none" / "in_flight_keys", 3).ok());
}

TEST_F(TransferWorkloadTest, ReadsGrowingReports) {
  const auto path = directory_ / "report";
  ReportTail tail(path);
  EXPECT_TRUE(tail.poll().empty());
  ClientReport line;
  line.at_ns = 5;
  line.counts.acknowledged = {3, 4};
  line.counts.unknown = {0, 1};
  line.counts.fenced = 2;
  line.latencies.add(1'000);
  line.stall = {8, 9};
  const std::string text = to_json_line(line);
  std::ofstream(path, std::ios::app) << "a warning\n" << text << "\n" << text.substr(0, 10);
  ASSERT_EQ(tail.poll().size(), 1u);
  std::ofstream(path, std::ios::app) << text.substr(10) << "\n{\"at_ns\":1}\n";
  ASSERT_EQ(tail.poll().size(), 2u);
  EXPECT_EQ(tail.transfers(), 7u);
  EXPECT_EQ(tail.lines()[1].counts.unknown, line.counts.unknown);
  EXPECT_EQ(tail.lines()[1].counts.fenced, 2u);
  EXPECT_EQ(tail.lines()[1].latencies.count(), 1u);
  EXPECT_EQ(tail.lines()[1].stall.end_ns, 9u);
  EXPECT_FALSE(tail.lines()[1].last);
}

}  // namespace
}  // namespace loam::cli
