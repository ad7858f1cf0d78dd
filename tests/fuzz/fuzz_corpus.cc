// Writes the seed inputs of every fuzz target to DIRECTORY/TARGET/NUMBER. The product's own encoders make them, so
// that they follow its formats.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <loam/bdtree/key.h>
#include <loam/commit/log_format.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "common/net/link/frame.h"
#include "common/net/transport/transport.h"
#include "common/schema/chunk.h"
#include "common/testing/random_expression.h"
#include "tests/fuzz/examples.h"
#include "tests/fuzz/key_parts.h"
#include "tests/fuzz/tables.h"

namespace loam::fuzz {
namespace {

constexpr uint8_t kChoices[] = {0, 1, 2, 3, 5, 8, 13, 21};

class Corpus {
 public:
  explicit Corpus(std::filesystem::path root) : root_(std::move(root)) {}

  void add(const std::string& target, std::initializer_list<uint8_t> choices, Bytes bytes) {
    const std::filesystem::path folder = root_ / target;
    std::filesystem::create_directories(folder);
    std::ofstream file(folder / std::to_string(counts_[target]++), std::ios::binary);
    for (const uint8_t choice : choices) file.put(static_cast<char>(choice));
    const std::string_view text = as_text(bytes);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.flush()) failed_ = true;
  }
  template <class T>
  void add_encoded(const std::string& target, std::initializer_list<uint8_t> choices, const T& value) {
    Buffer bytes;
    ByteWriter writer(bytes);
    value.encode(writer);
    add(target, choices, bytes);
  }
  bool failed() const { return failed_; }

