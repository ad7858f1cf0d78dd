#include "bdtree/src/node/node.h"

#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using testing::Random;

std::string number(uint64_t id) {
  std::string payload(8, '\0');
  std::memcpy(payload.data(), &id, 8);
  return payload;
}

std::vector<EntryView> views(const std::map<std::string, std::string>& model) {
  std::vector<EntryView> entries;
  for (const auto& [key, payload] : model) entries.push_back({key, payload});
  return entries;
}

Node make(const NodeHeader& header, const std::map<std::string, std::string>& model) {
  return Node::decode(TreeNodeId(5), {Version(1), encode_base(header, views(model)), {}}).value();
}

TEST(Node, CommonPrefixIsStoredOnce) {
  const std::string prefix(40, 'p');
  std::map<std::string, std::string> model;
  for (int i = 10; i < 99; ++i) model[prefix + std::to_string(i)] = "v";
  const Node bounded = make({.low = prefix + "1", .high = prefix + "999", .right = TreeNodeId(9)}, model);
  const Node unbounded = make({.low = prefix + "1"}, model);
  EXPECT_LT(bounded.bytes() + 89 * 35, unbounded.bytes());
  for (const auto& [key, payload] : model) EXPECT_EQ(bounded.find(key), payload);
  EXPECT_EQ(bounded.find("p"), std::nullopt);
  EXPECT_EQ(bounded.find("q"), std::nullopt);
}

TEST(Node, SeeksLeadToTheRightChild) {
  Node node = make({.level = 1}, {{"", number(1)}, {"b", number(2)}, {"d", number(3)}, {"f", number(4)}});
  const auto at = [&](const Seek& seek) { return node.child(seek).value_or(kNoNode).value; };
  for (const bool consolidated : {false, true}) {
    EXPECT_EQ(at(Seek::to("")), 1u);
    EXPECT_EQ(at(Seek::to("a")), 1u);
    EXPECT_EQ(at(Seek::to("b")), 2u);
    EXPECT_EQ(at(Seek::before_key("b")), 1u);
    EXPECT_EQ(at(Seek::to("e")), consolidated ? 2u : 3u);
    EXPECT_EQ(at(Seek::before_key("d")), 2u);
    EXPECT_EQ(at(Seek::to("zz")), consolidated ? 5u : 4u);
    EXPECT_EQ(at(Seek::to_last()), consolidated ? 5u : 4u);
    // The delta erases one child and puts another; then it is moved into the base.
    node.change("d", std::nullopt);
    node.change("g", number(5));
    EXPECT_EQ(at(Seek::to("d")), 2u);
    EXPECT_EQ(at(Seek::before_key("f")), 2u);
    EXPECT_EQ(at(Seek::to("g")), 5u);
    EXPECT_EQ(at(Seek::before_key("g")), 4u);
    node.consolidate();
  }
  node.change("", std::nullopt);
  EXPECT_EQ(at(Seek::to("a")), 0u) << "no child: the descent goes over the left neighbour";
  EXPECT_EQ(at(Seek::before_key("b")), 0u);
}

TEST(Node, ModelOfChanges) {
  Random random(testing::test_seed(1));
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, std::string> model;
    const std::string prefix(random.below(3) * 10, 'x');
    const auto key = [&] { return prefix + std::to_string(random.below(60)); };
    for (uint64_t n = random.below(30); n > 0; --n) model[key()] = std::to_string(n);
    Node node = make({.low = prefix, .high = prefix + "~", .right = TreeNodeId(2)}, model);
    for (int step = 0; step < 40; ++step) {
      const std::string k = key();
      if (random.one_in(3)) {
        node.change(k, std::nullopt);
        model.erase(k);
      } else {
        const std::string payload(random.below(30), 'v');
        node.change(k, payload);
        model[k] = payload;
      }
      if (random.one_in(10)) node.consolidate();
      const std::string probe = key();
      const auto known = model.find(probe);
      ASSERT_EQ(node.find(probe), known == model.end() ? std::nullopt : std::optional<std::string_view>(known->second));
      ASSERT_EQ(node.size(), model.size());
      Node consolidated = node;
      consolidated.consolidate();
      ASSERT_EQ(node.content_bytes(), consolidated.content_bytes());
      ASSERT_TRUE(consolidated.delta().empty());
      // The written bytes decode to the same node.
      const Node read = Node::decode(node.id(), {Version(2), Buffer(node.base().begin(), node.base().end()),
                                                 Buffer(node.delta().begin(), node.delta().end())})
                            .value();
      const EntryList list = read.entries();
      ASSERT_EQ(list.views.size(), model.size());
      auto expected = model.begin();
      for (const EntryView& entry : list.views) {
        ASSERT_EQ(entry.key, expected->first);
        ASSERT_EQ(entry.payload, expected->second);
        ++expected;
      }
      const std::string from = random.one_in(4) ? "" : key(), to = random.one_in(4) ? "" : key();
      const size_t limit = random.below(12);
      std::vector<std::pair<std::string, std::string>> some, wanted;
      for (auto at = model.lower_bound(from); at != model.end() && (to.empty() || at->first < to); ++at) {
        if (wanted.size() < limit) wanted.emplace_back(*at);
      }
      const EntryList found = read.entries(from, to, limit);
      for (const EntryView& entry : found.views) some.emplace_back(entry.key, entry.payload);
      ASSERT_EQ(some, wanted) << "from " << from << " to " << to << ", " << limit;
    }
  }
}

