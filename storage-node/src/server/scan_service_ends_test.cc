// Scans that operators, limits, or a change of the node end.
#include <algorithm>
#include <map>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/testing/eventually.h"
#include "storage-node/src/server/scan_service.h"
#include "storage-node/testing/scan_service_fixture.h"

namespace loam::storage {
namespace {

// Operators see a query while it runs, and end it by its id.
TEST_F(ScanServiceTest, ListsAndCancelsQueries) {
  fill();
  start_kept({.threads = 2, .max_queries = 4});
  EXPECT_TRUE(service->queries(kNoTimeout).empty());
  wire::Scan scan = wide_scan();
  scan.credits = 2;
  ASSERT_TRUE(start(scan, 1).ok());
  wire::Scan other = scan;
  other.query.select.pop_back();
  ASSERT_TRUE(start(other, 2).ok());
  ASSERT_TRUE(start(scan, 3).ok());
  std::vector<QueryStatus> listed;
  const auto all_wait = [&] {
    listed = service->queries(kNoTimeout);
    return std::ranges::all_of(
        listed, [](const QueryStatus& one) { return one.state == QueryStatus::State::kWaitingForClient; });
  };
  ASSERT_TRUE(testing::eventually(all_wait)) << "the client reads no chunk";
  ASSERT_EQ(listed.size(), 3u);
  for (const QueryStatus& one : listed) {
    EXPECT_EQ(one.table, "accounts");
    EXPECT_EQ(one.snapshot, Version(11));
    EXPECT_GT(one.pages_total, 0u);
    EXPECT_LE(one.pages_left, one.pages_total);
    EXPECT_GE(one.chunks, 1u);
    EXPECT_EQ(one.unread_chunks, one.chunks);
    EXPECT_LE(one.waiting_ns, one.age_ns);
  }
  const auto count = [&](const QueryId& id) { return std::ranges::count(listed, id, &QueryStatus::id); };
  const auto pair = std::ranges::find_if(listed, [&](const QueryStatus& one) { return count(one.id) == 2; });
  const auto single = std::ranges::find_if(listed, [&](const QueryStatus& one) { return count(one.id) == 1; });
  ASSERT_TRUE(pair != listed.end() && single != listed.end()) << "the id depends on the content of the query";

  EXPECT_EQ(service->durations().count(), 0u) << "no scan has ended";
  const Status why(StatusCode::kCancelled, "cancelled by an operator");
  EXPECT_EQ(service->cancel({SessionId(9), pair->id.hash}, why), 0u) << "another session";
  EXPECT_EQ(service->cancel({pair->id.session, pair->id.hash + 1}, why), 0u) << "another query";
  EXPECT_EQ(service->cancel(single->id, why), 1u);
  EXPECT_EQ(ends_of_scans(1, 0).at(2).to_string(), why.to_string());
  EXPECT_EQ(service->cancel(single->id, why), 0u) << "it has ended";
  EXPECT_EQ(service->cancel(pair->id, why), 2u);
  const auto ended = ends_of_scans(2, 0);
  EXPECT_TRUE(ended.at(1) == StatusCode::kCancelled && ended.at(3) == StatusCode::kCancelled);
  EXPECT_TRUE(service->queries(kNoTimeout).empty());
  EXPECT_EQ(service->durations().count(), 3u) << "of scans, not of their parts";
  EXPECT_GT(service->durations().sum_ns(), 0u);
}

// A query that is cancelled before its scan threads know it reads nothing.
TEST_F(ScanServiceTest, CancelsQueriesThatHaveNotBegun) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  const std::vector<QueryStatus> listed = service->queries(0);
  ASSERT_EQ(listed.size(), 1u) << "the scan threads do not run yet, and do not report";
  EXPECT_EQ(listed[0].state, QueryStatus::State::kQueued);
  EXPECT_EQ(service->cancel(listed[0].id, {StatusCode::kCancelled, "cancelled by an operator"}), 1u);
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kCancelled);
}

TEST_F(ScanServiceTest, ADroppedTableEndsItsScans) {
  fill();
  start_service(1);
  wire::Scan scan = sum_scan();
  ASSERT_TRUE(start(scan).ok());
  registry->remove(*epoch_thread, kAccounts);
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kNoSuchTable) << "never an empty result (R30)";
  service->stop();
}

TEST_F(ScanServiceTest, DisconnectedPeerEndsItsScans) {
  start_service(1, 1);
  ASSERT_TRUE(start(sum_scan()).ok());
  service->peer_disconnected(peer.id());
  service->run();
  outbox.wait_for_done();
  EXPECT_TRUE(start(sum_scan(), 2).ok()) << "its place is free again";
  service->stop();
}

TEST_F(ScanServiceTest, WithoutALeaseScansEnd) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  registry->grant_lease(1);  // a lease that has run out
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  service->stop();
}