 private:
  const std::filesystem::path root_;
  std::map<std::string, int> counts_;
  bool failed_ = false;
};

void add_messages(Corpus& corpus) {
  const ExampleIds ids;
  const auto take = [&](wire::Opcode opcode, const Buffer& message) {
    // The opcodes of the storage protocol come first.
    const bool storage = opcode < wire::Opcode::kOpenSession;
    corpus.add(storage ? "storage_message_fuzz" : "manager_message_fuzz", {}, message);
  };
  client_to_node(ids, take);
  to_manager(ids, take);
  from_servers(ids, take);

  Buffer announcing;  // the count announces far more tables than follow
  ByteWriter writer(announcing);
  writer.put(wire::Opcode::kGetCatalogReply);
  for (const uint64_t number : {1u, 12u, 16'000u}) writer.put_varint(number);
  announcing.resize(announcing.size() + 16'000);
  take(wire::Opcode::kGetCatalogReply, announcing);
}

template <class T>
void append(Buffer& to, const T& value) {
  to.resize(to.size() + sizeof(T));
  net::write_as(to.data() + to.size() - sizeof(T), value);
}

void add_frames(Corpus& corpus) {
  using namespace net;
  Buffer greeting;
  append(greeting, Greeting{.protocol_version = kFramingVersion,
                            .max_frame_bytes = kMinFrameBytes,
                            .window_frames = 4,
                            .max_message_bytes = 4096});
  Buffer messages;
  append(messages, FrameHeader{16 + 2 * 16, FrameType::kMessages, 0, 0, 2, 0});
  for (const uint32_t size : {5u, 8u}) {
    append(messages, MessageHeader{size, 0});
    append(messages, uint64_t{0});
  }
  Buffer fragments;
  for (const uint64_t offset : {0u, 8u}) {
    append(fragments, FrameHeader{16 + 16 + 8, FrameType::kFragment, 0, 0, offset == 0 ? 8u : 3u, 0});
    append(fragments, PartHeader{11, offset});
    append(fragments, uint64_t{7});
  }
  Buffer write;
  append(write, FrameHeader{16 + 16 + 8, FrameType::kWrite, 0, 0, 8, 0});
  append(write, PartHeader{1, 40});
  append(write, uint64_t{7});
  Buffer goodbye;
  append(goodbye, FrameHeader{16 + 8, FrameType::kGoodbye, 0, 0, 7, 3});
  append(goodbye, uint64_t{0x796877});
  corpus.add("frame_fuzz", {0}, greeting);
  for (const Buffer* frame : {&messages, &fragments, &write, &goodbye}) {
    for (const uint8_t choice : std::array<uint8_t, 3>{1, 3, 29}) corpus.add("frame_fuzz", {choice}, *frame);
    Buffer both = greeting;
    both.insert(both.end(), frame->begin(), frame->end());
    corpus.add("frame_fuzz", {0}, both);
  }
}

void add_schemas(Corpus& corpus) {
  corpus.add_encoded("schema_fuzz", {0}, example_schema());
  corpus.add("schema_fuzz", {1}, as_bytes("owner:text,balance:int64?"));
  for (const uint8_t choice : kChoices) {
    const Schema schema = chosen_schema(choice);
    const Query query = chosen_query(schema, choice);
    testing::Random random(choice);
    corpus.add_encoded("schema_fuzz", {0}, schema);
    corpus.add_encoded("query_fuzz", {choice}, query);
    Query expressions;
    expressions.computed = testing::RandomExpressions(random, schema).draw(choice % 16 + size_t{1});
    expressions.where.where(kFirstComputed, PredicateOp::kIsNotNull);
    expressions.select = {kFirstComputed};
    corpus.add_encoded("query_fuzz", {choice}, expressions);
    corpus.add_encoded("predicate_fuzz", {choice}, testing::random_selection(random, schema));
    corpus.add("row_fuzz", {choice, choice}, testing::build_row(schema, testing::random_row(random, schema)));
    testing::Random of_part = testing::Random(choice).fork();  // the same choice as in row_fuzz
    const Schema part = testing::projected_schema(schema, testing::random_fields(of_part, schema));
    corpus.add("row_fuzz", {choice, choice}, testing::build_row(part, testing::random_row(of_part, part)));
    ChunkBuilder builder(query.partial_schema(schema));
    for (int row = 0; row < 3; ++row) {
      for (size_t i = 0; i < builder.schema().size(); ++i) {
        const Field& column = builder.schema().columns[i];
        const bool null = column.nullable && random.one_in(3);
        builder.append_value(i, null                                ? Value::null()
                                : column.type == FieldType::kUint64 ? Value::uint64(random.below(99))
                                                                    : testing::random_value(random, column.type));
      }
      builder.end_row();
    }
    Buffer chunk;
    LOAM_CHECK(builder.finish(chunk).ok(), "a small chunk fits");
    corpus.add("chunk_fuzz", {choice, choice}, chunk);
    for (const Value& value : testing::random_row(random, schema)) corpus.add_encoded("value_fuzz", {0}, value);
  }
  for (const std::string_view text : {"-7", "2.5e3", "x'0a0b'", "nan", "1e-40", "18446744073709551615", "true",
                                      "2024-02-29", "2024-02-29 12:34:56.5+02:00", "-12.50"}) {
    // One seed for each type of value_fuzz, which has 13 of them.
    for (uint8_t type = 130; type < 143; ++type) corpus.add("value_fuzz", {type}, as_bytes(text));
  }
}

void add_states(Corpus& corpus) {
  Buffer version(8, std::byte{9});
  ByteWriter writer(version);
  example_snapshot().encode(writer);
  corpus.add("snapshot_fuzz", {}, version);
  Buffer versions(16, std::byte{3});
  ByteWriter publication_writer(versions);
  example_publication().encode(publication_writer);
  corpus.add("publication_fuzz", {}, versions);

  commit::DurableState state;
  state.epoch = 3;
  state.last_incarnation = Incarnation(5);
  state.next_table = TableId(1030);
  state.tables = {{TableId(1024), "accounts", TableKind::kTransactional, example_schema()}};
  state.nodes = {{NodeId(1), Incarnation(5), "tcp://127.0.0.1:7401", "", 1u << 20, false}};
  state.shards_assigned = true;
  state.shards.owners.assign(wire::kVirtualShards, NodeId(1));
  // Both forms of the input: the whole file, and the body alone, around which the target puts head and checksum.
  Buffer file;
  state.history = {{7, 8}, {{2, 98, 4}, {3, 99, 10}}, 12};
  commit::encode_state(state, file);
  LOAM_CHECK(commit::decode_state(file).ok(), "the example is a state");
  corpus.add("durable_state_fuzz", {0}, file);
  corpus.add("durable_state_fuzz", {1}, Bytes(file).subspan(8 + 4 + 8 + 8));
  const uint8_t requests[] = {1, 10, 1, 4, 0, 0, 255, 0, 8, 33, 248, 2};
  corpus.add("reply_window_fuzz", {}, std::as_bytes(std::span(requests)));
}

void add_commit_logs(Corpus& corpus) {
  const commit::CommitLogContents contents = {
      .committed = {{TransactionId(3), TransactionId(5)}, {TransactionId(7), TransactionId(7)}},
      .truncated_up_to = TransactionId(2),
      .end = 9};
  constexpr size_t kHeadBytes = 8 + 4 + 8 + 8;
  constexpr size_t kRecordHeadBytes = 8 + 4;
  uint64_t chain = 7;
  Buffer log;
  commit::encode_checkpoint(contents, chain, log);
  corpus.add("commit_log_fuzz", {1}, Bytes(log).subspan(kHeadBytes));
  Buffer bodies;
  for (const uint64_t id : {6u, 11u, 1'000u}) {
    const std::array<TransactionId, 3> ids = {TransactionId(id), TransactionId(id + 1), TransactionId(id - 2)};
    const size_t begin = log.size();
    commit::encode_batch(ids, chain, log);
    const Bytes body = Bytes(log).subspan(begin + kRecordHeadBytes);
    bodies.push_back(static_cast<std::byte>(body.size()));
    bodies.insert(bodies.end(), body.begin(), body.end());
  }
  LOAM_CHECK(commit::read_log(log).ok(), "the example is a log");
  corpus.add("commit_log_fuzz", {0}, log);
  corpus.add("commit_log_fuzz", {2}, bodies);
}

void add_keys(Corpus& corpus) {
  for (const uint8_t choice : kChoices) {
    testing::Random random(choice);
    const std::vector<bdtree::KeyPart> parts = chosen_key_parts(choice);
    const auto codec = bdtree::KeyCodec::make(parts).value();
    std::string key;
    for (int i = 0; i < 2; ++i) {
      std::vector<Value> values;
      for (const bdtree::KeyPart& part : parts) {
        const bool null = part.nullable && random.one_in(3);
        values.push_back(null ? Value::null() : testing::random_value(random, part.type));
      }
      LOAM_CHECK(codec.encode(values, key).ok(), "small values make a key");
      corpus.add("key_fuzz", {choice}, as_bytes(key));
    }
  }
}

void add_texts(Corpus& corpus) {
  for (const uint8_t choice : std::array<uint8_t, 3>{0, 1, 28}) {
    corpus.add("csv_fuzz", {choice}, as_bytes("id,name,when\n1,\"Ada, \"\"A\"\"\",2.5\r\n2,NA,\n\"3\"\n"));
    corpus.add("csv_fuzz", {choice},
               as_bytes("\xef\xbb\xbf"
                        "a;b\n-1;\"x\ny\"\n"));
  }
  for (const uint8_t choice : kChoices) {
    for (const std::string_view text :
         {"f0 = 1 and not (f1 > 2.5 or f2 is null)", "f0 in (1, 2, 3) or f1 between -1 and 1",
          "f0 like 'a%' and f1 <> 'b''c'", "\"f0\" >= x'0a0b' or not f2 is not null", "not f0 < 0 and not f1 >= 1.5",
          "not (f0 <= -1 or f1 > 'a')", "not f1 < 2 or not f2 <> 0 or not f3 = ''"}) {
      corpus.add("condition_fuzz", {choice}, as_bytes(text));
    }
    for (const std::string_view text :
         {"f0 as a, _key\n\n\na desc\nf0 is not null", "\ncount(*) as n, max(f0)\nf0\nn, f0 asc\n", "*\n\n\nf0\n"}) {
      corpus.add("query_text_fuzz", {choice, 21}, as_bytes(text));
    }
  }
  corpus.add(
      "config_fuzz", {0},
      as_bytes("listen = 'tcp://h:1'\nhuge-pages = false\nmemory = \"64MiB\"\nlog-level = 'warning'\n[scan]\nthreads = "
               "4\n[client]\nlease = \"3s\"\n[compact]\ndead-share = 0.5\n"));
  corpus.add("config_fuzz", {0}, as_bytes(R"(listen = "a\\b\"c\u00e9\n"
listen-admin = 'd\e')"));
  for (const std::string_view text :
       {"64MiB", "10ms", "tcp://[::1]:7400", "rdma://node3.example:1", "18446744073709551615"}) {
    corpus.add("config_fuzz", {1}, as_bytes(text));
  }
}

}  // namespace
}  // namespace loam::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus DIRECTORY\n");
    return 2;
  }
  loam::fuzz::Corpus corpus(argv[1]);
  loam::fuzz::add_messages(corpus);
  loam::fuzz::add_frames(corpus);
  loam::fuzz::add_schemas(corpus);
  loam::fuzz::add_states(corpus);
  loam::fuzz::add_commit_logs(corpus);
  loam::fuzz::add_keys(corpus);
  loam::fuzz::add_texts(corpus);
  return corpus.failed() ? 1 : 0;
}