// Short and long keys over few distinct bytes, including zero. Many of them have the same first eight bytes behind
// the common prefix, also keys that end earlier or continue with zeros.
TEST(Node, FindsKeysWithEqualSlices) {
  Random random(testing::test_seed(1));
  for (int round = 0; round < 200; ++round) {
    const std::string alike(random.below(12), 'k');
    // The bounds have a common prefix, so slices begin behind it.
    const bool bounded = random.one_in(2);
    const NodeHeader header = bounded
                                  ? NodeHeader{.level = 1, .low = alike, .high = alike + "~", .right = TreeNodeId(9)}
                                  : NodeHeader{.level = 1};
    const auto key = [&] {
      std::string text = !bounded && random.one_in(4) ? std::string() : alike;
      for (uint64_t n = random.below(12); n > 0; --n) text.push_back(static_cast<char>(random.below(2)));
      return text;
    };
    std::map<std::string, std::string> model;
    for (uint64_t n = random.below(100); n > 0; --n) model[key()] = number(n);
    Node node = make(header, model);
    ASSERT_EQ(node.prefix_bytes(), bounded ? alike.size() : 0);
    for (int step = 0; step < 100; ++step) {
      const std::string probe = key();
      const auto known = model.find(probe);
      ASSERT_EQ(node.find(probe), known == model.end() ? std::nullopt : std::optional<std::string_view>(known->second));
      const auto above = model.upper_bound(probe);
      const auto child = node.child(Seek::to(probe));
      ASSERT_EQ(child ? std::optional(number(child->value)) : std::nullopt,
                above == model.begin() ? std::nullopt : std::optional(std::prev(above)->second));
      if (random.one_in(4)) {
        const std::string changed = key();
        const std::string payload = number(1'000 + random.below(1'000));
        const bool erases = random.one_in(2);
        node.change(changed, erases ? std::nullopt : std::optional<std::string_view>(payload));
        if (erases) {
          model.erase(changed);
        } else {
          model[changed] = payload;
        }
      }
      if (random.one_in(30)) node.consolidate();
    }
  }
}

TEST(Node, BadBytesAreMalformed) {
  Random random(testing::test_seed(1));
  std::map<std::string, std::string> model;
  for (int i = 10; i < 30; ++i) model["key" + std::to_string(i)] = number(static_cast<uint64_t>(i));
  Node node = make({.level = 1, .low = "key1", .high = "key9", .right = TreeNodeId(2)}, model);
  node.change("key15x", number(99));
  node.change("key20", std::nullopt);
  const Buffer base(node.base().begin(), node.base().end());
  const Buffer delta(node.delta().begin(), node.delta().end());
  const auto decode = [](Buffer b, Buffer d) {
    auto result = Node::decode(TreeNodeId(5), {Version(1), std::move(b), std::move(d)});
    if (!result.ok()) {
      EXPECT_EQ(result.code(), StatusCode::kMalformed);
      return false;
    }
    // Bytes that decode() accepts must be safe to use.
    (void)result->entries();
    (void)result->child(Seek::to("key2"));
    (void)result->find("key12");
    (void)result->size();
    (void)result->content_bytes();
    Node changed = *result;
    if (changed.header().covers("key15x")) changed.change("key15x", number(98));
    changed.consolidate();
    return true;
  };
  EXPECT_TRUE(decode(base, delta));
  for (size_t n = 0; n < base.size(); ++n)
    EXPECT_FALSE(decode(Buffer(base.begin(), base.begin() + static_cast<ptrdiff_t>(n)), delta)) << n;
  for (size_t n = 1; n < delta.size(); ++n)
    decode(base, Buffer(delta.begin(), delta.begin() + static_cast<ptrdiff_t>(n)));
  for (int i = 0; i < 20'000; ++i) {
    Buffer b = base;
    Buffer d = delta;
    for (uint64_t n = random.between(1, 3); n > 0; --n) {
      Buffer& victim = random.one_in(3) ? d : b;
      victim[random.below(victim.size())] = static_cast<std::byte>(random());
    }
    decode(std::move(b), std::move(d));
  }
}

