// Suite bdtree: the Bd-tree on a cluster (bdtree_cluster.h, split_storm.h, ycsb.h), and its keys: searches in nodes by
// slices of encoded keys, beside field by field.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <loam/bdtree/key.h>

#include "bdtree/src/node/node.h"
#include "benchmarks/bdtree/bdtree_cluster.h"
#include "benchmarks/bdtree/split_storm.h"
#include "benchmarks/bdtree/ycsb.h"
#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/suite.h"
#include "common/command/number_options.h"
#include "common/schema/row.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

using bdtree::KeyCodec;
using bdtree::KeyPart;
using testing::Random;

using Values = std::vector<Value>;

/// The position of `probe` among the keys of a node, by binary search.
template <class Nodes, class Probe>
size_t lower_bound(const Nodes& nodes, size_t node, const Probe& probe) {
  size_t begin = 0, count = nodes.count(node);
  while (count > 0) {
    const size_t half = count / 2;
    if (nodes.compare(node, begin + half, probe) < 0) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

/// The position of `probe`, by a comparison with every key of the node, which the processor predicts well.
template <class Nodes, class Probe>
size_t count_below(const Nodes& nodes, size_t node, const Probe& probe) {
  size_t below = 0;
  for (size_t i = 0; i < nodes.count(node); ++i) below += nodes.compare(node, i, probe) < 0 ? 1 : 0;
  return below;
}

/// A node in one piece of memory: a uint32 offset for the begin of each item and the end of the last one, then the
/// items, aligned to eight bytes on request.
class PackedNode {
 public:
  PackedNode(const std::vector<Bytes>& items, size_t alignment) {
    std::vector<uint32_t> offsets;
    size_t at = round_up((items.size() + 1) * sizeof(uint32_t), 8);
    for (const Bytes item : items) {
      offsets.push_back(static_cast<uint32_t>(at));
      at = round_up(at + item.size(), alignment);
    }
    offsets.push_back(static_cast<uint32_t>(at));
    bytes_.resize(at);
    std::memcpy(bytes_.data(), offsets.data(), offsets.size() * sizeof(uint32_t));
    for (size_t i = 0; i < items.size(); ++i) std::copy(items[i].begin(), items[i].end(), bytes_.begin() + offsets[i]);
    count_ = items.size();
  }
  size_t count() const { return count_; }
  Bytes item(size_t index) const {
    uint32_t range[2];
    std::memcpy(range, bytes_.data() + index * sizeof(uint32_t), sizeof range);
    return {bytes_.data() + range[0], range[1] - range[0]};
  }

 private:
  Buffer bytes_;
  size_t count_ = 0;
};

std::string encoded(const KeyCodec& codec, const Values& key) {
  std::string out;
  if (!codec.encode(key, out).ok()) wrong_answer("a key cannot be encoded");
  return out;
}

/// Leaves of a tree, searched as in the product: by the first eight bytes after the common prefix of their keys.
class LeafNodes {
 public:
  explicit LeafNodes(const KeyCodec& codec) : codec_(codec) {}

  void add(std::span<const Values> keys) {
    std::vector<std::string> texts, places;
    for (const Values& key : keys) {
      texts.push_back(probe(key));
      places.emplace_back(sizeof(uint64_t), '\0');
      const uint64_t place = places.size() - 1;
      std::memcpy(places.back().data(), &place, sizeof place);
    }
    std::vector<bdtree::EntryView> entries;
    entries.reserve(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) entries.push_back({texts[i], places[i]});
    const bdtree::NodeHeader header{.low = texts.front(), .high = texts.back() + '\0'};
    const bdtree::TreeNodeId id(nodes_.size() + 1);
    nodes_.push_back(bdtree::Node::decode(id, {Version(1), bdtree::encode_base(header, entries), {}}).value());
  }
  std::string probe(const Values& key) const { return encoded(codec_, key); }
  /// The payload of a key's entry in its node.
  size_t place(size_t node, const std::string& probe) const {
    const auto found = nodes_[node].find(probe);
    if (!found) wrong_answer("a key is not in its node");
    uint64_t place = 0;
    std::memcpy(&place, found->data(), sizeof place);
    return place;
  }

 private:
  const KeyCodec& codec_;
  std::vector<bdtree::Node> nodes_;
};

/// Encoded keys, compared as a whole, eight bytes at a time.
class SliceNodes {
 public:
  explicit SliceNodes(const KeyCodec& codec) : codec_(codec) {}

  void add(std::span<const Values> keys) {
    std::vector<std::string> texts;
    texts.reserve(keys.size());
    for (const Values& key : keys) texts.push_back(probe(key));
    std::vector<Bytes> items;
    items.reserve(keys.size());
    for (const std::string& key : texts) items.push_back(as_bytes(key));
    nodes_.emplace_back(items, 1);
  }
  std::string probe(const Values& key) const { return encoded(codec_, key); }
  size_t count(size_t node) const { return nodes_[node].count(); }
  std::strong_ordering compare(size_t node, size_t index, const std::string& probe) const {
    return bdtree::compare(nodes_[node].item(index), as_bytes(probe));
  }

 private:
  const KeyCodec& codec_;
  std::vector<PackedNode> nodes_;
};

/// Keys as tuples of values, compared one value after another, as in code without an encoding.
class FieldNodes {
 public:
  void add(std::span<const Values> keys) { nodes_.emplace_back(keys.begin(), keys.end()); }
  static Values probe(const Values& key) { return key; }
  size_t count(size_t node) const { return nodes_[node].size(); }
  std::weak_ordering compare(size_t node, size_t index, const Values& probe) const {
    const Values& key = nodes_[node][index];
    for (size_t part = 0; part < probe.size(); ++part) {
      const std::weak_ordering order = key[part].compare(probe[part]);
      if (order != 0) return order;
    }
    return std::weak_ordering::equivalent;
  }

 private:
  std::vector<std::vector<Values>> nodes_;
};

/// Keys as rows of common/schema, compared field by field in place, without decoding or memory for each key.
class RowNodes {
 public:
  explicit RowNodes(const Schema& schema) : schema_(schema) {}

  void add(std::span<const Values> keys) {
    std::vector<Buffer> rows;
    rows.reserve(keys.size());
    for (const Values& key : keys) rows.push_back(probe(key));
    nodes_.emplace_back(std::vector<Bytes>(rows.begin(), rows.end()), 8);
  }
  Buffer probe(const Values& key) const {
    RowBuilder builder(schema_);
    for (size_t i = 0; i < key.size(); ++i) {
      if (!builder.set(i, key[i]).ok()) wrong_answer("a value does not fit its field");
    }
    const Bytes row = builder.finish().value();
    return Buffer(row.begin(), row.end());
  }
  size_t count(size_t node) const { return nodes_[node].count(); }
  std::weak_ordering compare(size_t node, size_t index, const Buffer& probe) const {
    const RowView key(schema_, nodes_[node].item(index)), wanted(schema_, probe);
    for (size_t i = 0; i < schema_.size(); ++i) {
      const std::weak_ordering order = compare(key, wanted, i);
      if (order != 0) return order;
    }
    return std::weak_ordering::equivalent;
  }

 private:
  std::weak_ordering compare(const RowView& a, const RowView& b, size_t field) const {
    if (const bool null = a.is_null(field); null || b.is_null(field)) return !null <=> !b.is_null(field);
    switch (schema_.field(field).type) {
      case FieldType::kInt16:
        return a.int16(field) <=> b.int16(field);
      case FieldType::kInt32:
        return a.int32(field) <=> b.int32(field);
      case FieldType::kInt64:
        return a.int64(field) <=> b.int64(field);
      case FieldType::kFloat32:
        return compare_floats(a.float32(field), b.float32(field));
      case FieldType::kFloat64:
        return compare_floats(a.float64(field), b.float64(field));
      default:
        return a.text(field) <=> b.text(field);
    }
  }

  const Schema& schema_;
  std::vector<PackedNode> nodes_;
};

/// An index whose keys are compared: its fields, and a function that draws a key.
struct KeyShape {
  std::string suffix;  ///< of the figures
  std::string description;
  std::vector<Field> fields;
  Values (*draw)(Random& random, uint64_t number);
};

Values draw_product(Random& random, uint64_t number) {
  static constexpr const char* kDepartments[] = {"garden", "kitchen",   "office", "electronics", "clothing", "toys",
                                                 "books",  "groceries", "sports", "automotive",  "music",    "health"};
  static constexpr const char* kGroups[] = {"new",     "tools", "small",       "seasonal", "refurbished", "accessories",
                                            "premium", "sale",  "spare-parts", "children", "outdoor",     "indoor"};
  const std::string category = std::string(kDepartments[random.below(std::size(kDepartments))]) + "/" +
                               kGroups[random.below(std::size(kGroups))];
  return {Value::text(category), Value::int32(static_cast<int32_t>(random.between(1, 100'000))),
          Value::int64(static_cast<int64_t>(number))};
}

Values draw_number(Random& random, uint64_t) { return {Value::int64(static_cast<int64_t>(random()))}; }

std::vector<KeyShape> key_shapes() {
  return {
      {"",
       "(text category, int32 price, int64 key)",
       {{"category", FieldType::kText, false}, {"price", FieldType::kInt32, false}, {"key", FieldType::kInt64, false}},
       &draw_product},
      {"_int64", "(int64)", {{"key", FieldType::kInt64, false}}, &draw_number}};
}

/// The keys of one index in their order.
std::vector<Values> sorted_keys(const KeyShape& shape, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<Values> keys;
  keys.reserve(count);
  for (size_t i = 0; i < count; ++i) keys.push_back(shape.draw(random, i));
  const auto less = [](const Values& a, const Values& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end(),
                                                  [](const Value& x, const Value& y) { return x.compare(y); }) < 0;
  };
  std::sort(keys.begin(), keys.end(), less);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

class BdtreeSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--keys", keys_, {1, 1'000'000'000}, "in the nodes that are searched");
    command::add_unsigned(app, "--node-keys", node_keys_, {2, 10'000}, "in one node");
    command::add_unsigned(app, "--searches", searches_, {0, 1'000'000'000},
                          "of one turn; 0: 300,000 with --quick, else 2 M");
    command::add_unsigned(app, "--tree-keys", load_.keys, {0, 1'000'000'000},
                          "in the tree on a cluster; 0: 300,000 with --quick, else 3 M");
    command::add_unsigned(app, "--ycsb-keys", ycsb_.keys, {0, 1'000'000'000},
                          "of each type; 0: 10,000 with --quick, else 300,000")
        ->check(CLI::IsMember({"0"}) | CLI::Range(100, 1'000'000'000));
    command::add_unsigned(app, "--ycsb-operations", ycsb_.operations, {0, 1'000'000'000},
                          "of a workload in one turn, scans a tenth; 0: 500 with --quick, else 20,000");
    command::add_unsigned(app, "--ycsb-fibers", ycsb_.fibers, {1, 1'000}, "that work at once");
    command::add_unsigned(app, "--ycsb-value-bytes", ycsb_.value_bytes, {kMinYcsbValueBytes, 10'000}, "of a record");
    command::add_unsigned(app, "--storm-keys", storm_.keys, {0, 1'000'000'000},
                          "before the splits; 0: 10,000 with --quick, else 300,000");
    command::add_unsigned(app, "--storm-lookups", storm_.lookups, {0, 1'000'000'000},
                          "of one turn; 0: 2,000 with --quick, else 100,000");
    app.add_option("--only", only_,
                   "compare: the keys' comparisons; tree: the tree on a cluster; ycsb: YCSB's workloads over it; "
                   "storm: lookups during splits")
        ->check(CLI::IsMember({"compare", "storm", "tree", "ycsb"}));
  }

  void run(Run& run) override {
    const auto wanted = [&](const char* part) { return only_.empty() || only_ == part; };
    if (wanted("tree")) measure_tree(run, load_);
    if (wanted("ycsb")) measure_ycsb(run, ycsb_);
    if (wanted("storm")) measure_split_storm(run, storm_);
    if (!wanted("compare")) return;
    for (const KeyShape& shape : key_shapes()) {
      comparisons(run, shape, keys_, shape.suffix);
      comparisons(run, shape, kCachedNodes * node_keys_, shape.suffix + "_cached");
    }
  }

 private:
  /// Number of nodes that fit into the second-level cache, for every kind of node.
  static constexpr size_t kCachedNodes = 10;
  /// Number of probe keys that fit into the first-level cache, as the key of a real search through a tree does.
  static constexpr size_t kProbes = 64;

  /// Binary searches for random keys in random nodes; every variant uses the same keys and nodes.
  void comparisons(Run& run, const KeyShape& shape, size_t count, const std::string& suffix) {
    const std::vector<Values> keys = sorted_keys(shape, count, run.seed);
    std::vector<KeyPart> parts;
    parts.reserve(shape.fields.size());
    for (const Field& field : shape.fields) parts.push_back({field.type, field.nullable, false});
    const KeyCodec codec = KeyCodec::make(std::move(parts)).value();
    const Schema schema = Schema::make(shape.fields).value();
    LeafNodes leaves(codec);
    SliceNodes slices(codec);
    FieldNodes fields;
    RowNodes rows(schema);
    for (size_t begin = 0; begin < keys.size(); begin += node_keys_) {
      const auto node = std::span(keys).subspan(begin, std::min(node_keys_, keys.size() - begin));
      leaves.add(node);
      slices.add(node);
      fields.add(node);
      rows.add(node);
    }
    const std::vector<Samples> samples =
        alternate(run.turns, std::vector<Variant>{{"leaves", [&] { return search_leaves(run, leaves, keys); }},
                                                  {"whole keys", [&] { return search(run, slices, keys); }},
                                                  {"fields", [&] { return search(run, fields, keys); }},
                                                  {"rows", [&] { return search(run, rows, keys); }},
                                                  {"compare slices", [&] { return compare_all(run, slices, keys); }},
                                                  {"compare fields", [&] { return compare_all(run, fields, keys); }},
                                                  {"encode", [&] { return encode(run, codec, keys); }}});
    const nlohmann::ordered_json with = {
        {"key", shape.description}, {"keys", keys.size()}, {"node_keys", node_keys_}, {"searches", searches(run)}};
    const auto add = [&](const char* name, const Samples& values, const char* unit, Better better) {
      run.report.add(std::string("bdtree.") + name + suffix, values, unit, better, with);
    };
    const auto& [in_leaves, whole, by_fields, by_rows, compared, fields_compared, encoding] =
        std::tie(samples[0], samples[1], samples[2], samples[3], samples[4], samples[5], samples[6]);
    add("slices_vs_fields", ratio_of(by_fields, in_leaves), "ratio", Better::kHigher);
    add("slices_vs_rows", ratio_of(by_rows, in_leaves), "ratio", Better::kHigher);
    add("slices_vs_whole_keys", ratio_of(whole, in_leaves), "ratio", Better::kHigher);
    add("compare_vs_fields", ratio_of(fields_compared, compared), "ratio", Better::kHigher);
    add("search_ns", in_leaves, "ns", Better::kLower);
    add("search_whole_keys_ns", whole, "ns", Better::kLower);
    add("search_fields_ns", by_fields, "ns", Better::kLower);
    add("search_rows_ns", by_rows, "ns", Better::kLower);
    add("compare_ns", compared, "ns", Better::kLower);
    add("encode_ns", encoding, "ns", Better::kLower);
  }

  size_t searches(const Run& run) const { return searches_ != 0 ? searches_ : run.quick ? 300'000 : 2'000'000; }

  /// Calls `work(numbers)` with kProbes numbers of keys at a time; returns the time of one search.
  template <class Work>
  double in_batches(const Run& run, size_t count, const std::vector<Values>& keys, Work work) {
    Random random(run.seed + ++turn_);
    // Each turn draws other keys. With equal keys, a variant would find its nodes in the processor cache because the
    // previous variant had read them.
    const size_t batches = std::max<size_t>(1, count / kProbes);
    uint64_t ns = 0;
    std::vector<size_t> numbers(kProbes);
    for (size_t batch = 0; batch < batches; ++batch) {
      for (size_t& number : numbers) number = random.below(keys.size());
      ns += work(numbers);
    }
    return static_cast<double>(ns) / static_cast<double>(batches * kProbes);
  }

  /// Nanoseconds of the product's search.
  double search_leaves(const Run& run, const LeafNodes& nodes, const std::vector<Values>& keys) {
    return find_all(run, searches(run), nodes, keys,
                    [&](size_t node, const std::string& probe) { return nodes.place(node, probe); });
  }
  /// Nanoseconds of a binary search.
  template <class Nodes>
  double search(const Run& run, const Nodes& nodes, const std::vector<Values>& keys) {
    return find_all(run, searches(run), nodes, keys,
                    [&](size_t node, const auto& probe) { return lower_bound(nodes, node, probe); });
  }
  /// Nanoseconds of a comparison.
  template <class Nodes>
  double compare_all(const Run& run, const Nodes& nodes, const std::vector<Values>& keys) {
    const auto find = [&](size_t node, const auto& probe) { return count_below(nodes, node, probe); };
    return find_all(run, searches(run) / 10, nodes, keys, find) / static_cast<double>(node_keys_);
  }

  template <class Nodes, class Find>
  double find_all(const Run& run, size_t count, const Nodes& nodes, const std::vector<Values>& keys, Find find) {
    std::vector<std::decay_t<decltype(nodes.probe(keys[0]))>> probes;
    std::vector<std::pair<size_t, size_t>> where;  // the node of a key, and its index there
    return in_batches(run, count, keys, [&](const std::vector<size_t>& numbers) {
      // The probe keys are encoded outside of the measured time: the product encodes a key once for all nodes of a
      // path.
      probes.clear();
      where.clear();
      for (const size_t number : numbers) {
        probes.push_back(nodes.probe(keys[number]));
        where.emplace_back(number / node_keys_, number % node_keys_);
      }
      bool right = true;
      const uint64_t before = thread_cpu_ns();
      for (size_t i = 0; i < probes.size(); ++i) right &= find(where[i].first, probes[i]) == where[i].second;
      const uint64_t ns = thread_cpu_ns() - before;
      if (!right) wrong_answer("a search found another key");
      return ns;
    });
  }

  double encode(const Run& run, const KeyCodec& codec, const std::vector<Values>& keys) {
    std::vector<Values> probes;
    std::string out;
    return in_batches(run, searches(run), keys, [&](const std::vector<size_t>& numbers) {
      probes.clear();
      for (const size_t number : numbers) probes.push_back(keys[number]);
      bool right = true;
      const uint64_t before = thread_cpu_ns();
      for (const Values& probe : probes) {
        out.clear();
        right &= codec.encode(probe, out).ok();
        do_not_optimize(out);
      }
      const uint64_t ns = thread_cpu_ns() - before;
      if (!right || codec.decode(as_bytes(out)).value() != probes.back()) wrong_answer("an encoded key is another");
      return ns;
    });
  }

  TreeLoad load_;
  YcsbLoad ycsb_;
  SplitStormLoad storm_;
  std::string only_;
  size_t keys_ = 1'000'000;
  size_t node_keys_ = 100;
  size_t searches_ = 0;
  uint64_t turn_ = 0;  ///< counts the turns of all variants, so that no two variants look up the same keys
};

LOAM_BENCH_SUITE(bdtree, BdtreeSuite,
                 "the Bd-tree: its round trips on a cluster, YCSB over it, comparisons of its keys");

}  // namespace
}  // namespace loam::bench