TEST_F(ScanServiceTest, ANewPublicationEndsScansThatItDoesNotCover) {
  fill();
  start_service(1);
  ASSERT_TRUE(start(sum_scan()).ok());
  registry->publish(*epoch_thread, publication(2, 50));
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kSnapshotTooOld) << "R14";
  service->stop();
}

TEST_F(ScanServiceTest, EndAllInformsTheClients) {
  fill();
  start_service(2);
  ASSERT_TRUE(start(sum_scan()).ok());
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the threads do not run yet";
  service->run();
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  EXPECT_TRUE(service->end_all({StatusCode::kUnavailable, "stopping"}, 30'000'000'000));
  service->stop();
}

TEST_F(ScanServiceTest, EndAllWaitsUntilTheEndsAreInTheOutboxes) {
  fill();
  start_service(1);
  std::binary_semaphore posting(0), may_post(0);
  outbox.before_post = [&] {
    posting.release();
    may_post.acquire();
  };
  ASSERT_TRUE(start(sum_scan()).ok());
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the thread does not run yet";
  service->run();
  posting.acquire();
  EXPECT_FALSE(service->end_all({StatusCode::kUnavailable, "stopping"}, 0)) << "the thread has not posted the end";
  may_post.release();
  EXPECT_TRUE(service->end_all({StatusCode::kUnavailable, "stopping"}, 30'000'000'000));
  EXPECT_EQ(end_of_scan(), StatusCode::kUnavailable);
  service->stop();
}

TEST_F(ScanServiceTest, ATimeLimitEndsAScanWhoseClientDoesNotRead) {
  fill();
  start_service(1);
  service->run();
  wire::Scan scan = sum_scan();
  scan.query.aggregates.clear();
  scan.query.with_key = true;
  scan.query.select.assign(700, 0);  // more than one chunk
  scan.credits = 1;
  scan.time_limit_ns = 50'000'000;
  ASSERT_TRUE(start(scan).ok());
  const auto messages = outbox.wait_for_done();
  ByteReader reader(messages.back());
  wire::Envelope envelope;
  wire::ScanDone done;
  ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
  ASSERT_TRUE(wire::decode_body(reader, done).ok());
  EXPECT_EQ(done.status.code(), StatusCode::kTimeout);
  EXPECT_GE(done.statistics.elapsed_ns, scan.time_limit_ns);
}

TEST_F(ScanServiceTest, StalledReaderIsCancelledAndOthersContinue) {
  fill();
  start_kept({.max_queries = 3, .stall_limit_ns = 3'000'000'000});
  const uint64_t begun_ns = Env::now_ns();
  ASSERT_TRUE(start(wide_scan(), 1).ok());
  ASSERT_TRUE(start(wide_scan(), 2).ok());
  ASSERT_TRUE(start(sum_scan(), 3).ok());
  const auto ends = ends_of_scans(3, 2);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_LT(Env::now_ns() - begun_ns, ScanService::Options().stall_limit_ns) << "what this service was given counts";
  EXPECT_EQ(ends.at(1).code(), StatusCode::kTimeout);
  EXPECT_NE(ends.at(1).message().find("--scan-stall-limit"), std::string_view::npos) << ends.at(1).to_string();
  EXPECT_NE(ends.at(1).message().find("read chunks as they come"), std::string_view::npos) << "what to do";
  EXPECT_TRUE(ends.at(2).ok()) << "it reads: " << ends.at(2).to_string();
  EXPECT_TRUE(ends.at(3).ok()) << ends.at(3).to_string();
  EXPECT_TRUE(start(wide_scan(), 4).ok()) << "its place is free again";
  service->stop();
}

TEST_F(ScanServiceTest, StalledReaderLosesItsPagesWhenMemoryIsShort) {
  fill();
  while (pool->fill() <= 0.9) ASSERT_NE(pool->allocate(pool->page_size(), Reserve::kCompactor), nullptr);
  start_kept({.stall_limit_ns = 10'000'000'000});
  ASSERT_TRUE(start(wide_scan(), 1).ok());
  ASSERT_TRUE(start(wide_scan(), 2).ok());
  const auto ends = ends_of_scans(2, 2);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends.at(1).code(), StatusCode::kTimeout);
  EXPECT_NE(ends.at(1).message().find("short of memory"), std::string_view::npos) << ends.at(1).to_string();
  EXPECT_TRUE(ends.at(2).ok()) << "it reads: " << ends.at(2).to_string();
  service->stop();
  const EpochGuard guard(*epoch_thread);
  const auto pages = (*registry->view().find(kAccounts))->table->pages().pages();
  EXPECT_TRUE(std::ranges::none_of(pages, [](const Page* page) { return page->pinned(); }));
}

}  // namespace
}  // namespace loam::storage