// Base and delta that are well-formed each, and not as a node together.
TEST(Node, NodeThatCannotBeEncodedAgainIsMalformed) {
  const auto code = [](const Buffer& base, const Buffer& delta) {
    return Node::decode(TreeNodeId(5), {Version(1), base, delta}).code();
  };
  const NodeHeader header{.low = "key1", .high = "key9", .right = TreeNodeId(2)};
  const auto delta_of = [](const std::string& key, const std::string& payload) {
    Node any = make({}, {});
    any.change(key, payload);
    return Buffer(any.delta().begin(), any.delta().end());
  };
  const Buffer base = encode_base(header, {{"key2", "v"}});
  EXPECT_EQ(code(base, delta_of("key3", "v")), StatusCode::kOk);
  for (const char* outside : {"", "k", "key", "key0", "key9", "z"}) {
    EXPECT_EQ(code(base, delta_of(outside, "v")), StatusCode::kMalformed) << outside;
  }
  EXPECT_EQ(code(encode_base(header, {{"key0", "v"}}), {}), StatusCode::kMalformed);
  EXPECT_EQ(code(encode_base(header, {{"key9", "v"}}), {}), StatusCode::kMalformed);
  EXPECT_EQ(code(encode_base({.low = "b", .high = "b"}, {}), {}), StatusCode::kMalformed);
  EXPECT_EQ(code(encode_base({.level = kMaxLevel}, {}), {}), StatusCode::kOk);
  EXPECT_EQ(code(encode_base({.level = kMaxLevel + 1}, {}), {}), StatusCode::kMalformed);
  const std::string half(kMaxStoredBytes / 2, 'v');
  EXPECT_EQ(code(encode_base(header, {{"key2", half}}), {}), StatusCode::kOk);
  EXPECT_EQ(code(encode_base(header, {{"key2", half}}), delta_of("key3", half)), StatusCode::kMalformed);
  EXPECT_EQ(code(encode_base(header, {{"key2", half}, {"key3", half}}), {}), StatusCode::kMalformed);
}

TEST(Node, ModelOfSeeks) {
  Random random(testing::test_seed(1));
  for (int round = 0; round < 300; ++round) {
    const std::string prefix(random.below(3) * 10, 'x');
    const auto key = [&] { return prefix + std::to_string(random.below(40)); };
    std::map<std::string, std::string> model;
    for (uint64_t n = random.below(12); n > 0; --n) model[key()] = number(n);
    Node node = make({.level = 1, .low = prefix, .high = prefix + "~", .right = TreeNodeId(2)}, model);
    for (int step = 0; step < 30; ++step) {
      const std::string k = key();
      const uint64_t id = 100 + random.below(1'000);
      random.one_in(2) ? node.change(k, std::nullopt) : node.change(k, number(id));
      const EntryList list = node.entries();
      const std::string probe = random.one_in(10) ? std::string(random.below(30), random.one_in(2) ? 'a' : 'z') : key();
      for (const Seek& seek : {Seek::to(probe), Seek::before_key(probe), Seek::to_last()}) {
        std::optional<std::string> expected;
        for (const EntryView& entry : list.views) {
          if (seek.last || (seek.before ? entry.key < probe : entry.key <= probe)) expected = entry.payload;
        }
        const auto child = node.child(seek);
        ASSERT_EQ(child ? std::optional(number(child->value)) : std::nullopt, expected);
      }
    }
  }
}

}  // namespace
}  // namespace loam::bdtree
